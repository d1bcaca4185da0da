#include "agents/orchestrator/worker_gpus.h"

#include <fmt/format.h>

#include "scripting/base/error.h"

namespace sluice {

std::vector<std::string> gpus_of_workers(const std::vector<std::string>& gpus, int workers) {
  if (gpus.empty()) throw InputError("no GPU is visible", "--device cpu, or look at CUDA_VISIBLE_DEVICES and the driver");
  const size_t wanted = workers > 0 ? static_cast<size_t>(workers) : gpus.size();
  if (wanted > gpus.size()) {
    throw InputError(fmt::format("{} workers, and {}: two that measure on one GPU would disturb each other", workers,
                                 gpus.size() == 1 ? "one GPU is visible" : fmt::format("{} GPUs are visible", gpus.size())),
                     fmt::format("--workers {}, or show the server more GPUs by CUDA_VISIBLE_DEVICES", gpus.size()));
  }
  return {gpus.rbegin(), gpus.rbegin() + static_cast<ptrdiff_t>(wanted)};
}

}  // namespace sluice
