#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/attended_tiles.h"
#include "kernels/cuda/codegen/cluster_writer.h"
#include "kernels/cuda/codegen/kernel_writers.h"
#include "kernels/cuda/primitives/round_up.h"
#include "scripting/base/error.h"
#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int64_t kWarps = kAttenderThreads / 32;
constexpr const char* kName = "attend_in_cluster";

/// The kernel in which the blocks of a cluster score, select and attend (cluster_attending.cuh).
class ClusterAttendingWriter final : public ClusterWriter {
 public:
  ClusterAttendingWriter(const FlowLayout& layout, Writer& writer) : ClusterWriter(layout, writer) { leaves_newest_ = true; }

  ClusterAttendingKernel write();

 private:
  /// Where everything lies in the memory of a block. Scores and places in the pool are those of the whole row.
  ClusterAttendingKernel place_memory();
  /// Every block selects from the whole row, and lists what it selects. Meanwhile other warps recompute the newest page's fields.
  void write_selection();
  /// An approximate selection, by all warps, from the whole row as if no other block had it.
  void draw_from_row();
  /// Each block attends to an equal part of the tiles of what is selected.
  void write_attention();
};

ClusterAttendingKernel ClusterAttendingWriter::place_memory() {
  ClusterAttendingKernel kernel = open_kernel(kName);
  kernel.listed_bytes = kNumberBytes;
  writer_.write("uint32_t* const bits = reinterpret_cast<uint32_t*>(row_ids + a.held_pages);");
  writer_.write("int* const list = reinterpret_cast<int*>(bits + a.held_pages / 32);");
  place_rings("list + t.list_room");
  writer_.write("auto& selection = *reinterpret_cast<SelectionMemory<kThreads>*>(rings);");
  return kernel;
}

void ClusterAttendingWriter::write_selection() {
  fetch_kept_pages();
  writer_.write("__shared__ int selected_tokens;");
  const auto scored = std::find_if(selected_.begin(), selected_.end(), [&](NodeId id) { return is_scored(node(id).op); });
  writer_.write("share_pages(blocks, row_scores, row_ids, row.pages, first, count);");
  if (is_drawn(node(*scored))) {
    draw_from_row();
    write_refresh(false);
  } else {
    write_refresh(false);
    writer_.open("if (threadIdx.x >= kThreads - kChooserThreads)");
    select_whole_row("kChooserThreads", "Choosers", "list[rank] = row_ids[page];");
    writer_.line("if (threadIdx.x == kThreads - 1) selected_tokens = count_selected(row, chosen, {}, blocks.rank == 0);",
                 graph_.geometry.page);
    writer_.close();
  }
  publish_memory("pages were, or keys compared");
  writer_.write("const int tokens = selected_tokens;");
}

void ClusterAttendingWriter::draw_from_row() {
  writer_.open("const auto draw = [&](RowBlocks blocks, int first, int count, float* held)");
  writer_.write("uint32_t* const keys = reinterpret_cast<uint32_t*>(held);  // in place of the scores");
  begin_selection();
  writer_.write("__syncthreads();");
  select_from_row("count");
  writer_.write("return write_ids<kThreads>(pages, row_ids, list);");
  writer_.close(";");
  writer_.write("const int chosen = draw(RowBlocks(false), 0, row.pages, row_scores);");
  writer_.line("if (threadIdx.x == kThreads - 1) selected_tokens = count_selected(row, chosen, {}, blocks.rank == 0);",
               graph_.geometry.page);
}

void ClusterAttendingWriter::write_attention() {
  writer_.write("const int all_tiles = decode::tiles_of(tokens);");
  writer_.write("const int tile_begin = all_tiles * blocks.rank / blocks.count + warp;");
  writer_.write("const int tile_end = all_tiles * (blocks.rank + 1) / blocks.count;");
  writer_.write("uint8_t* const own_ring = rings + warp * Tile::kStages * Tile::kTileBytes;");
  writer_.write("const uint32_t filled = shared_address(value_barriers + warp * Tile::kStages);");
  writer_.write("int asked = tile_begin;");
  writer_.open("const auto copy = [&](int slot)");
  writer_.open("if (lane == 0 && asked < tile_end)");
  writer_.line(
      "copy_listed_tile<Tile, kBox, {}>(a, t, list, tokens, row.head, asked, shared_address(own_ring + slot * Tile::kTileBytes), "
      "filled + 8 * slot);",
      graph_.geometry.page);
  writer_.close();
  writer_.write("asked += kWarps;");
  writer_.close(";");
  writer_.write("#pragma unroll 1");
  writer_.write("for (int slot = 0; slot < Tile::kStages; ++slot) copy(slot);");
  writer_.write("ComingTiles<Tile> coming(tile_begin, own_ring, filled);");
  writer_.write("coming.attend(mine, tile_end, tokens, copy);");
  merge_attended("mine");
}

ClusterAttendingKernel ClusterAttendingWriter::write() {
  if (layout_.row_numbers != 1) throw InternalError("a kernel that attends keeps one score a page");  // by why_not_attending
  place_values(selected_);
  if (runs_.empty()) return {};
  ClusterAttendingKernel kernel = place_memory();
  begin_barriers();
  declare_share("true", std::max(4, scope_.tile_pages));  // share_pages takes fours
  writer_.write("float* const held = row_scores + first;");
  writer_.write("int* const ids = row_ids + first;");
  write_asking();
  wait_for_row("ask_first()");
  for (const Launch& launch : layout_.launches) write_row_tiles(launch);
  declare_attended();
  write_selection();
  write_attention();
  return kernel;
}

}  // namespace

int ClusterAttendingKernel::most_value_stages() const { return static_cast<int>(kValueBytes / value_bytes); }

int ClusterAttendingKernel::most_scored_tiles(int64_t pages, int blocks) const {
  const int64_t own = (pages / kOwnStep + blocks - 1) / blocks * kOwnStep;
  return static_cast<int>((own + scored_pages * kWarps - 1) / (scored_pages * kWarps));
}

int64_t ClusterAttendingKernel::summary_tiles(int64_t pages, int blocks) const {
  if (summary_pages == 0) return 0;
  return ((pages / kOwnStep + blocks - 1) / blocks) * (kOwnStep / summary_pages);
}

int ClusterAttendingKernel::most_summary_turns(int64_t pages, int blocks) const {
  return static_cast<int>((summary_tiles(pages, blocks) + kWarps - 1) / kWarps);
}

int64_t ClusterAttendingKernel::ring_bytes(const ClusterRings& rings) const {
  return kWarps * round_up(std::max(rings.value_stages * value_bytes, rings.stages * stage_bytes), int64_t{16});
}

// Of all that a writer of such a kernel may place.
int64_t ClusterAttendingKernel::shared_bytes(int64_t pages, int blocks, const ClusterRings& rings, int64_t room) const {
  static_assert(kWarps * kValueBytes >= kSelectionBytes);
  const int64_t own = (pages / kOwnStep + blocks - 1) / blocks;
  return fixed_bytes + page_bytes * pages + pages / 32 * static_cast<int64_t>(sizeof(uint32_t)) + listed_bytes * room +
         own_bytes * own + kSwizzleBytes + ring_bytes(rings) +
         std::min(summary_tiles(pages, blocks), int64_t{rings.summary_turns} * kWarps) * summary_bytes;
}

ClusterAttendingKernel write_cluster_attending_kernel(const FlowLayout& layout, Writer& writer) {
  return ClusterAttendingWriter(layout, writer).write();
}

}  // namespace sluice::cuda::codegen
