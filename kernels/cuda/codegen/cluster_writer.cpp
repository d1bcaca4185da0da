#include "kernels/cuda/codegen/cluster_writer.h"

#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/attended_tiles.h"
#include "kernels/cuda/codegen/kernel_writers.h"
#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {

ClusterAttendingKernel ClusterWriter::open_kernel(const char* name, int most_blocks) {
  open_attending_kernel(writer_, layout_.plan, name, "kAttenderThreads", most_blocks);
  writer_.write("constexpr int kThreads = kAttenderThreads;");
  writer_.write("const int warp = threadIdx.x / 32;");
  const int64_t numbers = received_numbers(graph_);
  ClusterAttendingKernel kernel{.name = name,
                                .fixed_bytes = place_fixed_memory(kAttenderThreads / 32),
                                .page_bytes = 2 * kNumberBytes,  // a score and a place in the pool
                                .stage_bytes = bytes_in_stage(),
                                .scored_pages = scope_.tile_pages,
                                .value_bytes = value_tile_bytes(layout_.plan.layout),
                                .most_blocks = most_blocks};
  for (const CopiedRun& run : runs_) kernel.scored_bytes += int64_t{run.bytes} * run.lines;
  writer_.line("float* const received = row_memory + {};", kernel.fixed_bytes / kNumberBytes);
  kernel.fixed_bytes += numbers * kNumberBytes;
  writer_.line("using Target = ClusterTarget<{}, {}>;", graph_.geometry.group, graph_.geometry.head_dim);
  writer_.line("static_assert(Target::kNumbers == {});", numbers);
  writer_.write("float* const row_scores = received + Target::kNumbers;");
  writer_.write("int* const row_ids = reinterpret_cast<int*>(row_scores + a.held_pages);");
  return kernel;
}

void ClusterWriter::place_rings(std::string_view end) {
  writer_.line("uint8_t* rings = reinterpret_cast<uint8_t*>({});", end);
  writer_.line("rings += ({0} - shared_address(rings) % {0}) % {0};", kSwizzleBytes);
  writer_.write("float* const merge = reinterpret_cast<float*>(rings);");
  writer_.write("__shared__ decode::WarpParts<Tile> parts;");
  writer_.write("__shared__ uint64_t value_barriers[kWarps * Tile::kStages];");
  writer_.write("static_assert(Tile::kWarps == kWarps && kFieldThreads + kChooserThreads <= kThreads);");
  writer_.line("static_assert(Tile::kStages * Tile::kTileBytes <= {});", kValueBytes);
  writer_.write("static_assert(Tile::kMergeRows * Tile::kMergeStride * sizeof(float) <= Tile::kTileBytes);");
}

void ClusterWriter::begin_barriers() {
  writer_.write("if (threadIdx.x == 0) prefetch_map(t.map);");
  writer_.write("if (lane < Tile::kStages) barrier_init(shared_address(value_barriers + warp * Tile::kStages + lane), 1);");
  declare_ring("rings");
}

void ClusterWriter::wait_for_row(std::string_view ask) {
  writer_.line("if (a.behind_refresh) {};", ask);
  writer_.write("if (scored < count && threadIdx.x == 0) ids[scored] = newest_page;");
  write_prefetch();
  writer_.write("wait_for_earlier_kernels();");
  writer_.line("if (!a.behind_refresh) {};", ask);
  write_fixed();
  write_queries();
  writer_.write("blocks.wait_for_others();");
  writer_.write("let_next_kernel_start();");
}

void ClusterWriter::declare_attended() {
  writer_.line("AttendedRow mine(t.query + row.sequence * t.query_stride + row.head * {}, {}, t.scale);",
               graph_.geometry.group * graph_.geometry.head_dim, graph_.geometry.group);
}

void ClusterWriter::declare_selecting(NodeId scored) {
  write_budget(scored);
  const auto [first, last] = kept_pages();
  const int begin = node(scored).attributes.first;
  writer_.line("const Selecting what{{{}, {}, {}, {} + middle, budget}};", first, last, begin, begin);
}

void ClusterWriter::select_whole_row(std::string_view threads, std::string_view crew, const std::string& take) {
  declare_selecting(*std::find_if(selected_.begin(), selected_.end(), [&](NodeId id) { return is_scored(node(id).op); }));
  writer_.line("__shared__ HeldRow<{}, {}>::Told told;", threads, crew);
  writer_.line("HeldRow<{}, {}> held_row(row_scores, row.pages, what, told);", threads, crew);
  writer_.open("const int chosen = held_row.select([&](int rank, int page)");
  writer_.write(take);
  writer_.close(");");
}

void ClusterWriter::release_memory(std::string_view where) {
  writer_.line("// The copy engine writes where {}, behind the next barrier.", where);
  writer_.write("asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");");
}

void ClusterWriter::publish_memory(std::string_view where) {
  release_memory(where);
  writer_.write("__syncthreads();");
}

void ClusterWriter::merge_attended(std::string_view attended) {
  writer_.write("__syncthreads();  // warps merge where tiles were");
  writer_.line("const Target target(blocks, received, t.out + row.index * {}LL);",
               graph_.geometry.group * graph_.geometry.head_dim);
  writer_.line("decode::merge_warps<WholeBlock, Tile::kMergeRows>({}, {}, target, parts, merge, threadIdx.x);", attended,
               graph_.geometry.group);
  writer_.write("target.finish();");
  writer_.close();
}

}  // namespace sluice::cuda::codegen
