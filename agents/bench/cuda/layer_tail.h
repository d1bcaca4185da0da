#pragma once

#include <vector>

#include "agents/bench/bench.h"

namespace sluice {

/// Numbers of a row in a transformer's layer.
struct LayerWidths {
  const char* model;
  int hidden;
  int queries;
  int intermediate;
  int qkv;
};

/// All that a decode step computes between two layers' attention (Device::finish_layer) at several numbers of rows: four
/// products, two norms and SwiGLU, as one kernel or one by one, whichever a device chooses; the note has the other, if there is
/// one. A row is judged in float64.
std::vector<BenchRow> measure_layer_tails(const LayerWidths& widths, double seconds);

}  // namespace sluice
