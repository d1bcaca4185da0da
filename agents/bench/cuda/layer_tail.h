#pragma once

#include <vector>

#include "agents/bench/bench.h"

namespace sluice {

/// A model, and numbers of a row in its layers.
struct LayerWidths {
  const char* model;
  int hidden;
  int queries;  // query_heads * head_dim
  int intermediate;
  int qkv;  // (query_heads + 2 * kv_heads) * head_dim
};

/// All that a decode step computes between two layers' attention (the parts between two AttentionPart) at several numbers of
/// rows: four products, two norms and SwiGLU, one by one, with the MLP as one kernel or all as one, whichever a device chooses;
/// the note has all ways that there are. Judged in float64.
std::vector<BenchRow> measure_layer_tails(const LayerWidths& widths, double seconds);

}  // namespace sluice
