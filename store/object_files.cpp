// Objects as Git keeps them: a loose one is compressed and named by the hash of what it holds; packs and their indices end with a
// hash of all that is before it.

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>

#include "store/repository_files.h"
#include "store/sha1.h"

namespace sluice::store {

namespace {

namespace fs = std::filesystem;

constexpr size_t kHash = 20;        // bytes
constexpr size_t kPiece = 1 << 16;  // bytes that are read at once

bool is_hexadecimal(const std::string& name, size_t size) {
  return name.size() == size && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Ends zlib's stream with this object.
struct Inflation {
  z_stream stream{};
  Inflation() { inflateInit(&stream); }
  ~Inflation() { inflateEnd(&stream); }
  Inflation(const Inflation&) = delete;
  Inflation& operator=(const Inflation&) = delete;
};

/// The hash of what a file decompresses to, if it is one whole stream and nothing else.
std::optional<std::string> hash_of_compressed(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, kPiece> packed{}, plain{};
  Inflation inflation;
  z_stream& stream = inflation.stream;
  Sha1 sha;
  for (int state = Z_OK; state == Z_OK;) {
    if (stream.avail_in == 0) {
      file.read(packed.data(), packed.size());
      if (file.gcount() == 0) return std::nullopt;
      stream.next_in = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_in = static_cast<uInt>(file.gcount());
    }
    stream.next_out = reinterpret_cast<Bytef*>(plain.data());
    stream.avail_out = plain.size();
    state = inflate(&stream, Z_NO_FLUSH);
    if (state != Z_OK && state != Z_STREAM_END) return std::nullopt;
    sha.add({plain.data(), plain.size() - stream.avail_out});
  }
  if (stream.avail_in != 0 || file.peek() != std::ifstream::traits_type::eof()) return std::nullopt;
  return hex_of(sha.finish());
}

/// The last bytes of a file, where they are the hash of all before them.
std::optional<std::string> hash_at_end(const fs::path& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error || size <= kHash) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::array<char, kPiece> piece{};
  Sha1 sha;
  for (uintmax_t left = size - kHash; left > 0;) {
    file.read(piece.data(), static_cast<std::streamsize>(std::min<uintmax_t>(left, piece.size())));
    if (file.gcount() <= 0) return std::nullopt;
    sha.add({piece.data(), static_cast<size_t>(file.gcount())});
    left -= static_cast<uintmax_t>(file.gcount());
  }
  std::string hash(kHash, '\0');
  file.read(hash.data(), kHash);
  return file && sha.finish() == hash ? std::optional(hash) : std::nullopt;
}

/// The hash of its pack that an index has before its own.
std::string hash_of_pack(const fs::path& index) {
  std::string hash(kHash, '\0');
  std::ifstream file(index, std::ios::binary);
  file.seekg(-2 * static_cast<std::streamoff>(kHash), std::ios::end);
  file.read(hash.data(), kHash);
  return hash;
}

class Objects {
 public:
  explicit Objects(const fs::path& repository) : repository_(repository), objects_(repository / "objects") {}

  std::vector<std::string> run() {
    for (const fs::directory_entry& entry : entries_of(objects_)) {
      if (is_hexadecimal(entry.path().filename().string(), 2) && entry.is_directory()) check_loose(entry.path());
    }
    for (const fs::directory_entry& entry : entries_of(objects_ / "pack")) check_packed(entry.path());
    for (const fs::directory_entry& entry : entries_of(objects_ / "info" / "commit-graphs")) {
      if (entry.path().extension() == ".graph") check_end(entry.path());
    }
    if (const fs::path graph = objects_ / "info" / "commit-graph"; fs::exists(graph)) check_end(graph);
    return std::move(found_);
  }

 private:
  void find(const fs::path& file, const char* what) {
    found_.push_back(fmt::format("{} {}", file.lexically_relative(repository_).string(), what));
  }

  std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
    std::vector<fs::directory_entry> entries;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) entries.push_back(*at);
    if (error && fs::exists(folder)) find(folder, "cannot be read");
    return entries;
  }

  void check_loose(const fs::path& folder) {
    for (const fs::directory_entry& entry : entries_of(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("tmp_obj")) continue;  // of one that was killed at it
      if (!is_hexadecimal(name, 2 * kHash - 2) || !entry.is_regular_file()) {
        find(entry.path(), "is no object");
      } else if (hash_of_compressed(entry.path()) != folder.filename().string() + name) {
        find(entry.path(), "is damaged");
      }
    }
  }

  void check_packed(const fs::path& file) {
    const std::string kind = file.extension().string();
    const bool has_hash = kind == ".pack" || kind == ".idx" || kind == ".rev" || kind == ".bitmap" || kind == ".mtimes";
    if (file.filename().string().starts_with("tmp_") || !(has_hash || file.filename() == "multi-pack-index")) return;
    if (!check_end(file) || kind != ".idx") return;
    const fs::path pack = fs::path(file).replace_extension(".pack");
    if (!fs::exists(pack)) return find(file, "has no pack");
    if (const auto hash = hash_at_end(pack); hash && *hash != hash_of_pack(file)) find(file, "is of another pack");
  }

  bool check_end(const fs::path& file) {
    if (fs::is_regular_file(file) && hash_at_end(file)) return true;
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
