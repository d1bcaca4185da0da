#include "tests/tasks/fixtures.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <stdexcept>

namespace sluice::test {
namespace {

constexpr size_t kPiece = 6;  // characters of a word that make a token

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

}  // namespace

std::vector<int32_t> CountingTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text[i] == ' ' && end < text.size() && is_word(text[end])) ++end;  // a space belongs to the word after it
    if (is_word(text[end - 1])) {
      while (end < text.size() && is_word(text[end]) && end - i < kPiece) ++end;
    }
    const std::string piece(text.substr(i, end - i));
    const auto [found, added] = ids_.emplace(piece, static_cast<int32_t>(texts_.size()));
    if (added) texts_.push_back(piece);
    tokens.push_back(found->second);
    i = end;
  }
  return tokens;
}

std::string CountingTokenizer::decode(std::span<const int32_t> ids, bool) const {
  std::string text;
  for (const int32_t id : ids) text += texts_.at(id);
  return text;
}

int32_t CountingTokenizer::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

const MiniVocabulary& mini_vocabulary() {
  static const MiniVocabulary vocabulary = [] {
    auto loaded = load_vocabulary(SLUICE_SOURCE_DIR "/host/models/mini");
    if (!loaded) throw std::runtime_error("host/models/mini/vocabulary.json is missing");
    return *std::move(loaded);
  }();
  return vocabulary;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace sluice::test
