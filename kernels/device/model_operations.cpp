#include "kernels/device/model_operations.h"

#include <fmt/format.h>

#include "scripting/base/error.h"

namespace sluice {
namespace {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace

void ModelOperations::gated_matmul(Matrix x, const Weight& weight, Matrix gate_up, Matrix out) {
  matmul(x, weight, gate_up);
  silu_multiply(gate_up, out);
}

void ModelOperations::find_best(Matrix x, const Weight& head, Matrix logits, Picks& /*picks*/) { matmul(x, head, logits); }

void ModelOperations::pick_best(Matrix logits, std::span<const SampleRow> rows, Picks& picks) { sample(logits, rows, picks); }

void ModelOperations::run(std::span<const LayerPart> parts, const Activations& rows) {
  while (!parts.empty()) parts = parts.subspan(run_first(parts, rows));
}

size_t ModelOperations::run_first(std::span<const LayerPart> parts, const Activations& rows) {
  std::visit(Overloaded{
                 [&](const NormPart& part) { rms_norm(rows[part.in], *part.gain, part.epsilon, rows[part.out]); },
                 [&](const AddNormPart& part) {
                   add_rms_norm(rows[Activation::kResidual], rows[part.delta], *part.gain, part.epsilon, rows[part.out]);
                 },
                 [&](const ProductPart& part) { matmul(rows[part.in], *part.weight, rows[part.out]); },
                 [&](const GatedProductPart& part) {
                   gated_matmul(rows[part.in], *part.weight, rows[Activation::kGateUp], rows[part.out]);
                 },
                 [&](const AttentionPart& part) {
                   throw InternalError(fmt::format("the attention of layer {} stands among other parts", part.layer));
                 },
             },
             parts.front());
  return 1;
}

ObservedOperations::Operation ModelOperations::product(const char* name, const Weight& weight) {
  return {*this, [&] { return fmt::format("{} {} x {}", name, weight.rows(), weight.columns()); }};
}

}  // namespace sluice
