#include "agents/bench/bench.h"
#include "scripting/base/error.h"

namespace sluice {

BenchReport run_patterns_bench(const BenchOptions& options) {
#if SLUICE_CUDA
  if (options.device == "cuda") return run_cuda_patterns_bench(options);
#endif
  throw InputError("the benchmark patterns is for GPUs alone",
                   "where there is one: --device cuda; prompts on a CPU: sluice bench prefill");
}

}  // namespace sluice
