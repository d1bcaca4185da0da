#include <algorithm>
#include <set>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/kernel_writer.h"
#include "kernels/cuda/codegen/reductions.h"
#include "kernels/cuda/codegen/selection_plan.h"
#include "kernels/cuda/primitives/round_up.h"
#include "scripting/graph/ops.h"

// The kernel that keeps rows on chip.

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
  const FlowGraph& graph = layout.plan.graph;
  if (graph.selection() == kNoNode) return "it selects nothing";
  if (layout.launches.empty()) return "it computes nothing";
  for (const ScoredSelection& selection : layout.selections) {
    if (!insists_on_hints(layout.node(selection.node))) continue;
    return fmt::format("%{} topk is to begin with what the last step took (method \"gvr\"), which lies in device memory",
                       selection.node);
  }
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

/// Where a block of so many warps has what it needs whatever the length of its row; returns its bytes.
int64_t KernelWriter::place_fixed_memory(int64_t field_numbers, int warps) {
  const int64_t constants = fixed_numbers_;
  const int64_t tiles = round_up<int64_t>(constants + layout_.fixed_numbers, 4);
  const int64_t tile = round_up<int64_t>(tile_numbers_ * scope_.tile_pages, 4);
  int64_t bytes = (tiles + warps * tile) * static_cast<int64_t>(sizeof(float));
  writer_.write("extern __shared__ __align__(128) float row_memory[];");
  writer_.write("float* const fixed = row_memory;");
  writer_.line("float* const constants = row_memory + {};", constants);
  writer_.line("float* const tile = row_memory + {} + warp * {};", tiles, tile);
  for (const Product& product : products_) {
    writer_.line("uint2* const query_{} = reinterpret_cast<uint2*>(row_memory + {});", product.node, bytes / 4);
    bytes += product.query_bytes(compact_queries_);
  }
  if (field_numbers > 0) writer_.line("float* const field_values = row_memory + {};", bytes / 4);
  return round_up<int64_t>(bytes + field_numbers * static_cast<int64_t>(sizeof(float)), 128);
}

/// Where everything lies in the memory of a block.
void KernelWriter::place_row(RowKernel& kernel, int64_t field_numbers) {
  kernel.fixed_bytes = place_fixed_memory(field_numbers, kRowThreads / 32);
  // Of each page what is stored, its order key, and its place in the pool if that is read while tiles are copied.
  kernel.page_bytes = (layout_.row_numbers + (runs_.empty() ? 1 : 2)) * static_cast<int64_t>(sizeof(float));
  for (const CopiedRun& run : runs_) kernel.stage_bytes += bytes_in_stage(run);
  writer_.line("float* const held = row_memory + {};", kernel.fixed_bytes / 4);
  writer_.line("uint32_t* const keys = reinterpret_cast<uint32_t*>(held + {} * a.held_pages);", layout_.row_numbers);
  writer_.line("int* const ids = reinterpret_cast<int*>(held + {} * a.held_pages);", layout_.row_numbers + 1);
  writer_.line("uint32_t* const bits = reinterpret_cast<uint32_t*>(held + {} * a.held_pages);", kernel.page_bytes / 4);
  writer_.write("auto& selection = *reinterpret_cast<SelectionMemory<kThreads>*>(bits + a.held_pages / 32);");
}

/// What the block has of the row. `shared`: whether several blocks may have it. Each has a multiple of `step` pages of it.
void KernelWriter::declare_share(const char* shared, int step) {
  writer_.line("RowBlocks blocks({});", shared);
  declare_row("static_cast<int>(blockIdx.x) / blocks.count");
  writer_.write("// Equal stretches of what the row has, not of what rows may have.");
  writer_.line("const int share = ((row.pages + blocks.count - 1) / blocks.count + {0} - 1) / {0} * {0};", step);
  writer_.write("const int first = min(blocks.rank * share, row.pages);");
  writer_.write("const int count = min(share, row.pages - first);");
  writer_.write("const bool has_newest = count > 0 && first + count == row.pages;");
  writer_.write("const int newest_page = has_newest ? row.ids[row.pages - 1] : 0;");
  if (leaves_newest_) {
    writer_.write("// The newest page is selected whatever its score, which nobody sees.");
    writer_.write("const int scored = has_newest ? count - 1 : count;");
  } else if (newest_is_kept(layout_)) {
    writer_.write("// The newest page is selected whatever its score, for which nobody waits but those who want to see it.");
    writer_.write("const int scored = has_newest && a.scores == nullptr ? count - 1 : count;");
  } else {
    writer_.write("const int scored = count;");
  }
  writer_.line("const int tiles = (scored + {}) / {};", scope_.tile_pages - 1, scope_.tile_pages);
}

