#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/attended_tiles.h"
#include "kernels/cuda/codegen/kernel_writer.h"
#include "kernels/cuda/primitives/round_up.h"

// The kernel that scores, selects and attends (attending.cuh).

namespace sluice::cuda::codegen {
namespace {

constexpr int kAttenderWarps = kAttenderThreads / 32;
// For fields at most: pieces of 256 bytes come slower than K and V, and more of them under way help. With block_topk at 128
// channels five stages were faster than three or four (14 layers of Qwen3-1.7B, 64 rows: 1922 µs instead of 1930 to 1935).
constexpr int64_t kFieldBytes = 24 << 10;

}  // namespace

// In the order of `place_attending`.
int64_t AttendingKernel::shared_bytes(int64_t pages, int64_t rows, int64_t room) const {
  constexpr int64_t kNumber = 4;
  const int64_t each = row_bytes + page_bytes * pages + room * kNumber;
  return fixed_bytes + std::max<int64_t>(0, kMergingBytes - rows * row_bytes) + (pages + pages / 32) * kNumber + rows * each;
}

std::string why_not_attending(const FlowLayout& layout) {
  if (layout.selections.empty()) return "nothing is scored";
  if (layout.selections.size() > 1) return "it unites several selections";
  if (layout.node(layout.selections.front().node).op == Op::kThreshold) {
    return "how many pages a threshold takes depends on the scores";
  }
  if (!layout.plan.graph.saves.empty()) return "it saves a state";
  if (std::any_of(layout.launches.begin(), layout.launches.end(), [](const Launch& launch) { return launch.by_row; })) {
    return "it has steps over whole rows";
  }
  if (!newest_is_kept(layout)) return "its selection by score need not keep the newest page (last = 1 or more would)";
  return has_tiles(layout.plan.layout) ? "" : "it attends heads of 64 (bf16) or 128 channels, of bf16, e4m3 or e5m2";
}

/// Where everything lies in the memory of a block.
void KernelWriter::place_attending(AttendingKernel& kernel, int64_t field_numbers) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  writer_.write("extern __shared__ __align__(128) uint8_t memory[];");
  writer_.line("uint8_t* const tiles = memory + ({0} - shared_address(memory) % {0}) % {0};", kSwizzleBytes);
  writer_.line("float* const row_memory = reinterpret_cast<float*>(tiles + {});", kAttenderWarps * attending_ring().bytes);
  writer_.write("auto& selection = *reinterpret_cast<SelectionMemory<kSelectorThreads, Selectors>*>(row_memory);");
  writer_.line("float* const query_memory = row_memory + {};", kSelectorBytes / kFloat);
  writer_.write("auto& parts = *reinterpret_cast<decode::WarpParts<Tile>*>(query_memory);");
  writer_.write("float* const merge = query_memory + sizeof(parts) / sizeof(float);");
  writer_.write("constexpr int kMergeRows = Tile::kMergeRows / 2;");
  writer_.write("static_assert(sizeof(selection) <= kSelectorBytes);");
  writer_.write("static_assert(sizeof(parts) + kWarps * kMergeRows * Tile::kMergeStride * sizeof(float) <= kMergingBytes);");
  writer_.write("OwnRows rows(a, t);");
  writer_.write("const int own_rows = rows.count;");
  kernel.row_bytes = query_numbers() * kFloat;
  writer_.line("float* const constants = query_memory + max({}, own_rows * {});", kMergingBytes / kFloat, query_numbers());
  int64_t bytes = round_up<int64_t>(layout_.fixed_numbers * kFloat, 16);
  writer_.line("float* const tile_memory = constants + {};", bytes / kFloat);
  bytes += kAttenderWarps * tile_numbers_ * scope_.tile_pages * kFloat;
  writer_.line("float* const field_values = constants + {};", bytes / kFloat);
  bytes = round_up<int64_t>(bytes + field_numbers * kFloat, 16);
  writer_.line("float* const score_memory = constants + {};", bytes / kFloat);
  kernel.page_bytes = layout_.row_numbers * kFloat;
  writer_.line("const int row_numbers = {} * a.held_pages;", layout_.row_numbers);
  writer_.write("uint32_t* const bits = reinterpret_cast<uint32_t*>(score_memory + own_rows * row_numbers);");
  writer_.write("rows.ids = reinterpret_cast<int*>(bits + a.held_pages / 32);");
  writer_.write("rows.lists = rows.ids + a.held_pages;");
  writer_.write("__shared__ int row_tokens[kMostOwnRows];");
  writer_.write("rows.tokens = row_tokens;");
  kernel.fixed_bytes = kSwizzleBytes + kAttenderWarps * attending_ring().bytes + kSelectorBytes + bytes;
}

/// The queries of a row: what products read, and what they were made of.
int64_t KernelWriter::query_numbers() const {
  int64_t numbers = fixed_numbers_ + round_up<int64_t>(static_cast<int64_t>(products_.size()), 4);
  for (const Product& product : products_) numbers += product.query_bytes(compact_queries_) / static_cast<int64_t>(sizeof(float));
  return numbers;
}

void KernelWriter::declare_own_row() {
  writer_.line("const Row row(a, rows.sequence, rows.head + own, rows.length, rows.ids, {}, {}, {});", graph_.geometry.page,
               graph_.geometry.group, graph_.geometry.head_dim);
}

