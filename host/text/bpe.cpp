#include "host/text/bpe.h"

#include <fmt/format.h>

#include <queue>

#include "scripting/base/error.h"
#include "scripting/base/unicode.h"

namespace sluice {
namespace {

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

/// A merge that could be made; the lowest rank first, then the leftmost.
struct Candidate {
  int32_t rank;
  int32_t left;
  int32_t left_id;
  int32_t right_id;

  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

}  // namespace

BytePairEncoder::BytePairEncoder(const JsonObject& model, const TokenIds& ids) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::string* text = model.find_text(key);
    if (text != nullptr && !text->empty())
      model.refuse(key, "only byte-level vocabularies without prefixes and suffixes are supported");
  }
  if (model.boolean("byte_fallback", false)) model.refuse("byte_fallback", "only byte-level vocabularies are supported");
  if (const std::string* unknown = model.find_text("unk_token")) {
    const auto found = ids.find(*unknown);
    if (found == ids.end()) model.refuse("unk_token", "it must be in the vocabulary");
    unknown_ = found->second;
  }
  whole_words_ = model.boolean("ignore_merges", false);
  const nlohmann::json& merges = model.array("merges");
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    add_merge(merges[rank], static_cast<int32_t>(rank), fmt::format("{}, merges[{}]", model.where(), rank), ids);
  }
}

void BytePairEncoder::add_merge(const nlohmann::json& entry, int32_t rank, const std::string& where, const TokenIds& ids) {
  std::string left;
  std::string right;
  if (entry.is_string()) {
    const auto& text = entry.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == std::string::npos)
      throw InputError(fmt::format("{}: {} is not two tokens with a space between them", where, excerpt(text)));
    left = text.substr(0, space);
    right = text.substr(space + 1);
  } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
    left = entry[0].get<std::string>();
    right = entry[1].get<std::string>();
  } else {
    throw InputError(fmt::format("{}: a merge must be \"left right\" or [\"left\", \"right\"]", where));
  }
  const auto id_of = [&](const std::string& token) {
    const auto found = ids.find(token);
    if (found == ids.end()) throw InputError(fmt::format("{}: the token {} is not in the vocabulary", where, excerpt(token)));
    return found->second;
  };
  merges_.try_emplace(key_of(id_of(left), id_of(right)), Merge{rank, id_of(left + right)});
}

const BytePairEncoder::Merge* BytePairEncoder::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<BytePairEncoder::Symbol> BytePairEncoder::symbols_of(std::string_view word, const TokenIds& ids) const {
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < word.size();) {
    const int length = std::max(1, utf8_length(word, at));
    const auto found = ids.find(std::string(word.substr(at, length)));
    const int32_t id = found == ids.end() ? unknown_ : found->second;
    at += length;
    if (id < 0) continue;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  }
  if (!symbols.empty()) symbols.back().next = -1;
  return symbols;
}

void BytePairEncoder::encode(std::string_view word, const TokenIds& ids, std::vector<int32_t>& out) const {
  if (whole_words_) {
    if (const auto found = ids.find(std::string(word)); found != ids.end()) {
      out.push_back(found->second);
      return;
    }
  }
  std::vector<Symbol> symbols = symbols_of(word, ids);
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const int32_t right_id = symbols[symbols[left].next].id;
    if (const Merge* merge = find_merge(symbols[left].id, right_id))
      candidates.push({merge->rank, left, symbols[left].id, right_id});
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.left];
    // Merges made since may have taken either side.
    if (left.id != best.left_id || left.next < 0 || symbols[left.next].id != best.right_id) continue;
    const Merge* merge = find_merge(best.left_id, best.right_id);
    Symbol& right = symbols[left.next];
    left.id = merge->id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace sluice
