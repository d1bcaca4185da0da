#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// The words of a model that speaks the mini dialect (docs/TASKS.md), by kind. One word is one token.
struct MiniVocabulary {
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::vector<std::string> fillers;
};

/// Parses vocabulary.json; `name` is used in messages. Throws InputError for anything but three lists of enough distinct
/// words without spaces.
MiniVocabulary parse_vocabulary(std::string_view json, const std::string& name);

/// Reads `model`/vocabulary.json; nothing if it has none, or is a file (then the model is asked in English).
std::optional<MiniVocabulary> load_vocabulary(const std::string& model);

}  // namespace sluice
