#include "agents/tasks/vocabulary.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "scripting/graph/error.h"

namespace sluice {
namespace {

// The largest documents of docs/TASKS.md need this many different words of a kind.
constexpr size_t kLeastKeys = 361;  // 90 chains of four variables, and one to spare
constexpr size_t kLeastValues = 10;
constexpr size_t kLeastFillers = 50;

std::vector<std::string> words_of(const nlohmann::json& root, const char* kind, size_t least, const std::string& name,
                                  std::unordered_set<std::string>& seen) {
  const auto found = root.find(kind);
  if (found == root.end() || !found->is_array()) throw InputError(fmt::format("{}: \"{}\" is not a list of words", name, kind));
  std::vector<std::string> words;
  for (const auto& entry : *found) {
    if (!entry.is_string()) throw InputError(fmt::format("{}: \"{}\" holds {}, which is not a word", name, kind, entry.dump()));
    std::string word = entry.get<std::string>();
    if (word.empty() || word.find_first_of(" \t\r\n") != std::string::npos) {
      throw InputError(fmt::format("{}: \"{}\" holds \"{}\", which is not one word", name, kind, word));
    }
    if (!seen.insert(word).second) throw InputError(fmt::format("{}: the word \"{}\" is listed twice", name, word));
    words.push_back(std::move(word));
  }
  if (words.size() < least) {
    throw InputError(fmt::format("{}: \"{}\" has {} words, the tasks need {}", name, kind, words.size(), least));
  }
  return words;
}

}  // namespace

MiniVocabulary parse_vocabulary(std::string_view json, const std::string& name) {
  nlohmann::json root;
  try {
    root = nlohmann::json::parse(json);
  } catch (const nlohmann::json::parse_error& error) {
    throw InputError(fmt::format("{}: not JSON (byte {})", name, error.byte));
  }
  if (!root.is_object()) throw InputError(fmt::format("{}: not a JSON object", name));
  std::unordered_set<std::string> seen;
  MiniVocabulary vocabulary;
  vocabulary.keys = words_of(root, "key", kLeastKeys, name, seen);
  vocabulary.values = words_of(root, "value", kLeastValues, name, seen);
  vocabulary.fillers = words_of(root, "filler", kLeastFillers, name, seen);
  return vocabulary;
}

std::optional<MiniVocabulary> load_vocabulary(const std::string& model_directory) {
  const std::filesystem::path path = std::filesystem::path(model_directory) / "vocabulary.json";
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  return parse_vocabulary(text, path.string());
}

}  // namespace sluice
