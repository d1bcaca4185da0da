#pragma once

#include <string>

#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/codegen/writer.h"

/// Kernels whose blocks have memory for numbers: shared, or scratch where that is too small.
namespace sluice::cuda::codegen {

inline constexpr int64_t kMostSharedNumbers = 12 * 1024;  // of a block, so that several fit a multiprocessor

/// One whose blocks have so many numbers.
GeneratedKernel described(const std::string& name, int64_t numbers, int threads);
/// `blocks` of it are to share a multiprocessor.
void open_kernel(Writer& writer, const GeneratedKernel& kernel, int blocks);
/// Names `fixed`, and behind it `tile`, of so many numbers each; of the latter, a page.
void declare_memory(Writer& writer, const GeneratedKernel& kernel, int64_t fixed_numbers, int64_t tile_numbers);

}  // namespace sluice::cuda::codegen
