#include "kernels/cuda/codegen/attended_tiles.h"

#include <fmt/format.h>

#include "kernels/cuda/codegen/arguments.h"

namespace sluice::cuda::codegen {

int64_t value_tile_bytes(const PageLayout& layout) {
  constexpr int64_t kTileTokens = 16;
  return 2 * kTileTokens * layout.head_dim * static_cast<int64_t>(size_of(layout.kv));
}

int box_tokens(const PageLayout& layout) { return layout.page % 16 == 0 ? 16 : 8; }

int64_t received_numbers(const FlowGraph& graph) {
  return int64_t{graph.geometry.group} * graph.geometry.head_dim + 2 * kMostRowBlocks * (1 + graph.geometry.group);
}

std::string tile_type(const PageLayout& layout) {
  const char* type = layout.kv == DataType::kBF16 ? "kBF16" : layout.kv == DataType::kE4M3 ? "kE4M3" : "kE5M2";
  return fmt::format("DataType::{}, {}, {}", type, layout.head_dim, box_tokens(layout));
}

bool has_tiles(const PageLayout& layout) {
  const int64_t token_bytes = layout.head_dim * static_cast<int64_t>(size_of(layout.kv));
  return layout.kv != DataType::kF32 && token_bytes >= 128 && layout.head_dim <= 128;
}

void open_attending_kernel(Writer& writer, const Plan& plan, const std::string& name, const char* threads, int blocks) {
  const PageLayout& layout = plan.layout;
  writer.write("");
  writer.open(
      "extern \"C\" __global__ void __launch_bounds__({}, {}) {}(const __grid_constant__ AttentionArguments t, const "
      "__grid_constant__ FlowArguments a)",
      threads, blocks, name);
  writer.write("constexpr int kWarps = kAttenderThreads / 32;");
  writer.line("constexpr int kBox = {};", box_tokens(layout));
  writer.line("using Tile = decode::Shape<{}>;", tile_type(layout));
  writer.line("using AttendedRow = decode::WarpRow<{}, {}>;", tile_type(layout), plan.graph.geometry.group > 8);
  writer.write("const int lane = threadIdx.x % 32;");
}

}  // namespace sluice::cuda::codegen
