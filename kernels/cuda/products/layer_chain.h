#pragma once

#include "kernels/cuda/products/matmul.h"

namespace sluice::cuda {

/// The products behind a transformer layer's attention, with all that lies between them, as one kernel for few rows: output, gate
/// and up, down, and q, k and v of the next layer. What bounds them is reading the weights, which does not stop here: every
/// multiprocessor has a ring in shared memory that weights stream through in the order of their use, whether or not the product
/// before has ended everywhere, since no kernel writes them.
///
/// A product's outputs are cut into tiles of 16, which blocks take in turn. The warps of a block share the inputs of a tile, and
/// their sums are added in an order that follows from the weight's shape. What comes behind a product is done to its sums:
/// SwiGLU, or adding to the residual stream with all of an RMS norm but the factor of each row, which no block knows yet. As it
/// is the same for all inputs, the product that takes these rows multiplies its sums by it.
///
/// Blocks wait for each other between products, so all must be on the GPU at once (see Gang): there is one for each
/// multiprocessor. The factors, and all that is added up, are found in a fixed order: results do not depend on timing.
class LayerChain {
 public:
  static constexpr int kMostRows = 8;

  LayerChain();

  /// Whether all blocks of the kernel can be on this GPU at once, as they must.
  bool fits() const { return fits_; }
  /// Whether `run` takes these: at most kMostRows rows, all of bf16 but a float32 residual, and weights as tensor copies want
  /// them.
  static bool takes(const Device::LayerTail& tail, const Device::TailRows& rows);
  /// Whether `run` is faster than the operations one by one, going by what was measured with Qwen3 0.6B, 1.7B and 8B on an H200.
  static bool pays(const Device::LayerTail& tail, const Device::TailRows& rows);
  /// What Device::finish_layer says, by a `cooperative` launch or one like any other. Throws InternalError for what it does not
  /// take, for sizes that do not fit each other, and if the launch is refused.
  void run(const Device::LayerTail& tail, const Device::TailRows& rows, bool cooperative, Stream stream);

 private:
  DeviceMemory squares_;   // [kMostRows, hidden / 16] parts of sums of squares of rows
  DeviceMemory counters_;  // tiles that are done, by product, and blocks; zero between kernels
  bool fits_ = false;
};

}  // namespace sluice::cuda
