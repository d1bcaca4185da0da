#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/kernel_writer.h"
#include "kernels/cuda/codegen/reductions.h"
#include "scripting/graph/ops.h"

// The kernel that keeps rows on chip.

namespace sluice::cuda::codegen {
namespace {

constexpr int kTileLines = 16;             // of a matrix product
constexpr int64_t kMostStageBytes = 4300;  // of a warp, so that all have several stages

bool is_scored(Op op) { return op == Op::kTopK || op == Op::kApproxTopK || op == Op::kThreshold; }

/// Nodes that the tiles of a launch compute.
std::vector<NodeId> computed_by(const FlowLayout& layout, const Launch& launch) {
  std::vector<NodeId> ids;
  for (const int s : launch.steps) {
    for (const NodeId id : layout.plan.index[static_cast<size_t>(s)].nodes) {
      if (layout.kept[static_cast<size_t>(id)] || layout.slots[static_cast<size_t>(id)].stored) ids.push_back(id);
    }
  }
  return ids;
}

/// Whether computing `id` reads channels of blocks one by one.
bool reads_channels(const FlowLayout& layout, NodeId id, bool top = true) {
  const Node& node = layout.node(id);
  if (is_block_part(node.op)) return has_axis(node.shape, Axis::kDim);
  const auto at = static_cast<size_t>(id);
  if (!top && (layout.kept[at] || layout.slots[at].stored)) return false;
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](NodeId input) { return reads_channels(layout, input, false); });
}

/// Pages of a tile: as many as make one matrix product, and no more than a stage has room for.
int tile_pages_of(const std::vector<Product>& products, const std::vector<CopiedRun>& runs) {
  int lines = 1;
  for (const Product& product : products) lines = std::max(lines, product.lines);
  int64_t bytes = 0;  // a page
  for (const CopiedRun& run : runs) bytes += int64_t{run.lines} * run.stride();
  int pages = kTileLines;
  while (pages > 1 && (pages * lines > kTileLines || pages * bytes > kMostStageBytes)) pages /= 2;
  return pages;
}

}  // namespace

int64_t RowKernel::shared_bytes(int64_t pages, int stages) const {
  constexpr int64_t kWordBytes = 8;  // of 32 pages: their bits, and their rank
  return fixed_bytes + page_bytes * pages + pages / 32 * kWordBytes + int64_t{kRowWarps} * stages * stage_bytes;
}

std::string why_not_whole_rows(const FlowLayout& layout) {
  const FlowGraph& graph = layout.plan.graph;
  if (graph.selection == kNoNode) return "it selects nothing";
  if (layout.launches.empty()) return "it computes nothing";
  int tiles = 0;
  for (const Launch& launch : layout.launches) {
    for (const NodeId id : computed_by(layout, launch)) {
      if (find_product(layout, id) && !launch.by_row) continue;
      if (!reads_channels(layout, id)) continue;
      return fmt::format("%{} {} reads channels of pages other than as bf16 products with the query", id,
                         name_of(layout.node(id).op));
    }
    tiles += launch.by_row ? 0 : 1;
  }
  return tiles > 1 ? "it reads pages again after a step over all of them" : "";
}

std::vector<NodeId> selections_of(const FlowGraph& graph) {
  std::vector<NodeId> leaves;
  std::vector<NodeId> open;
  if (graph.selection != kNoNode) open.push_back(graph.selection);
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    if (node.op == Op::kUnion) {
      open.insert(open.end(), node.inputs.rbegin(), node.inputs.rend());
    } else if (std::find(leaves.begin(), leaves.end(), id) == leaves.end()) {
      leaves.push_back(id);
    }
  }
  return leaves;
}

void KernelWriter::find_products(const Launch& launch) {
  for (const NodeId id : computed_by(layout_, launch)) {
    if (const auto product = find_product(layout_, id)) products_.push_back(*product);
  }
  runs_ = runs_to_copy(layout_, products_);
  scope_.tile_pages = tile_pages_of(products_, runs_);
}

