#pragma once

namespace sluice::cuda::codegen {

/// Those who compute a value together, in the words of a kernel.
struct Crew {
  const char* thread;  // number of this one
  const char* threads;
  const char* barrier;
  const char* combine;  // over all of them
  const char* first;    // page
  const char* count;    // of pages
  const char* element;  // type that counts their elements
  const char* type;     // of crew.cuh
};

inline constexpr Crew kBlock{"threadIdx.x", "blockDim.x", "__syncthreads();", "combine_block",
                             "first",       "count",      "long long",        "WholeBlock"};
inline constexpr Crew kRowBlocks{"threadIdx.x", "blockDim.x", "__syncthreads();", "blocks.combine", "first",
                                 "count",       "int",        "WholeBlock"};
inline constexpr Crew kSelectors{"threadIdx.x", "kSelectorThreads", "Selectors::sync();", "", "first", "count",
                                 "int",         "Selectors"};
inline constexpr Crew kFieldWarps{"threadIdx.x", "kFieldThreads", "sync_field_threads();", "", "first", "count", "int", ""};
inline constexpr Crew kWarp{"lane", "32", "__syncwarp();", "", "tile_first", "tile_count", "int", ""};

}  // namespace sluice::cuda::codegen
