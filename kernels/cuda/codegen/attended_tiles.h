#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/codegen/layout.h"
#include "kernels/cuda/codegen/writer.h"

/// K and V of selected pages as the kernels that attend have them (decode_tile.cuh).
namespace sluice::cuda::codegen {

inline constexpr int64_t kValueBytes = 16 << 10;  // of a warp's ring (kUnderWay in decode_tile.cuh)
inline constexpr int64_t kSwizzleBytes = 1024;    // that rings are aligned to
inline constexpr int kOwnStep = 32;               // pages: each block of a cluster has a multiple of so many under a cover

/// Bytes of a tile: Shape::kTileBytes.
int64_t value_tile_bytes(const PageLayout& layout);

/// Numbers that a block of a cluster receives of the outputs that it merges: ClusterTarget::kNumbers.
int64_t received_numbers(const FlowGraph& graph);

/// Tokens of a tensor copy.
int box_tokens(const PageLayout& layout);
/// Arguments of decode::Shape.
std::string tile_type(const PageLayout& layout);
/// Whether decode attention has as many warps for this layout as these kernels, whose threads have registers for 128 channels.
bool has_tiles(const PageLayout& layout);
/// Opens a kernel that attends, by blocks of so many threads, and says what its tiles are.
void open_attending_kernel(Writer& writer, const Plan& plan, const std::string& name, const char* threads, int blocks);

}  // namespace sluice::cuda::codegen
