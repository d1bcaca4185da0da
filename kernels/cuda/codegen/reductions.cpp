#include "kernels/cuda/codegen/reductions.h"

#include <fmt/format.h>

namespace sluice::cuda::codegen {

Reduction reduction_of(Op op) {
  switch (op) {
    case Op::kMax:
    case Op::kMaxInterleave:
      return {.op = "Max"};
    case Op::kMin:
    case Op::kMinInterleave:
      return {.op = "Min"};
    case Op::kL2Norm:
    case Op::kL2NormInterleave:
      return {.op = "Add", .squares = true};
    case Op::kMean:
    case Op::kMeanInterleave:
      return {.op = "Add", .mean = true};
    default:
      return {.op = "Add"};
  }
}

std::string Reduction::step(const std::string& sum, const std::string& x) const {
  if (squares) return fmt::format("{} += {} * {};", sum, x, x);
  return fmt::format("{} = {}::of({}, {});", sum, op, sum, x);
}

std::string Reduction::finished(const std::string& sum, const std::string& count) const {
  if (squares) return fmt::format("sqrtf({})", sum);
  if (mean) return fmt::format("{} / static_cast<float>({})", sum, count);
  return sum;
}

}  // namespace sluice::cuda::codegen
