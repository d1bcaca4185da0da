#pragma once

#include <optional>
#include <span>

#include "kernels/cuda/products/matmul.h"
#include "kernels/device/layer_program.h"

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

  /// The weights of a layer behind its attention, those that the next layer begins with (null: it is the last), and their rows.
  struct Chain {
    const Weight* output = nullptr;     // [hidden, query_heads * head_dim]
    const Weight* mlp_gain = nullptr;   // [1, hidden]
    const Weight* gate_up = nullptr;    // [2 * intermediate, hidden]
    const Weight* down = nullptr;       // [hidden, intermediate]
    const Weight* next_gain = nullptr;  // [1, hidden]
    const Weight* next_qkv = nullptr;   // [(query_heads + 2 * kv_heads) * head_dim, hidden]
    float epsilon = 0;                  // of both norms
    Matrix attended;
    Matrix residual;   // float32
    Matrix delta;      // what is still to be added to the residual, of the last layer; else left as it was
    Matrix normed;     // scratch
    Matrix activated;  // scratch
    Matrix qkv;        // of the next layer
    size_t parts = 0;  // that it does
  };
  /// The chain that `parts` begin with; nothing if they begin with another one.
  static std::optional<Chain> find(std::span<const LayerPart> parts, const Activations& rows);

  LayerChain();

  /// Whether all blocks of the kernel can be on this GPU at once, as they must.
  bool fits() const { return fits_; }
  /// Whether `run` takes these: at most kMostRows rows, all of bf16 but a float32 residual, and weights as tensor copies want
  /// them.
  static bool takes(const Chain& chain);
  /// Whether `run` is faster than the operations one by one, going by what was measured with Qwen3 0.6B, 1.7B and 8B on an H200.
  static bool pays(const Chain& chain);
  /// Does the chain's parts, by a `cooperative` launch or one like any other. Throws InternalError for what it does not take, for
  /// sizes that do not fit each other, and if the launch is refused.
  void run(const Chain& chain, bool cooperative, Stream stream);

 private:
  DeviceMemory squares_;   // [kMostRows, hidden / 16] parts of sums of squares of rows
  DeviceMemory counters_;  // tiles that are done, by product, and blocks; zero between kernels
  bool fits_ = false;
};

}  // namespace sluice::cuda