void KernelWriter::open_row_kernel(RowKernel& kernel, int64_t field_numbers) {
  const auto round = [](int64_t number, int64_t step) { return (number + step - 1) / step * step; };
  const int64_t constants = fixed_numbers_;
  const int64_t tiles = round(constants + layout_.fixed_numbers, 4);
  const int64_t tile = round(tile_numbers_ * scope_.tile_pages, 4);
  int64_t bytes = (tiles + int64_t{kRowWarps} * tile) * static_cast<int64_t>(sizeof(float));

  writer_.write("");
  writer_.open("extern \"C\" __global__ void __launch_bounds__(kRowThreads, 2) {}(const __grid_constant__ FlowArguments a)",
               kernel.name);
  writer_.write("extern __shared__ __align__(128) float memory[];");
  writer_.write("__shared__ uint64_t barriers[kRowWarps * kMostStages + 1];");
  writer_.write("__shared__ int next_tile;");
  writer_.write("__shared__ topk::Shared<kRowThreads> shared;");
  writer_.write("const int lane = threadIdx.x % 32;");
  writer_.write("const int warp = threadIdx.x / 32;");
  writer_.write("float* const fixed = memory;");
  writer_.line("float* const constants = memory + {};", constants);
  writer_.line("float* const tile = memory + {} + warp * {};", tiles, tile);
  for (const Product& product : products_) {
    writer_.line("uint2* const query_{} = reinterpret_cast<uint2*>(memory + {});", product.node, bytes / 4);
    bytes += product.query_bytes();
  }
  const int64_t fields = bytes;
  kernel.fixed_bytes = round(fields + field_numbers * static_cast<int64_t>(sizeof(float)), 128);
  // Of each page what is stored, its order key, and its place in the pool if that is read while tiles are copied.
  kernel.page_bytes = (layout_.row_numbers + (runs_.empty() ? 1 : 2)) * static_cast<int64_t>(sizeof(float));
  for (const CopiedRun& run : runs_) kernel.stage_bytes += bytes_in_stage(run);
  writer_.line("float* const held = memory + {};", kernel.fixed_bytes / 4);
  if (field_numbers > 0) writer_.line("float* const field_values = memory + {};", fields / 4);
  writer_.line("uint32_t* const keys = reinterpret_cast<uint32_t*>(held + {} * a.held_pages);", layout_.row_numbers);
  writer_.line("int* const ids = reinterpret_cast<int*>(held + {} * a.held_pages);", layout_.row_numbers + 1);
  writer_.line("uint32_t* const bits = reinterpret_cast<uint32_t*>(held + {} * a.held_pages);", kernel.page_bytes / 4);
  writer_.write("uint32_t* const ranks = bits + a.held_pages / 32;");
  if (kernel.stage_bytes > 0) declare_ring(kernel);
  writer_.write("RowBlocks blocks;");
  declare_row("static_cast<int>(blockIdx.x) / blocks.count");
  writer_.write("// Equal stretches of what the row has, not of what rows may have.");
  writer_.write("const int share = ((row.pages + blocks.count - 1) / blocks.count + 31) / 32 * 32;");
  writer_.write("const int first = min(blocks.rank * share, row.pages);");
  writer_.write("const int count = min(share, row.pages - first);");
  writer_.line("const int tiles = (count + {}) / {};", scope_.tile_pages - 1, scope_.tile_pages);
  writer_.write("const bool has_newest = count > 0 && first + count == row.pages;");
}

void KernelWriter::declare_ring(const RowKernel& kernel) {
  writer_.line("const uint32_t ring = shared_address(ranks + a.held_pages / 32) + warp * a.stages * {};", kernel.stage_bytes);
  writer_.write("const uint32_t barrier = shared_address(barriers + warp * kMostStages);");
  writer_.write("const uint32_t fields_there = shared_address(barriers + kRowWarps * kMostStages);");
  writer_.write("if (lane < a.stages) begin_barrier(barrier + 8 * lane, 1);");
  writer_.open("if (threadIdx.x == 0)");
  writer_.write("begin_barrier(fields_there, kFieldThreads);");
  writer_.write("next_tile = a.stages * kRowWarps;");
  writer_.close();
  writer_.write("publish_barriers();");
  writer_.write("__syncwarp();");
}

