#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "scripting/base/json_object.h"

namespace sluice {

using TokenIds = std::unordered_map<std::string, int32_t>;

/// Byte-pair encoding (Sennrich et al. 2016): a word starts as characters, and the pair with the best rank is merged until
/// no pair has one.
class BytePairEncoder {
 public:
  /// `model` is "model" of `tokenizer.json`; `ids` its vocabulary. Throws InputError for merges of tokens that do not exist.
  BytePairEncoder(const JsonObject& model, const TokenIds& ids);

  /// Appends the ids of `word`. Characters outside the vocabulary become the unknown token, or nothing without one.
  void encode(std::string_view word, const TokenIds& ids, std::vector<int32_t>& out) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
  };

  void add_merge(const nlohmann::json& entry, int32_t rank, const std::string& where, const TokenIds& ids);
  const Merge* find_merge(int32_t left, int32_t right) const;
  std::vector<Symbol> symbols_of(std::string_view word, const TokenIds& ids) const;

  std::unordered_map<uint64_t, Merge> merges_;  // by left id and right id
  int32_t unknown_ = -1;
  bool whole_words_ = false;  // a word that is a token needs no merges
};

}  // namespace sluice
