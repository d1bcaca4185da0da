#pragma once

#include <span>
#include <vector>

#include "agents/traces/layer_tensors.h"

namespace sluice {

/// What dense attention does in every step of a layer, computed on the host: what flows are held against.
class DenseSteps {
 public:
  /// `threads`: how many work at most; 0: as many as the processor has. Throws InputError for tensors with numbers that are not
  /// finite, or so large that attention is not.
  DenseSteps(const LayerTensors& tensors, int threads);

  /// Shares of the step's attention by page of `page` tokens, 8 to 128: means over the query heads of the KV head. Together 1.
  std::vector<double> masses(int step, int kv_head, int page) const;
  /// [dim]
  std::span<const float> output(int step, int query_head) const;

 private:
  /// `weights`: scratch, [tokens].
  void attend(const LayerTensors& tensors, int step, std::span<float> weights);

  int group_;
  int dim_;
  int query_heads_;
  int kv_heads_;
  size_t parts_;                // of a request: pages of the smallest size
  std::vector<double> masses_;  // [steps, kv_heads, parts]
  std::vector<float> outputs_;  // [steps, query_heads, dim]
};

/// The largest share of attention that `count` pages can have.
double best_mass(std::vector<double> masses, size_t count);

/// What dense attention gives each token that a step sees, mean over the query heads of a KV head.
std::vector<double> token_masses(const LayerTensors& tensors, int step, int kv_head);

}  // namespace sluice
