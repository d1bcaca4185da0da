#include "kernels/cuda/codegen/block_memory.h"

namespace sluice::cuda::codegen {

GeneratedKernel described(const std::string& name, int64_t numbers, int threads) {
  GeneratedKernel kernel;
  kernel.name = name;
  kernel.threads = threads;
  kernel.memory_bytes = numbers * static_cast<int64_t>(sizeof(float));
  kernel.global_memory = numbers > 4 * kMostSharedNumbers;
  return kernel;
}

void open_kernel(Writer& writer, const GeneratedKernel& kernel, int blocks) {
  writer.write("");
  writer.open("extern \"C\" __global__ void __launch_bounds__({}, {}) {}(const __grid_constant__ FlowArguments a)",
              kernel.threads, blocks, kernel.name);
}

void declare_memory(Writer& writer, const GeneratedKernel& kernel, int64_t fixed_numbers, int64_t tile_numbers) {
  if (kernel.memory_bytes == 0) return;
  if (kernel.global_memory) {
    writer.line("float* const memory = a.scratch + blockIdx.x * {}LL;", kernel.memory_bytes / sizeof(float));
  } else {
    writer.write("extern __shared__ __align__(16) float memory[];");
  }
  if (fixed_numbers > 0) writer.write("float* const fixed = memory;");
  if (tile_numbers > 0) writer.line("float* const tile = memory + {};", fixed_numbers);
}

}  // namespace sluice::cuda::codegen
