#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "kernels/device/matrix.h"

namespace sluice {

/// What a transformer's layers hand to each other in a pass; each has a row for each row of the pass.
enum class Activation : uint8_t {
  kResidual,   // [hidden] float32
  kDelta,      // [hidden] what is to be added to the residual
  kNormed,     // [hidden]
  kQkv,        // [(query_heads + 2 kv_heads) * head_dim]
  kAttended,   // [query_heads * head_dim]
  kGateUp,     // [2 * intermediate] scratch of a gated product
  kActivated,  // [intermediate]
};
inline constexpr size_t kActivations = 7;

/// The matrices of one pass.
struct Activations {
  std::array<Matrix, kActivations> matrices;

  Matrix& operator[](Activation which) { return matrices.at(static_cast<size_t>(which)); }
  const Matrix& operator[](Activation which) const { return matrices.at(static_cast<size_t>(which)); }
};

/// out = rms_norm(in).
struct NormPart {
  const Weight* gain = nullptr;  // [1, columns]
  float epsilon = 0;
  Activation in = Activation::kResidual;
  Activation out = Activation::kNormed;

  bool operator==(const NormPart&) const = default;
};

/// residual += delta; out = rms_norm(residual).
struct AddNormPart {
  const Weight* gain = nullptr;  // [1, hidden]
  float epsilon = 0;
  Activation delta = Activation::kDelta;
  Activation out = Activation::kNormed;

  bool operator==(const AddNormPart&) const = default;
};

/// out = in * weight^T.
struct ProductPart {
  const Weight* weight = nullptr;
  Activation in = Activation::kNormed;
  Activation out = Activation::kDelta;

  bool operator==(const ProductPart&) const = default;
};

/// out = silu(gate) * up, where in * weight^T is gate, then up; kGateUp may be left as it was.
struct GatedProductPart {
  const Weight* weight = nullptr;  // [2 * intermediate, columns]
  Activation in = Activation::kNormed;
  Activation out = Activation::kActivated;

  bool operator==(const GatedProductPart&) const = default;
};

/// q, k and v of kQkv: k and v are appended to the cache of `layer`, and what its rows attend to becomes kAttended.
struct AttentionPart {
  int layer = 0;
  const Weight* query_gain = nullptr;  // [1, head_dim] or null: no norm
  const Weight* key_gain = nullptr;    // the same
};

using LayerPart = std::variant<NormPart, AddNormPart, ProductPart, GatedProductPart, AttentionPart>;

/// What the layers of a model compute, in order. A device may do neighbours as one: it looks for the parts that its kernels join,
/// so that a part between two others (a router, a sum over devices) only ends what is joined.
using LayerProgram = std::vector<LayerPart>;

/// The parts from the first that is not attention up to the next attention, or the end.
std::span<const LayerPart> parts_before_attention(std::span<const LayerPart> parts);

}  // namespace sluice