/// ask(tile, id, stage): sends for what products read of a tile; lane i has the id of page i.
void KernelWriter::write_asking(const RowKernel& kernel) {
  int page_bytes = 0;
  for (const CopiedRun& run : runs_) page_bytes += run.bytes * run.lines;
  writer_.write("// The tile with the newest page has to wait for whoever writes to it.");
  writer_.write("const int newest = has_newest ? tiles - 1 : -1;");
  writer_.open("const auto ask = [&](int tile, int id, int stage)");
  writer_.line("const int pages = min({}, count - tile * {});", scope_.tile_pages, scope_.tile_pages);
  writer_.write("const uint32_t there = barrier + 8 * stage;");
  writer_.line("const uint32_t to = ring + stage * {};", kernel.stage_bytes);
  if (!graph_.fields.empty()) writer_.write("if (a.refreshes && tile == newest) wait_for(fields_there, 0);");
  writer_.line("if (lane == 0) expect_bytes(there, pages * {});", page_bytes);
  int64_t begin = 0;
  for (const CopiedRun& run : runs_) {
    writer_.open("");
    writer_.line("const int page = __shfl_sync(~0U, id, lane / {});", run.lines);
    writer_.line("if (lane < pages * {}) copy_bytes(to + {} + lane * {}, row.block(page) + {} + lane % {} * {}, {}, there);",
                 run.lines, begin, run.stride(), run.offset, run.lines, run.bytes, run.bytes);
    writer_.close();
    begin += bytes_in_stage(run);
  }
  writer_.line("if (lane < pages) ids[tile * {} + lane] = id;", scope_.tile_pages);
  writer_.close(";");
  writer_.open("const auto id_in = [&](int tile)");
  writer_.line("const int at = tile * {} + lane;", scope_.tile_pages);
  writer_.line("return lane < {} && at < count ? row.ids[first + at] : 0;", scope_.tile_pages);
  writer_.close(";");
  writer_.open("const auto ask_first = [&]");
  writer_.write("int id = id_in(warp);");
  writer_.write("#pragma unroll 1");
  writer_.open("for (int stage = 0; stage < a.stages; ++stage)");
  writer_.write("const int tile = warp + stage * kRowWarps;");
  writer_.write("const int next_id = id_in(tile + kRowWarps);");
  writer_.write("if (tile < tiles && tile != newest) ask(tile, id, stage);");
  writer_.write("id = next_id;");
  writer_.close();
  writer_.close(";");
}

/// Some warps recompute the newest page's fields, if that is to be done here, while the others go on.
void KernelWriter::write_refresh(KernelWriter& fields, const std::vector<NodeId>& cache) {
  writer_.write("// Whoever starts now may read all fields, even before it waits.");
  if (graph_.fields.empty()) {
    writer_.write("let_next_kernel_start();");
    return;
  }
  writer_.open("if (!a.refreshes || !has_newest)");
  writer_.write("let_next_kernel_start();");
  writer_.close();
  writer_.open("else if (threadIdx.x < kFieldThreads)");
  writer_.write("uint8_t* const block = row.block(row.ids[row.pages - 1]);");
  writer_.write("const int tokens = row.last_tokens;");
  if (!cache.empty()) writer_.write("float* const tile = field_values;");
  fields.crew_ = kFieldWarps;
  fields.write_fields(cache);
  writer_.write("publish_fields();");
  writer_.write("sync_field_threads();");
  if (!runs_.empty()) writer_.write("arrive(fields_there);");
  writer_.write("let_next_kernel_start();");
  writer_.close();
}

void KernelWriter::write_queries() {
  for (const Product& product : products_) {
    writer_.open("const auto number_{} = [&](int r, int channel)", product.node);
    Index index = split(writer_, product.result_shape, "r");
    at(index, Axis::kDim) = "channel";
    Values values(scope_, writer_);
    writer_.line("return {};", values.read(product.query, index));
    writer_.close(";");
    writer_.line("const int parts_{0} = write_query_parts<{1}, {2}, {3}>(query_{0}, {4}, number_{0});", product.node,
                 product.steps(), product.tiles(), product.bound_name(), product.results);
  }
}

