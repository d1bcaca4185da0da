#include "agents/tasks/vocabulary.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "scripting/base/mapped_file.h"

namespace sluice {
namespace {

// The largest documents of docs/TASKS.md need this many different words of a kind.
constexpr size_t kLeastKeys = 361;  // 90 chains of four variables, and one to spare
constexpr size_t kLeastValues = 10;
constexpr size_t kLeastFillers = 50;

std::vector<std::string> words_of(const JsonObject& root, const char* kind, size_t least, std::unordered_set<std::string>& seen) {
  const std::string& name = root.where();
  std::vector<std::string> words;
  for (const auto& entry : root.array(kind)) {
    if (!entry.is_string()) {
      throw InputError(fmt::format("{}: \"{}\" holds a {}, which is not a word", name, kind, entry.type_name()));
    }
    std::string word = entry.get<std::string>();
    if (word.empty() || word.find_first_of(" \t\r\n") != std::string::npos) {
      throw InputError(fmt::format("{}: \"{}\" holds \"{:.60}\", which is not one word", name, kind, word));
    }
    if (!seen.insert(word).second) throw InputError(fmt::format("{}: the word \"{:.60}\" is listed twice", name, word));
    words.push_back(std::move(word));
  }
  if (words.size() < least) {
    throw InputError(fmt::format("{}: \"{}\" has {} words, the tasks need {}", name, kind, words.size(), least));
  }
  return words;
}

}  // namespace

MiniVocabulary parse_vocabulary(std::string_view json, const std::string& name) {
  const nlohmann::json document = parse_json(json, name);
  const JsonObject root(document, name);
  std::unordered_set<std::string> seen;
  MiniVocabulary vocabulary;
  vocabulary.keys = words_of(root, "key", kLeastKeys, seen);
  vocabulary.values = words_of(root, "value", kLeastValues, seen);
  vocabulary.fillers = words_of(root, "filler", kLeastFillers, seen);
  return vocabulary;
}

std::optional<MiniVocabulary> load_vocabulary(const std::string& model) {
  const std::filesystem::path path = std::filesystem::path(model) / "vocabulary.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !std::filesystem::is_symlink(path, error)) return std::nullopt;
  return parse_vocabulary(read_text_file(path.string()), path.string());
}

}  // namespace sluice
