#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/attended_tiles.h"
#include "kernels/cuda/codegen/kernel_writers.h"
#include "kernels/cuda/codegen/own_rows_writer.h"

namespace sluice::cuda::codegen {
namespace {

/// The kernel that scores, selects and attends (attending.cuh).
class AttendingWriter final : public OwnRowsWriter {
 public:
  AttendingWriter(const FlowLayout& layout, Writer& writer) : OwnRowsWriter(layout, writer, kBlock) {}

  AttendingKernel write();

 private:
  /// What the block waits for device memory for, and meanwhile makes ready what else is needed.
  void begin();
  void declare_asking();
  /// The queries of all rows, in place of those that `write_fixed` would copy one row after the other.
  void copy_queries();
  /// Splits the queries of rows before they are scored, and selects from rows once they are.
  void write_selectors();
  /// Products of the row's tiles, of which each warp has every kWarps-th, counted through all rows.
  void write_own_tiles(const Launch& launch);
  void write_scoring();
  void write_attention();
};

void AttendingWriter::begin() {
  const RingShape shape = ring_shape();
  writer_.line("constexpr int kStages = {};", shape.stages);
  writer_.line("using Ring = SharedRing<Tile, kStages, {}, {}>;", shape.stage_bytes, shape.bytes);
  writer_.write("__shared__ uint64_t ring_barriers[kWarps * Ring::kBarriers];");
  writer_.write("__shared__ uint64_t row_barriers[RowSignals::kBarriers];");
  writer_.write("__shared__ int listed_rows;");
  writer_.write("const RowSignals signals{shared_address(row_barriers), shared_address(&listed_rows)};");
  writer_.write("if (threadIdx.x == 0) signals.begin();");
  writer_.write("if (threadIdx.x == 32) Ring::begin(shared_address(ring_barriers), kWarps);");
  writer_.write("if (threadIdx.x == 64) prefetch_map(t.map);");
  writer_.line("rows.look_up(a, {});", graph_.geometry.page);
  writer_.write("__syncthreads();");
  writer_.write("let_next_kernel_start();");
}

void AttendingWriter::declare_asking() {
  writer_.write("Ring ring(shared_address(tiles), shared_address(ring_barriers), warp);");
  writer_.line("UpcomingTile<{}, kWarps> upcoming(a, rows, warp);", scope_.tile_pages);
  writer_.open("const auto ask = [&](int stage)");
  writer_.write("const uint32_t to = ring.stage(stage);");
  writer_.write("const int upcoming_pages = upcoming.pages();");
  int64_t begin = 0;
  for (const CopiedRun& run : runs_) {
    const int pieces = run.bytes / 16;  // of a line
    writer_.write("#pragma unroll");
    writer_.open("for (int i = 0; i < {}; ++i)", (scope_.tile_pages * run.lines * pieces + 31) / 32);
    writer_.line("const int line = (32 * i + lane) / {};", pieces);
    writer_.line("const int piece = (32 * i + lane) % {} * 16;", pieces);
    writer_.open("if (line < upcoming_pages * {})", run.lines);
    writer_.line("copy_piece(to + {} + line * {} + piece, upcoming.{}(a, line / {}) + {} + line % {} * {} + piece);", begin,
                 run.stride(), is_tile_part(layout_.plan, run.part) ? "block" : "token_block", run.lines, run.part.offset,
                 run.lines, run.bytes);
    writer_.close();
    writer_.close();
    begin += bytes_in_stage(run);
  }
  writer_.write("arrive_with_pieces(ring.stage_filled(stage));");
  writer_.write("ring.taken |= 1U << stage;");
  writer_.write("upcoming.next(a);");
  writer_.close(";");
  writer_.line("ListedTiles<Tile, kBox, {}> listed(warp);", graph_.geometry.page);
  writer_.write("int copied = 0;  // of the ring's first tiles of K and V");
  writer_.open("const auto copy_first = [&](int most)");
  writer_.write("// The copy engine writes where pieces have been.");
  writer_.write("asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");");
  writer_.write("__syncwarp();");
  writer_.write("while (copied < Tile::kStages && ring.is_free(copied) &&");
  writer_.write("       listed.copy(a, t, rows, signals, most, ring.slot(copied), ring.slot_filled(copied))) ++copied;");
  writer_.close(";");
}

void AttendingWriter::copy_queries() {
  for (const NodeId id : fixed_order_) {
    if (node(id).op != Op::kQuery) continue;
    writer_.open("");
    writer_.write("constexpr int own = 0;");
    declare_own_row();
    writer_.line("copy_queries<{}>(row, own_rows, query_memory + {}, {});", elements_per_page(node(id).shape), slot(id).offset,
                 query_numbers());
    writer_.write("Selectors::sync();");
    writer_.close();
  }
  queries_are_there_ = true;
}

void AttendingWriter::write_selectors() {
  crew_ = kSelectors;
  writer_.open("if (threadIdx.x < kSelectorThreads)");
  writer_.write("constexpr int kThreads = kSelectorThreads;");
  writer_.write("wait_for_earlier_kernels();");
  writer_.write("RowBlocks blocks(false);");
  copy_queries();
  writer_.open("for (int own = 0; own < own_rows; ++own)");
  place_own_row();
  write_fixed();
  write_queries();
  writer_.open("if (threadIdx.x == 0)");
  for (size_t i = 0; i < products_.size(); ++i) {
    if (!products_[i].joins_parts()) writer_.line("query_parts[{}] = parts_{};", i, products_[i].node);
  }
  writer_.write("signals.give_queries(own);");
  writer_.close();
  writer_.close();
  writer_.open("for (int own = 0; own < own_rows; ++own)");
  writer_.write("signals.wait_for_scores(own);");
  place_own_row();
  writer_.write("uint32_t* const keys = reinterpret_cast<uint32_t*>(held);  // in place of the scores");
  begin_selection();
  writer_.write("Selectors::sync();");
  select_from_row("count");
  writer_.write("const int listed = write_ids<kSelectorThreads>(pages, row.ids, rows.lists + own * rows.room);");
  writer_.line("if (threadIdx.x == kSelectorThreads - 1) rows.tokens[own] = count_selected(row, listed, {}, true);",
               graph_.geometry.page);
  writer_.write("Selectors::sync();");
  writer_.write("if (threadIdx.x == 0) signals.give_lists(own + 1);");
  writer_.close();
  writer_.open("for (int own = 0; own < own_rows; ++own)");
  declare_own_row();
  writer_.write("const bool has_newest = row.pages > 0;");
  declare_newest();
  write_refresh(false);
  writer_.write("Selectors::sync();");
  writer_.close();
  writer_.write("return;");
  writer_.close();
}

void AttendingWriter::write_own_tiles(const Launch& launch) {
  crew_ = kWarp;
  scope_.tile_first = "tile_first";
  writer_.line("const int tile_total = (scored + {}) / {};", scope_.tile_pages - 1, scope_.tile_pages);
  writer_.open("for (; tile_index < tile_total; tile_index += kWarps)");
  writer_.line("const int tile_first = tile_index * {};", scope_.tile_pages);
  writer_.line("const int tile_count = min({}, scored - tile_first);", scope_.tile_pages);
  writer_.write("barrier_wait(ring.stage_filled(stage), parity);");
  writer_.write("const uint32_t from = ring.stage(stage);");
  for (const Product& product : products_) write_product(product);
  writer_.write("__syncwarp();");
  writer_.write("ring.taken &= ~(1U << stage);");
  writer_.write("if (upcoming.exists()) ask(stage);");
  writer_.write("else if (own + 1 == own_rows && copied < Tile::kStages) copy_first(signals.lists());");
  writer_.open("if (++stage == kStages)");
  writer_.write("stage = 0;");
  writer_.write("parity ^= 1;");
  writer_.close();
  compute_beside_products(launch);
  writer_.close();
  writer_.write("tile_index -= tile_total;");
  scope_.tile_first = "first";
}

void AttendingWriter::write_scoring() {
  writer_.write("int tile_index = warp;");
  writer_.write("int stage = 0;");
  writer_.write("uint32_t parity = 0;");
  writer_.line("float* const tile = tile_memory + warp * {};", tile_numbers_ * scope_.tile_pages);
  writer_.open("for (int own = 0; own < own_rows; ++own)");
  writer_.write("signals.wait_for_queries(own);");
  place_own_row();
  for (size_t i = 0; i < products_.size(); ++i) {
    if (!products_[i].joins_parts()) writer_.line("const int parts_{} = query_parts[{}];", products_[i].node, i);
  }
  for (const Launch& launch : layout_.launches) write_own_tiles(launch);
  writer_.write("__syncwarp();");
  writer_.write("if (lane == 0) signals.give_scores(own);");
  writer_.close();
}

void AttendingWriter::write_attention() {
  const int group = graph_.geometry.group;
  const int dim = graph_.geometry.head_dim;
  writer_.write("copy_first(own_rows);");
  writer_.write("ComingTiles<Tile> coming(warp, tiles + (ring.at - shared_address(tiles)), ring.slot_filled(0));");
  writer_.open("for (int own = 0; own < own_rows; ++own)");
  writer_.write("const int head = rows.head + own;");
  writer_.line("AttendedRow mine(t.query + rows.sequence * t.query_stride + head * {}, {}, t.scale);", group * dim, group);
  writer_.write("signals.wait_for_lists(own + 1);");
  writer_.write("const int left = rows.tokens[own];");
  writer_.write("const int tile_total = decode::tiles_of(left);");
  writer_.write("coming.attend(mine, tile_total, left, [&](int i) {");
  writer_.write("  listed.copy(a, t, rows, signals, own_rows, ring.slot(i), ring.slot_filled(i));");
  writer_.write("});");
  writer_.write("coming.pass(tile_total);");
  writer_.write("Attenders::sync();");
  writer_.line("const decode::RowTarget target{{t.out + (rows.sequence * a.kv_heads + head) * {}LL, nullptr, nullptr}};",
               group * dim);
  writer_.line("decode::merge_warps<Attenders, kMergeRows>(mine, {}, target, parts, merge, threadIdx.x - kSelectorThreads);",
               group);
  writer_.close();
}

AttendingKernel AttendingWriter::write() {
  place_values(selected_);
  if (runs_.empty()) return {};
  open_attending_kernel(writer_, layout_.plan, "attend_rows", "kAttendingThreads", 1);
  writer_.write("static_assert(Tile::kWarps == kWarps);");
  AttendingKernel kernel = place_memory();
  begin();
  write_selectors();
  writer_.write("const int warp = (threadIdx.x - kSelectorThreads) / 32;");
  declare_asking();
  writer_.write("if (!a.behind_refresh) wait_for_earlier_kernels();");
  writer_.write("#pragma unroll 1");
  writer_.write("for (int i = 0; i < kStages && upcoming.exists(); ++i) ask(i);");
  writer_.write("if (a.behind_refresh) wait_for_earlier_kernels();");
  write_scoring();
  write_attention();
  writer_.close();
  return kernel;
}

}  // namespace

std::string why_not_attending(const FlowLayout& layout) {
  if (layout.selections.empty()) return "nothing is scored";
  if (layout.selections.size() > 1) return "it unites several selections";
  if (layout.node(layout.selections.front().node).op == Op::kThreshold) {
    return "how many pages a threshold takes depends on the scores";
  }
  if (!layout.plan.graph.saves.empty()) return "it saves a state";
  if (layout.plan.graph.selects_under_masks()) return "it sees parts of pages";
  if (std::any_of(layout.launches.begin(), layout.launches.end(), [](const Launch& launch) { return launch.by_row; })) {
    return "it has steps over whole rows";
  }
  if (!newest_is_kept(layout)) return "its selection by score need not keep the newest page (last = 1 or more would)";
  return has_tiles(layout.plan.layout) ? "" : "it attends heads of 64 (bf16) or 128 channels, of bf16, e4m3 or e5m2";
}

AttendingKernel write_attending_kernel(const FlowLayout& layout, Writer& writer) {
  return AttendingWriter(layout, writer).write();
}

}  // namespace sluice::cuda::codegen