/// Stores `sums` where the value belongs; `odd` if any is not finite.
void KernelWriter::write_product_results(const Product& product) {
  writer_.write("#pragma unroll");
  writer_.open("for (int i = 0; i < {}; ++i)", 4 * product.tiles());
  writer_.write("const float sum = sums[i / 4][i % 4];");
  writer_.write("const int line = lane / 4 + i % 4 / 2 * 8;");
  writer_.write("const int result = i / 4 * 8 + lane % 4 * 2 + i % 2;");
  writer_.line("if (line >= tile_count * {} || result >= {}) continue;", product.lines, product.results);
  Index index = split(writer_, product.result_shape, "result");
  const Index lines = split(writer_, product.line_shape, fmt::format("(line % {})", product.lines));
  for (const Dimension& dimension : product.line_shape) at(index, dimension.axis) = at(lines, dimension.axis);
  at(index, Axis::kPage) = "p";
  writer_.line("const int p = tile_first + line / {};", product.lines);
  const Reduction reduction = reduction_of(node(product.node).op);
  writer_.line("{} = {};", *place_of(scope_, product.node, index), reduction.finished("sum", std::to_string(product.dim)));
  writer_.write("odd |= !isfinite(sum);");
  writer_.close();
}

void KernelWriter::write_product(const Product& product) {
  comment(product.node);
  writer_.open("");
  const int lines = scope_.tile_pages * product.lines;
  const auto address = [&](NodeId part) {
    const size_t offset = part_of(layout_.plan, node(part)).offset;
    int64_t begin = 0;
    size_t i = 0;
    for (; !runs_[i].has(offset); ++i) begin += bytes_in_stage(runs_[i]);
    return fmt::format("from + {} + line * {}", begin + static_cast<int64_t>(offset - runs_[i].offset), runs_[i].stride());
  };
  writer_.line("const int line = min(lane % 16, {});", lines - 1);
  writer_.line("const uint32_t a_lines = {} + lane / 16 * 16;", address(product.parts.front()));
  writer_.line("const uint32_t b_lines = {} + lane / 16 * 16;", address(product.parts.back()));
  writer_.line("float sums[{}][4];", product.tiles());
  const auto multiply = [&](int parts) {
    return fmt::format("multiply_lines<{}, {}, {}, {}>(sums, a_lines, b_lines, query_{});", product.steps(), product.tiles(),
                       product.bound_name(), parts, product.node);
  };
  writer_.line("if (parts_{} == 1) {}", product.node, multiply(1));
  writer_.line("else {}", multiply(3));
  writer_.write("bool odd = false;");
  write_product_results(product);
  writer_.open("if (__any_sync(~0U, odd))");
  writer_.write("__syncwarp();");
  unrolled_ = 1;  // this hardly ever runs, and should not be in the way of what does
  compute_elements(product.node, true, "!isfinite");
  unrolled_ = 8;
  writer_.close();
  writer_.close();
}

/// Opens the loop over the tiles that a warp takes; the next one is known, and its pages are, while one is computed.
void KernelWriter::open_queue() {
  writer_.write("// Lane i has the number of the tile in stage i. Who is done takes the next one.");
  writer_.write("int queued = warp + lane * kRowWarps;");
  writer_.write("int upcoming = 0;");
  writer_.write("int upcoming_id = 0;");
  writer_.open("const auto take = [&]");
  writer_.write("if (lane == 0) upcoming = atomicAdd(&next_tile, 1);");
  writer_.write("upcoming = __shfl_sync(~0U, upcoming, 0);");
  writer_.write("upcoming_id = id_in(upcoming);");
  writer_.close(";");
  writer_.write("take();");
  writer_.write("uint32_t parity = 0;");
  writer_.open("for (int stage = 0;;)");
  writer_.write("const int tile_index = __shfl_sync(~0U, queued, stage);");
  writer_.write("if (tile_index >= tiles) break;");
}