void KernelWriter::open_row(RowKernel& kernel, int64_t field_numbers) {
  writer_.write("");
  writer_.write("template <int kThreads>");
  writer_.open("__device__ __forceinline__ void hold_row(const FlowArguments& a)");
  writer_.write("constexpr int kWarps = kThreads / 32;");
  writer_.write("const int lane = threadIdx.x % 32;");
  writer_.write("const int warp = threadIdx.x / 32;");
  place_row(kernel, field_numbers);
  if (kernel.stage_bytes > 0) declare_ring(kernel.stage_bytes, "&selection");
  declare_share("kThreads == kRowThreads", 32);
}

/// What the newest page's fields are computed from is on its way before it may be read.
void KernelWriter::write_prefetch() {
  if (graph_.fields.empty()) return;
  writer_.open("if (a.refreshes && has_newest)");
  for (const NodeId id : layout_.plan.cache) {
    if (!is_block_part(node(id).op)) continue;
    const BlockPart part = part_of(layout_.plan, node(id));
    writer_.line("prefetch(row.block(newest_page) + {}, {});", part.offset,
                 elements_per_page(node(id).shape) * static_cast<int64_t>(size_of(part.type)));
  }
  writer_.close();
}

/// Some warps recompute the newest page's fields, if that is to be done here, while the others go on.
void KernelWriter::write_refresh(KernelWriter& fields, const std::vector<NodeId>& cache, bool is_scored) {
  if (graph_.fields.empty()) return;
  writer_.open("if (a.refreshes && has_newest && threadIdx.x < kFieldThreads)");
  writer_.write("uint8_t* const block = row.block(newest_page);");
  writer_.write("const int tokens = row.last_tokens;");
  if (!cache.empty()) writer_.write("float* const tile = field_values;");
  fields.crew_ = kFieldWarps;
  fields.write_fields(cache);
  if (!runs_.empty() && is_scored) {
    writer_.open("if (newest >= 0)");
    writer_.write("publish_fields();");
    writer_.write("barrier_arrive(fields_there);");
    writer_.close();
  }
  writer_.close();
  if (runs_.empty()) writer_.write("if (a.refreshes && has_newest) __syncthreads();");  // nothing else waits for these fields
}

std::pair<int, int> KernelWriter::kept_by(const std::vector<NodeId>& selected) const {
  int first = 0;
  int last = 0;
  for (const NodeId id : selected) {
    first = std::max(first, node(id).attributes.first);
    last = std::max(last, node(id).attributes.last);
  }
  return {first, last};
}

/// What the selection begins with, which needs no scores.
void KernelWriter::begin_selection(const std::vector<NodeId>& selected) {
  const auto [first, last] = kept_by(selected);
  writer_.write("PageSet pages(bits, first, count);");
  writer_.line("pages.begin({}, {}, row.pages, {});", first, last, crew_.threads);
}

