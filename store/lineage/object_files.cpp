// Objects as Git keeps them: a loose one is compressed and named by the hash of what it holds; packs and their indices end with a
// hash of all that is before it.

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <optional>

#include "store/error.h"
#include "store/folder/files.h"
#include "store/lineage/repository_files.h"
#include "store/lineage/sha1.h"

namespace sluice::store {

namespace {

namespace fs = std::filesystem;

constexpr size_t kHash = 20;        // bytes
constexpr size_t kPiece = 1 << 16;  // bytes that are read at once

bool is_hexadecimal(const std::string& name, size_t size) {
  return name.size() == size && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Throws StoreError where zlib could not work, whatever the data.
void require_memory(int state) {
  if (state == Z_MEM_ERROR) throw StoreError(ErrorKind::kUnwritable, "cannot unpack an object: the machine has no memory left");
  if (state == Z_VERSION_ERROR) throw StoreError(ErrorKind::kInternal, "this is another zlib than the program was made for");
}

/// Ends zlib's stream with this object.
struct Inflation {
  z_stream stream{};
  Inflation() { require_memory(inflateInit(&stream)); }
  ~Inflation() { inflateEnd(&stream); }
  Inflation(const Inflation&) = delete;
  Inflation& operator=(const Inflation&) = delete;
};

/// The hash of what a file decompresses to, if it is one whole stream and nothing else.
std::optional<std::string> hash_of_compressed(const fs::path& path) {
  std::optional<FileReader> file = FileReader::open(path);
  if (!file) return std::nullopt;
  std::array<char, kPiece> packed{}, plain{};
  Inflation inflation;
  z_stream& stream = inflation.stream;
  Sha1 sha;
  for (int state = Z_OK; state == Z_OK;) {
    if (stream.avail_in == 0) {
      stream.next_in = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_in = static_cast<uInt>(file->read(packed.data(), packed.size()));
      if (stream.avail_in == 0) return std::nullopt;
    }
    stream.next_out = reinterpret_cast<Bytef*>(plain.data());
    stream.avail_out = plain.size();
    state = inflate(&stream, Z_NO_FLUSH);
    require_memory(state);
    if (state != Z_OK && state != Z_STREAM_END) return std::nullopt;
    sha.add({plain.data(), plain.size() - stream.avail_out});
  }
  if (stream.avail_in != 0 || file->read(packed.data(), 1) != 0) return std::nullopt;
  return hex_of(sha.finish());
}

/// The last bytes of a file, where they are the hash of all before them.
std::optional<std::string> hash_at_end(const fs::path& path) {
  std::optional<FileReader> file = FileReader::open(path);
  if (!file || file->size() <= kHash) return std::nullopt;
  std::array<char, kPiece> piece{};
  Sha1 sha;
  for (uint64_t left = file->size() - kHash; left > 0;) {
    const size_t count = file->read(piece.data(), std::min<uint64_t>(left, piece.size()));
    if (count == 0) return std::nullopt;
    sha.add({piece.data(), count});
    left -= count;
  }
  std::string hash = file->rest();
  return sha.finish() == hash ? std::optional(std::move(hash)) : std::nullopt;
}

/// The hash of its pack that an index has before its own; "" where it is too short for both.
std::string hash_of_pack(const fs::path& index) {
  std::optional<FileReader> file = FileReader::open(index);
  if (!file || file->size() < 2 * kHash) return {};
  file->seek(file->size() - 2 * kHash);
  return file->rest().substr(0, kHash);
}

class Objects {
 public:
  explicit Objects(const fs::path& repository) : repository_(repository), objects_(repository / "objects") {}

  std::vector<std::string> run() {
    for (const fs::path& folder : entries_of(objects_)) {
      if (is_hexadecimal(folder.filename().string(), 2) && type_of(folder) == fs::file_type::directory) check_loose(folder);
    }
    for (const fs::path& file : entries_of(objects_ / "pack")) check_packed(file);
    for (const fs::path& file : entries_of(objects_ / "info" / "commit-graphs")) {
      if (file.extension() == ".graph") check_end(file);
    }
    if (const fs::path graph = objects_ / "info" / "commit-graph"; is_there(graph)) check_end(graph);
    return std::move(found_);
  }

 private:
  void find(const fs::path& file, const char* what) {
    if (!is_there(file)) return;  // `git gc` has taken it away meanwhile; whether anything misses it is another question
    found_.push_back(fmt::format("{} {}", file.lexically_relative(repository_).string(), what));
  }

  void check_loose(const fs::path& folder) {
    for (const fs::path& file : entries_of(folder)) {
      const std::string name = file.filename().string();
      if (name.starts_with("tmp_obj")) continue;  // of one that was killed at it
      if (!is_hexadecimal(name, 2 * kHash - 2)) {
        find(file, "is no object");
      } else if (hash_of_compressed(file) != folder.filename().string() + name) {
        find(file, "is damaged");
      }
    }
  }

  void check_packed(const fs::path& file) {
    const std::string kind = file.extension().string();
    const bool has_hash = kind == ".pack" || kind == ".idx" || kind == ".rev" || kind == ".bitmap" || kind == ".mtimes";
    if (file.filename().string().starts_with("tmp_") || !(has_hash || file.filename() == "multi-pack-index")) return;
    if (!check_end(file) || kind != ".idx") return;
    const fs::path pack = fs::path(file).replace_extension(".pack");
    if (!is_there(pack)) return find(file, "has no pack");
    if (const auto hash = hash_at_end(pack); hash && *hash != hash_of_pack(file)) find(file, "is of another pack");
  }

  bool check_end(const fs::path& file) {
    if (hash_at_end(file)) return true;
    find(file, "is damaged");
    return false;
  }

  const fs::path& repository_;
  const fs::path objects_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> damaged_objects(const fs::path& repository) { return Objects(repository).run(); }

}  // namespace sluice::store
