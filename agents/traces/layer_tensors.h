#pragma once

#include <string>
#include <vector>

namespace sluice {

/// What one layer's attention works on, as float32: a request of `tokens` tokens, of which each of the last `steps` was decoded
/// by a step of its own. Step i sees the first tokens - steps + 1 + i tokens.
struct LayerTensors {
  std::vector<float> keys;     // [tokens, kv_heads, dim]
  std::vector<float> values;   // [tokens, kv_heads, dim]
  std::vector<float> queries;  // [steps, query_heads, dim]
  int tokens = 0;
  int kv_heads = 0;
  int steps = 0;
  int query_heads = 0;
  int dim = 0;

  int group() const { return query_heads / kv_heads; }
  /// Tokens that are there before the first step.
  int tokens_before() const { return tokens - steps; }
  /// Tokens that a step sees.
  int tokens_at(int step) const { return tokens_before() + 1 + step; }
};

/// Reads the tensors k, v and q of a safetensors file, of types F32, F16 or BF16. Throws InputError naming file and tensor.
LayerTensors read_layer_tensors(const std::string& path);

/// Writes the same as BF16, to the nearest, ties to even. Throws InputError if the file cannot be written.
void write_layer_tensors(const std::string& path, const LayerTensors& tensors);

}  // namespace sluice