/// Brings pages that are selected whatever their scores nearer, for the attention that follows, while memory is idle.
void KernelWriter::fetch_kept_pages(const std::vector<NodeId>& selected) {
  constexpr int kMost = 2;  // at either end: what all rows fetch is to stay in L2 until then
  int first = 0;
  int last = 0;
  for (const NodeId id : selected) {
    first = std::max(first, std::min(kMost, node(id).attributes.first));
    last = std::max(last, std::min(kMost, node(id).attributes.last));
  }
  if (first + last == 0) return;
  const PageLayout& layout = layout_.plan.layout;
  const size_t bytes = layout.value_offset - layout.key_offset;  // of K, and of V, with what rounds them up
  writer_.open("if (threadIdx.x < {})", first + last);
  writer_.line("const int page = static_cast<int>(threadIdx.x) < {} ? threadIdx.x : row.pages - 1 - (threadIdx.x - {});", first,
               first);
  writer_.open("if (page >= first && page < first + count)");
  writer_.line("const uint8_t* const block = row.block({});", runs_.empty() ? "row.ids[page]" : "ids[page - first]");
  writer_.line("prefetch_whole(block + {}, {});", layout.key_offset, bytes);
  writer_.line("prefetch_whole(block + {}, {});", layout.value_offset, bytes);
  writer_.close();
  writer_.close();
}

/// `share` names the pages that each block has of the row.
void KernelWriter::select_from_row(const std::vector<NodeId>& selected, const char* share) {
  for (const NodeId id : selected) {
    if (!is_scored(node(id).op)) continue;
    comment(id);
    writer_.open("");
    write_budget(id);
    const int begin = node(id).attributes.first;
    const std::string of_row =
        fmt::format("(blocks, selection, pages, {{keys, first, count, {}, {} + middle}}, held + {} * a.held_pages, budget", begin,
                    begin, layout_.slots[static_cast<size_t>(node(id).inputs[0])].offset);
    if (is_drawn(node(id))) {
      writer_.line("select_about{}, {{{:a}, row.key(RandomPurpose::kApproxTopK), {}}});", of_row, node(id).attributes.tolerate,
                   share);
    } else {
      writer_.line("select_best{});", of_row);
    }
    writer_.close();
  }
}

void KernelWriter::write_selection(const std::vector<NodeId>& selected) {
  fetch_kept_pages(selected);
  select_from_row(selected, "share");
  writer_.line("write_list(row, blocks, pages, {}, first, count, {});", runs_.empty() ? "row.ids + first" : "ids",
               graph_.geometry.page);
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

RowKernel KernelWriter::whole_row(const std::vector<NodeId>& selected) {
  RowKernel kernel{.name = "index_row"};
  scope_.holds_row = true;
  crew_ = kRowBlocks;
  std::vector<NodeId> all = selected;
  for (const Launch& launch : layout_.launches) {
    const std::vector<NodeId> ids = nodes_of(launch);
    all.insert(all.end(), ids.begin(), ids.end());
    if (!launch.by_row) find_products(launch);
  }
  place_fixed(all);
  place_in_tile(all);
  KernelWriter fields(layout_, Stage::kCache, writer_);
  const std::vector<NodeId> cache = fields.place_cache();
  open_row(kernel, fields.tile_numbers_);
  if (!runs_.empty()) {
    write_asking(kernel.stage_bytes);
    writer_.write("if (a.behind_refresh) ask_first();");
    writer_.write("if (scored < count && threadIdx.x == 0) ids[scored] = newest_page;");
  }
  write_prefetch();
  writer_.write("wait_for_earlier_kernels();");
  if (!runs_.empty()) writer_.write("if (!a.behind_refresh) ask_first();");
  begin_selection(selected);
  write_fixed();
  write_queries();
  if (products_.empty()) writer_.write("__syncthreads();");
  writer_.write("blocks.wait_for_others();");
  writer_.write("let_next_kernel_start();");
  write_refresh(fields, cache, true);
  if (!runs_.empty()) {
    writer_.write("const int first_stage = newest / kWarps;");
    writer_.write(
        "if (newest >= 0 && newest % kWarps == warp && first_stage < a.stages) ask(newest, id_in(newest), first_stage);");
  }
  for (const Launch& launch : layout_.launches) {
    if (launch.by_row) {
      compute_rows(launch);
    } else {
      write_row_tiles(launch);
    }
  }
  write_selection(selected);
  if (!graph_.saves.empty()) {
    writer_.write("blocks.sync();");
    write_saves();
  }
  writer_.write("// No block may end while another reads what it holds.");
  writer_.write("if (blocks.count > 1) sync_cluster();");
  writer_.close();
  return kernel;
}

}  // namespace sluice::cuda::codegen
