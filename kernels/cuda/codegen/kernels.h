#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/codegen/layout.h"

namespace sluice::cuda::codegen {

/// One generated kernel and how to launch it.
struct GeneratedKernel {
  std::string name;
  int threads = 256;
  int64_t memory_bytes = 0;  // of a block: dynamic shared memory, or, if that is more than a block has, global scratch
  bool global_memory = false;
  bool by_row = false;  // a block for each row, else for each chunk of pages of each row
};

/// CUDA source of a flow, without includes.
struct GeneratedSource {
  std::string text;
  GeneratedKernel refresh;             // name empty: there are no fields
  std::vector<GeneratedKernel> index;  // in order; one for each of FlowLayout::launches
};

/// Writes the kernels of a plan (Vortex, sections 10 and 11): one that recomputes the fields of pages, and for each launch of the
/// index stage one that keeps everything but what later launches read in registers and shared memory. Reductions over channels of
/// what blocks hold are read in 16-byte pieces by as many lanes as a page has pieces.
GeneratedSource generate(const FlowLayout& layout);

}  // namespace sluice::cuda::codegen
