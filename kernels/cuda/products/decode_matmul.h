#pragma once

#include <compare>
#include <map>

#include "kernels/cuda/primitives/tensor_map.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device.h"

namespace sluice::cuda {

namespace decode_matmul {
struct Arguments;
}
namespace sampling {
struct BestTokens;
}

/// How a weight is cut into what clusters of blocks compute. It follows from the weight's shape alone, so that a row of a product
/// has the same bits whatever else is in the batch.
struct WeightCut {
  int outputs = 0;  // that a cluster computes at a time: 64, 128 or 192
  int split = 1;    // blocks of a cluster, each of which takes a part of the inputs: 1, 2 or 4
};
WeightCut cut_weight(int64_t outputs, int64_t inputs, int multiprocessors);

/// Products of few rows with weights, made for reading the weights fast: bf16 by bf16, summed in float32. Weights stream
/// through shared memory and begin to do so before the kernel ahead has ended, since no kernel writes them. Every output is the
/// sum of `split` sums over inputs in their order, added in an order of their own: results do not depend on timing.
class DecodeMatmul {
 public:
  static constexpr int kMostRows = 64;
  /// Outputs of the boxes in which `map_matrix` is to cut weights.
  static constexpr int kBoxOutputs = 64;

  /// Whether `run` takes these: at most kMostRows rows of bf16, and everything aligned as tensor copies and stores want it.
  static bool takes(const Matrix& x, const Matrix& weight, const Matrix& out);
  /// out[rows, weight.rows] = x[rows, weight.columns] * weight^T; `map` is of the weight. What a shape needs is asked for once;
  /// after that nothing waits or allocates.
  void run(const Matrix& x, const Matrix& weight, const TensorMap& map, const Matrix& out, Stream stream);
  /// out[rows, weight.rows / 2], bf16: silu(gate) * up, where `run` with this weight gives gate, then up.
  void run_gated(const Matrix& x, const Matrix& weight, const Matrix& out, Stream stream);
  /// The greatest output of each row; `best` is device memory with room for `most_blocks()`.
  void run_best(const Matrix& x, const Matrix& weight, const TensorMap& map, sampling::BestTokens* best, Stream stream);
  /// Blocks of any product on this GPU, at most.
  static int most_blocks() { return 2 * multiprocessors(); }

 private:
  struct Shape {
    int padded_rows;  // 8, 16, 32 or 64
    int64_t outputs, inputs;
    auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 takes it for a pointer
  };
  struct Plan {
    WeightCut cut;
    int clusters = 0;
    int stages = 0;  // of the weight in shared memory
    int slots = 0;   // of x
    size_t shared_bytes = 0;
  };

  static Plan make_plan(const Shape& shape);
  const Plan& plan(const Shape& shape);
  /// `arguments` say what becomes of the sums.
  template <template <int> class End>
  void launch(const Matrix& x, const Matrix& weight, const TensorMap& map, decode_matmul::Arguments arguments, Stream stream);

  std::map<Shape, Plan> plans_;
};

}  // namespace sluice::cuda