/// Products of the tile that has arrived; its stage goes to the next one.
void KernelWriter::write_stage() {
  int64_t bytes = 0;
  for (const CopiedRun& run : runs_) bytes += bytes_in_stage(run);
  writer_.write("wait_for(barrier + 8 * stage, parity);");
  writer_.line("const uint32_t from = ring + stage * {};", bytes);
  for (const Product& product : products_) write_product(product);
  writer_.write("__syncwarp();");
  writer_.write("if (upcoming < tiles) ask(upcoming, upcoming_id, stage);");
  writer_.write("if (lane == stage) queued = upcoming;");
  writer_.write("take();");
  writer_.open("if (++stage == a.stages)");
  writer_.write("stage = 0;");
  writer_.write("parity ^= 1;");
  writer_.close();
}

void KernelWriter::write_row_tiles(const Launch& launch) {
  crew_ = kWarp;
  scope_.tile_first = "tile_first";
  if (runs_.empty()) {
    writer_.open("for (int tile_index = warp; tile_index < tiles; tile_index += kRowWarps)");
  } else {
    open_queue();
  }
  writer_.line("const int tile_first = first + tile_index * {};", scope_.tile_pages);
  writer_.line("const int tile_count = min({}, first + count - tile_first);", scope_.tile_pages);
  if (!runs_.empty()) write_stage();
  for (const NodeId id : computed_by(layout_, launch)) {
    const bool done = std::any_of(products_.begin(), products_.end(), [&](const Product& product) { return product.node == id; });
    if (!done) compute(id, true);
  }
  writer_.close();
  writer_.write("__syncthreads();");
  crew_ = kRowBlocks;
  scope_.tile_first = "first";
}

/// What the selection begins with, long before it has scores.
void KernelWriter::begin_selection(const std::vector<NodeId>& selected) {
  int first = 0;
  int last = 0;
  for (const NodeId id : selected) {
    first = std::max(first, node(id).attributes.first);
    last = std::max(last, node(id).attributes.last);
  }
  writer_.write("PageSet pages(bits, ranks, first, count);");
  writer_.line("pages.begin({}, {}, row.pages);", first, last);
  writer_.write("topk::Team<kRowThreads> team(shared, blocks.count, blocks.rank);");
}

void KernelWriter::write_selection(const std::vector<NodeId>& selected) {
  for (const NodeId id : selected) {
    if (!is_scored(node(id).op)) continue;
    comment(id);
    writer_.open("");
    write_budget(id);
    const int begin = node(id).attributes.first;
    writer_.line("select_best(blocks, team, pages, {{keys, first, count, {}, {} + middle}}, held + {} * a.held_pages, budget);",
                 begin, begin, layout_.slots[static_cast<size_t>(node(id).inputs[0])].offset);
    writer_.close();
  }
  writer_.line("write_list(row, blocks, pages, {}, first, count, {});", runs_.empty() ? "row.ids + first" : "ids",
               graph_.geometry.page);
  if (layout_.selections.empty()) return;
  writer_.open("if (a.scores != nullptr)");
  writer_.write("float* const scores = a.scores + row.index * a.score_stride + first;");
  writer_.line("for (int i = threadIdx.x; i < count; i += blockDim.x) scores[i] = held[{} * a.held_pages + i];",
               layout_.slots[static_cast<size_t>(layout_.selections.back().score)].offset);
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
  open_row_kernel(kernel, fields.tile_numbers_);
  if (!runs_.empty()) {
    write_asking(kernel);
    writer_.write("if (a.behind_refresh) ask_first();");
  }
  writer_.write("wait_for_earlier_kernels();");
  if (!runs_.empty()) writer_.write("if (!a.behind_refresh) ask_first();");
  begin_selection(selected);
  write_fixed();
  write_queries();
  writer_.write("blocks.sync();");
  write_refresh(fields, cache);
  if (!runs_.empty()) {
    writer_.write("const int first_stage = newest / kRowWarps;");
    writer_.write(
        "if (newest >= 0 && newest % kRowWarps == warp && first_stage < a.stages) ask(newest, id_in(newest), first_stage);");
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
