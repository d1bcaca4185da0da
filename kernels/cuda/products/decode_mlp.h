#pragma once

#include <map>
#include <optional>

#include "kernels/cuda/products/matmul.h"

namespace sluice::cuda {

/// The products of a transformer layer's MLP for few rows as one kernel: gate and up with SwiGLU, cut as DecodeMatmul cuts them,
/// then down. What is gained is that weights do not stop coming between the two: the ring that those of gate and up stream
/// through takes those of down as soon as it has room, while other blocks still multiply, and is full of them when rows are
/// there.
///
/// Blocks wait for rows that others have made, so all must be on the GPU at once (see Gang). Of down a block has 64 outputs and a
/// part of the inputs, whose weights it does not ask for while others wait for gate and up, but for a few. Whoever reads the
/// parts' sums adds them up in their order: results do not depend on timing.
class DecodeMlp {
 public:
  DecodeMlp();

  /// Whether `run` takes these: at most DecodeMatmul::kMostRows rows of bf16, everything aligned as tensor copies and stores want
  /// it, weights whose tiles all find a place at once, and down of a multiple of 64 outputs. What a shape needs is asked for
  /// once; after that nothing waits or allocates.
  bool takes(const Matrix& x, const Matrix& gate_up, const Matrix& down, const Matrix& activated) const;
  /// Whether, of what it takes, `run` is faster than products one by one: down is cut into about as many pieces as there are
  /// blocks, and the weights do not take so long to read that a pause between products matters little (1.7B of Qwen3, not 8B).
  bool pays(const Matrix& x, const Matrix& down) const;
  /// activated[rows, intermediate] = silu(gate) * up, where x * gate_up^T is gate, then up; returns parts of activated * down^T,
  /// [rows, down.rows], valid until the next call. `down_map` is of down. The launch is `cooperative` or like any other. Throws
  /// InternalError for what it does not take, and if the launch is refused.
  SumParts run(const Matrix& x, const Matrix& gate_up, const Matrix& down, const TensorMap& down_map, const Matrix& activated,
               bool cooperative, Stream stream);

 private:
  struct Shape {
    int padded_rows;  // 8, 16, 32 or 64
    int64_t hidden, intermediate;
    auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 takes it for a pointer
  };
  struct Plan {
    WeightCut cut;  // of gate and up
    int clusters = 0;
    int stages = 0;  // of the ring
    int slots = 0;   // of x
    int groups = 0;  // of activated rows, in place of x and of sums
    int parts = 0;   // of down's inputs
    size_t shared_bytes = 0;
  };

  static std::optional<Plan> make_plan(const Shape& shape);
  const std::optional<Plan>& plan(const Shape& shape) const;

  DeviceMemory sums_;                                   // of all parts
  DeviceMemory counters_;                               // as `Down` has them; zero between kernels
  mutable std::map<Shape, std::optional<Plan>> plans_;  // of shapes that have been asked for
};

}  // namespace sluice::cuda
