// HEAD, config, refs: the files that Git reads before it looks at any object. They are written by this program alone, so whatever
// it would not have written is damage.

#include "store/lineage/repository_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <regex>
#include <sstream>

#include "store/folder/files.h"

namespace sluice::store {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFirstBranch = "refs/heads/master";  // that HEAD names in a new repository, where it never comes to be

/// Files that would lead Git elsewhere, or cut history; there are none here.
constexpr std::array kForeign = {"commondir", "config.worktree", "shallow", "info/grafts", "objects/info/alternates"};

bool is_hash(const std::string& text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

class Files {
 public:
  explicit Files(const fs::path& repository) : repository_(repository) {}

  std::vector<std::string> run() {
    for (const char* folder : {"objects", "refs"}) {
      if (type_of(repository_ / folder) != fs::file_type::directory) find(folder, "is no folder");
    }
    for (const char* folder : {"objects/pack", "objects/info"}) {  // either may be missing
      if (is_there(repository_ / folder) && type_of(repository_ / folder) != fs::file_type::directory)
        find(folder, "is no folder");
    }
    if (type_of(repository_ / "objects") == fs::file_type::directory) check_object_folders();
    check_config();
    check_packed_refs();
    check_refs(repository_ / "refs");
    check_head();
    for (const char* name : kForeign) {
      if (is_there(repository_ / name)) find(name, "does not belong there");
    }
    return std::move(found_);
  }

 private:
  /// Git's folders of objects have names of two digits.
  void check_object_folders() {
    for (const fs::path& entry : entries_of(repository_ / "objects")) {
      const std::string name = entry.filename();
      const bool is_one = name.size() == 2 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
      if (is_one && type_of(entry) != fs::file_type::directory) find("objects/" + name, "is no folder");
    }
  }

  void find(const std::string& file, const std::string& what) { found_.push_back(file + " " + what); }

  /// Nothing if it is no file, which is told, and if there is nothing, which is told where there must be.
  std::optional<std::string> text_of(const std::string& name, bool must_be = true) {
    const fs::path path = repository_ / name;
    if (std::optional<FileReader> file = FileReader::open(path)) return file->rest();
    if (is_there(path)) {
      find(name, "is no file");
    } else if (must_be) {
      find(name, "is missing");
    }
    return std::nullopt;
  }

  /// Lines without their ends; the last one must have an end, too, which is told.
  std::vector<std::string> lines_of(const std::string& name, const std::string& text) {
    if (!text.empty() && text.back() != '\n') find(name, "ends within a line");
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
    return lines;
  }

  /// Some of these settings depend on the file system; a wrong value of any ends every command of Git.
  void check_config() {
    const auto text = text_of("config");
    if (!text) return;
    static const std::regex setting(
        R"(\t(bare = true|repositoryformatversion = 0|(filemode|symlinks|ignorecase|precomposeunicode) = (true|false)))");
    const std::vector<std::string> lines = lines_of("config", *text);
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool is_known = i == 0 ? lines[i] == "[core]" : std::regex_match(lines[i], setting);
      if (!is_known) return find("config", fmt::format("has a line {} that is not Sluice's", i + 1));
    }
    if (std::find(lines.begin(), lines.end(), "\tbare = true") == lines.end()) find("config", "does not say that it is bare");
  }

  void check_packed_refs() {
    const std::string name = "packed-refs";
    if (!is_there(repository_ / name)) return;
    const auto text = text_of(name);
    if (!text) return;
    static const std::regex entry("([0-9a-f]{40}) (refs/[!-~]+)"), peeled("\\^[0-9a-f]{40}");
    std::string last;
    const std::vector<std::string> lines = lines_of(name, *text);
    for (size_t i = 0; i < lines.size(); ++i) {
      std::smatch parts;
      const bool is_header = i == 0 && lines[i].starts_with("# pack-refs with: ") &&
                             lines[i].find_first_not_of(" -~#abcdefghijklmnopqrstuvwxyz:") == std::string::npos;
      if (is_header || (!last.empty() && std::regex_match(lines[i], peeled))) continue;
      // Git looks for a name by halving, so the order counts.
      if (!std::regex_match(lines[i], parts, entry) || parts[2].str() <= last) {
        return find(name, fmt::format("has a line {} that is no ref, or not in its place", i + 1));
      }
      last = parts[2];
      refs_[last] = parts[1];
    }
  }

  void check_refs(const fs::path& folder) {
    for (const fs::path& path : entries_of(folder)) {
      std::error_code ignored;
      if (type_of(path) == fs::file_type::directory && !fs::is_symlink(path, ignored)) {  // a link may lead round
        check_refs(path);
        continue;
      }
      if (path.extension() == ".lock") continue;
      const std::string name = path.lexically_relative(repository_).string();
      const auto text = text_of(name, false);  // `git gc` packs it meanwhile, perhaps
      if (!text) continue;
      if (text->size() != 41 || text->back() != '\n' || !is_hash(text->substr(0, 40))) {
        find(name, "is no ref");
      } else {
        refs_[name] = text->substr(0, 40);
      }
    }
  }

  void check_head() {
    const auto text = text_of("HEAD");
    if (!text) return;
    const std::string line = text->substr(0, text->find('\n'));
    const bool is_line = text->size() == line.size() + 1;
    const auto is_target = [&](const auto& ref) { return line == "ref: " + ref.first || line == ref.second; };
    if (is_line && line == fmt::format("ref: {}", kFirstBranch)) return;
    if (!is_line || std::none_of(refs_.begin(), refs_.end(), is_target)) find("HEAD", "leads nowhere");
  }

  const fs::path& repository_;
  std::map<std::string, std::string> refs_;  // hashes by name
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> damaged_files(const fs::path& repository) {
  std::vector<std::string> found = Files(repository).run();
  for (std::string& object : damaged_objects(repository)) found.push_back(std::move(object));
  return found;
}

}  // namespace sluice::store
