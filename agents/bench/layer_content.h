#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scripting/graph/types.h"

namespace sluice {

/// Sequences of one length that decode together.
struct LayerShape {
  int sequences = 1;
  int tokens = 8192;  // of each sequence, the new one counted in; a multiple of 128, the largest page
  int kv_heads = 1;
  int group = 1;
  int dim = 64;
  int layers = 3;  // with pages of their own; calls rotate through them, past the caches
  int calls = 36;  // of the layer in one pass, as many as a model has layers

  int query_heads() const { return kv_heads * group; }
  /// "batch 8, tokens 8192, kv_heads 2, group 4, dim 64, bf16"
  std::string text(DataType kv) const;
};

// What the sequences hold is a formula, so that a judge can compute it without reading the pool. All numbers are exact in every
// type of activations and of KV.

inline constexpr int kLargestPage = 128;

enum class Content : uint8_t { kKey, kValue };

/// K or V of tokens [first, first + tokens) of the first sequence, [layers, tokens, kv_heads, dim]. The others hold the same
/// tokens, each from another place on.
std::vector<float> common_content(const LayerShape& shape, Content content, int first, int tokens);
/// The place of the first sequence that another one begins with: a multiple of the largest page.
int shift_of(const LayerShape& shape, int sequence);

/// The new token's: [dim]. Its key lies along one head's query of set 0, so that this head attends mostly to this token.
std::vector<float> new_content(const LayerShape& shape, Content content, int sequence, int kv_head);
/// K or V of all tokens of one sequence, KV head and layer, the new one last: [tokens, dim].
std::vector<float> row_content(const LayerShape& shape, Content content, int layer, int sequence, int kv_head);

/// The queries of a sequence in one of several sets: [query_heads, dim].
std::vector<float> queries_of(const LayerShape& shape, int64_t set, int sequence);

}  // namespace sluice