/// Names of the queries and scores of row `own`.
void KernelWriter::place_own_row() {
  declare_own_row();
  writer_.write("constexpr int first = 0;");
  writer_.write("const int count = rows.pages;");
  writer_.write("const int scored = rows.scored();");
  writer_.line("float* const fixed = query_memory + own * {};", query_numbers());
  int64_t at = fixed_numbers_;
  for (const Product& product : products_) {
    writer_.line("uint2* const query_{} = reinterpret_cast<uint2*>(fixed + {});", product.node, at);
    at += product.query_bytes(compact_queries_) / static_cast<int64_t>(sizeof(float));
  }
  writer_.line("int* const query_parts = reinterpret_cast<int*>(fixed + {});", at);
  writer_.write("float* const held = score_memory + own * row_numbers;");
}

KernelWriter::AttendingRing KernelWriter::attending_ring() const {
  AttendingRing ring;
  for (const CopiedRun& run : runs_) ring.stage_bytes += bytes_in_stage(run);
  ring.stages = std::min<int64_t>(kMostStages, kFieldBytes / ring.stage_bytes);
  ring.bytes = round_up(std::max(kValueBytes, ring.stages * ring.stage_bytes), kSwizzleBytes);
  return ring;
}

/// What the block waits for device memory for, and meanwhile makes ready what else is needed.
void KernelWriter::begin_attending() {
  const AttendingRing shape = attending_ring();
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

void KernelWriter::declare_asking() {
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
    writer_.line("copy_piece(to + {} + line * {} + piece, upcoming.block(a, line / {}) + {} + line % {} * {} + piece);", begin,
                 run.stride(), run.lines, run.offset, run.lines, run.bytes);
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

/// The queries of all rows, in place of those that `write_fixed` would copy one row after the other.
void KernelWriter::copy_queries() {
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

/// Splits the queries of rows before they are scored, and selects from rows once they are.
void KernelWriter::write_selectors(const std::vector<NodeId>& selected, KernelWriter& fields, const std::vector<NodeId>& cache) {
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
  begin_selection(selected);
  writer_.write("Selectors::sync();");
  select_from_row(selected, "count");
  writer_.write("const int listed = write_ids<kSelectorThreads>(pages, row.ids, rows.lists + own * rows.room);");
  writer_.line("if (threadIdx.x == kSelectorThreads - 1) rows.tokens[own] = count_selected(row, listed, {}, true);",
               graph_.geometry.page);
  writer_.write("Selectors::sync();");
  writer_.write("if (threadIdx.x == 0) signals.give_lists(own + 1);");
  writer_.close();
  writer_.open("for (int own = 0; own < own_rows; ++own)");
  declare_own_row();
  writer_.write("const bool has_newest = row.pages > 0;");
  writer_.write("const int newest_page = has_newest ? row.ids[row.pages - 1] : 0;");
  write_refresh(fields, cache, false);
  writer_.write("Selectors::sync();");
  writer_.close();
  writer_.write("return;");
  writer_.close();
}

/// Products of the row's tiles, of which each warp has every kWarps-th, counted through all rows.
void KernelWriter::write_own_tiles(const Launch& launch) {
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
  for (const NodeId id : layout_.computed_by(launch)) {
    const bool done = std::any_of(products_.begin(), products_.end(), [&](const Product& product) { return product.node == id; });
    if (!done) compute(id, true);
  }
  writer_.close();
  writer_.write("tile_index -= tile_total;");
  scope_.tile_first = "first";
}

void KernelWriter::write_scoring() {
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

void KernelWriter::write_attention() {
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

bool KernelWriter::place_scoring(const std::vector<NodeId>& selected) {
  std::vector<NodeId> all = selected;
  for (const Launch& launch : layout_.launches) {
    const std::vector<NodeId> ids = nodes_of(launch);
    all.insert(all.end(), ids.begin(), ids.end());
    find_products(launch);
  }
  place_fixed(all);
  place_in_tile(all);
  return !runs_.empty();
}

void KernelWriter::open_attending(const std::string& name, const char* threads) {
  const PageLayout& layout = layout_.plan.layout;
  writer_.write("");
  writer_.open(
      "extern \"C\" __global__ void __launch_bounds__({}, 1) {}(const __grid_constant__ AttentionArguments t, const "
      "__grid_constant__ FlowArguments a)",
      threads, name);
  writer_.write("constexpr int kWarps = kAttenderThreads / 32;");
  writer_.line("constexpr int kBox = {};", box_tokens(layout));
  writer_.line("using Tile = decode::Shape<{}>;", tile_type(layout));
  writer_.line("using AttendedRow = decode::WarpRow<{}, {}>;", tile_type(layout), graph_.geometry.group > 8);
  writer_.write("const int lane = threadIdx.x % 32;");
}

AttendingKernel KernelWriter::attending(const std::vector<NodeId>& selected) {
  AttendingKernel kernel{.name = "attend_rows"};
  scope_.holds_row = true;
  compact_queries_ = true;  // there are those of several rows
  if (!place_scoring(selected)) return {};
  KernelWriter fields(layout_, Stage::kCache, writer_);
  const std::vector<NodeId> cache = fields.place_cache();
  open_attending(kernel.name, "kAttendingThreads");
  writer_.write("static_assert(Tile::kWarps == kWarps);");
  place_attending(kernel, fields.tile_numbers_);
  begin_attending();
  write_selectors(selected, fields, cache);
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

}  // namespace sluice::cuda::codegen
