#include <algorithm>
#include <set>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/held_row_writer.h"
#include "kernels/cuda/codegen/kernel_writers.h"
#include "kernels/cuda/codegen/reductions.h"
#include "kernels/cuda/codegen/selection_plan.h"
#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {
namespace {

/// Whether computing `id` reads channels of blocks one by one.
bool reads_channels(const FlowLayout& layout, NodeId id, bool top = true) {
  const Node& node = layout.node(id);
  if (is_block_part(node.op)) return has_axis(node.shape, Axis::kDim);
  const auto at = static_cast<size_t>(id);
  if (!top && (layout.kept[at] || layout.slots[at].stored)) return false;
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](NodeId input) { return reads_channels(layout, input, false); });
}

/// The kernel that keeps rows on chip.
class RowWriter final : public HeldRowWriter {
 public:
  RowWriter(const FlowLayout& layout, Writer& writer) : HeldRowWriter(layout, writer, kRowBlocks) {}

  RowKernel write();

 private:
  /// Where everything lies in the memory of a block.
  RowKernel place_row();
  RowKernel open_row();
  void write_selection();
  /// What attention reads beside the list goes to where scores do.
  void write_attended();
};

RowKernel RowWriter::place_row() {
  RowKernel kernel{.name = "index_row", .fixed_bytes = place_fixed_memory(kRowThreads / 32), .stage_bytes = bytes_in_stage()};
  for (const CopiedRun& run : runs_) kernel.read_bytes += int64_t{run.bytes} * run.lines;
  // Of each page what is stored, its order key, and its place in the pool if that is read while tiles are copied.
  kernel.page_bytes = (layout_.held_numbers + (runs_.empty() ? 1 : 2)) * static_cast<int64_t>(sizeof(float));
  writer_.line("float* const held = row_memory + {};", kernel.fixed_bytes / 4);
  writer_.line("uint32_t* const keys = reinterpret_cast<uint32_t*>(held + {} * a.held_pages);", layout_.held_numbers);
  writer_.line("int* const ids = reinterpret_cast<int*>(held + {} * a.held_pages);", layout_.held_numbers + 1);
  writer_.line("uint32_t* const bits = reinterpret_cast<uint32_t*>(held + {} * a.held_pages);", kernel.page_bytes / 4);
  writer_.write("auto& selection = *reinterpret_cast<SelectionMemory<kThreads>*>(bits + a.held_pages / 32);");
  return kernel;
}

RowKernel RowWriter::open_row() {
  writer_.write("");
  writer_.write("template <int kThreads>");
  writer_.open("__device__ __forceinline__ void hold_row(const FlowArguments& a)");
  writer_.write("constexpr int kWarps = kThreads / 32;");
  writer_.write("const int lane = threadIdx.x % 32;");
  writer_.write("const int warp = threadIdx.x / 32;");
  RowKernel kernel = place_row();
  if (kernel.stage_bytes > 0) declare_ring("&selection");
  declare_share("kThreads == kRowThreads", 32);
  return kernel;
}

void RowWriter::write_selection() {
  fetch_kept_pages();
  select_from_row("share");
  writer_.line("write_list(row, blocks, pages, {}, first, count, {});", runs_.empty() ? "row.ids + first" : "ids",
               graph_.geometry.page);
  write_attended();
  if (layout_.selections.empty()) return;
  std::set<int64_t> offsets;
  for (const ScoredSelection& selection : layout_.selections) {
    offsets.insert(layout_.slots[static_cast<size_t>(selection.score)].offset);
  }
  writer_.open("if (a.scores != nullptr)");
  writer_.write("float* const scores = a.scores + row.index * a.score_stride + first;");
  writer_.open("for (int i = threadIdx.x; i < count; i += blockDim.x)");
  for (const int64_t offset : offsets) writer_.line("scores[{0}LL * a.capacity + i] = held[{0} * a.held_pages + i];", offset);
  writer_.close();
  writer_.close();
}

void RowWriter::write_attended() {
  for (const NodeId id : layout_.attended) {
    const RowSlot& slot = layout_.slots[static_cast<size_t>(id)];
    writer_.open("");
    writer_.line("float* const values = a.scores + row.index * a.score_stride + {}LL * a.capacity + first * {};", slot.offset,
                 slot.per_page);
    writer_.line("for (int i = threadIdx.x; i < count * {}; i += blockDim.x) values[i] = held[{} * a.held_pages + i];",
                 slot.per_page, slot.offset);
    writer_.close();
  }
}

