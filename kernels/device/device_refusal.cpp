#include "kernels/device/device_refusal.h"

#include "kernels/cpu/flow/flow.h"
#include "kernels/cpu/runtime/pool.h"
#include "kernels/cuda/codegen/refusal.h"
#include "scripting/base/error.h"

namespace sluice {

void require_device_takes(const Plan& plan, const std::string& device) {
  if (device == "cuda") {
    if (const auto refusal = cuda::codegen::refusal_of(plan)) throw FlowError(plan.graph.where, refusal->what, refusal->hint);
    return;
  }
  try {
    cpu::require_kept(plan.layout);
  } catch (const InputError& error) {
    throw FlowError(plan.graph.where, error.what(), error.hint());
  }
}

}  // namespace sluice