RowKernel RowWriter::write() {
  place_values(selected_);
  RowKernel kernel = open_row();
  if (!runs_.empty()) {
    write_asking();
    writer_.write("if (a.behind_refresh) ask_first();");
    writer_.write("if (scored < count && threadIdx.x == 0) ids[scored] = newest_page;");
  }
  write_prefetch();
  writer_.write("wait_for_earlier_kernels();");
  if (!runs_.empty()) writer_.write("if (!a.behind_refresh) ask_first();");
  begin_selection();
  write_fixed();
  write_queries();
  if (products_.empty()) writer_.write("__syncthreads();");
  writer_.write("blocks.wait_for_others();");
  writer_.write("let_next_kernel_start();");
  write_refresh(true);
  if (!runs_.empty()) write_newest_asking();
  for (const Launch& launch : layout_.launches) {
    if (launch.by_row) {
      compute_rows(launch);
    } else {
      write_row_tiles(launch);
    }
  }
  write_selection();
  if (!layout_.launches.back().saves.empty()) {
    writer_.write("blocks.sync();");
    write_saves(layout_.launches.back().saves);
  }
  writer_.write("// No block may end while another reads what it holds.");
  writer_.write("if (blocks.count > 1) sync_cluster();");
  writer_.close();
  return kernel;
}

}  // namespace

int64_t RowKernel::shared_bytes(int64_t pages, int stages, int threads) const {
  constexpr int64_t kWordBytes = 4;  // the bits of 32 pages
  const int64_t rings = int64_t{threads} / 32 * stages * stage_bytes;
  return fixed_bytes + page_bytes * pages + pages / 32 * kWordBytes + std::max<int64_t>(kSelectionBytes, rings);
}

int64_t RowKernel::most_pages() const {
  constexpr int64_t kShared = 225 << 10;  // that a block may have, less what it has anyway
  int64_t held = 0;                       // of a block
  while (shared_bytes(held + kHeldStep, 1, kRowThreads) <= kShared) held += kHeldStep;
  return held * kMostRowBlocks;
}

bool newest_is_kept(const FlowLayout& layout) {
  const FlowGraph& graph = layout.plan.graph;
  const bool by_page =
      std::none_of(layout.launches.begin(), layout.launches.end(), [](const Launch& launch) { return launch.by_row; });
  return by_page && graph.saves.empty() &&
         std::all_of(layout.selections.begin(), layout.selections.end(),
                     [&](const ScoredSelection& selection) { return layout.node(selection.node).attributes.last > 0; });
}

std::string why_not_whole_rows(const FlowLayout& layout) {
  if (layout.plan.attend.selection() == kNoNode) return "it selects nothing";
  if (layout.launches.empty()) return "it computes nothing";
  const std::vector<AttendedSource>& sources = layout.plan.attend.sources;
  const auto opens = [](const AttendedSource& source) { return source.opened != kNoNode; };
  if (std::any_of(sources.begin(), sources.end(), opens)) return "groups of pages are opened by a selection of their own";
  if (!layout.after.empty() && layout.plan.graph.saves_in(Stage::kIndex)) {
    return "what it saves waits in device memory for the after stage";
  }
  for (const ScoredSelection& selection : layout.selections) {
    if (!insists_on_hints(layout.node(selection.node))) continue;
    return fmt::format("%{} topk is to begin with what the last step took (method \"gvr\"), which lies in device memory",
                       selection.node);
  }
  for (const ScoredSelection& selection : layout.selections) {
    const Op op = layout.node(selection.node).op;
    if (op == Op::kTopKTokens) return fmt::format("%{} topk_tokens selects tokens", selection.node);
    if (op == Op::kTopP)
      return fmt::format("%{} topp takes as many pages as weigh enough, which no histogram tells", selection.node);
  }
  const std::vector<Node>& nodes = layout.plan.graph.nodes;
  const bool reads_states = std::any_of(nodes.begin(), nodes.end(),
                                        [](const Node& node) { return node.stage == Stage::kIndex && is_line_of_state(node); });
  if (reads_states) return "it reads channels of states";
  int tiles = 0;
  for (const Launch& launch : layout.launches) {
    for (const NodeId id : layout.computed_by(launch)) {
      if (find_product(layout, id) && !launch.by_row) continue;
      if (!reads_channels(layout, id)) continue;
      return fmt::format("%{} {} reads channels of pages other than as {}", id, name_of(layout.node(id).op), kProductsTaken);
    }
    tiles += launch.by_row ? 0 : 1;
  }
  return tiles > 1 ? "it reads pages again after a step over all of them" : "";
}

RowKernel write_row_kernel(const FlowLayout& layout, Writer& writer) { return RowWriter(layout, writer).write(); }

}  // namespace sluice::cuda::codegen
