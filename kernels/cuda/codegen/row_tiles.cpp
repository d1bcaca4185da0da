#include "kernels/cuda/codegen/row_tiles.h"

#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/reductions.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kProductLines = 16;          // of a matrix product
constexpr int kMostTileLines = 32;         // which lanes ask for one by one ...
constexpr int kMostWholeLines = 64;        // ... or with those of their page
constexpr int64_t kMostTileNumbers = 512;  // of a warp: what products give pages of a tile
constexpr int kMostBytesInPieces = 256;    // of a line
constexpr int64_t kMostStageBytes = 4400;  // of a warp, so that all have several stages
constexpr int64_t kMostLinesBytes = 4800;  // the same where a page has several lines

/// Pages of a tile: as many as make one matrix product, or some where a page has many lines, and no more than there is room for.
int tile_pages_of(const std::vector<Product>& products, const std::vector<CopiedRun>& runs) {
  int lines = 1;
  int64_t numbers = 0;  // a page
  for (const Product& product : products) {
    lines = std::max(lines, product.lines);
    numbers += int64_t{product.lines} * product.results;
  }
  int64_t bytes = 0;  // a page
  for (const CopiedRun& run : runs) bytes += int64_t{run.lines} * run.stride();
  const bool whole = std::all_of(runs.begin(), runs.end(), [](const CopiedRun& run) { return run.whole || run.lines == 1; });
  const int most_lines = whole ? kMostWholeLines : kMostTileLines;
  const auto fit = [&](int pages) {
    const bool in_one = pages * lines <= kProductLines;
    return (in_one || (pages * lines <= most_lines && pages * numbers <= kMostTileNumbers)) &&
           pages * bytes <= (lines > 1 ? kMostLinesBytes : kMostStageBytes);
  };
  int pages = kProductLines;
  while (pages > 1 && !fit(pages)) pages /= 2;
  return pages;
}

/// Groups of sixteen lines of a tile that are multiplied together, so that they share what is read of the query: all, if
/// there are registers for the sums of so many.
int groups_of(const Product& product, int lines, int most) {
  const int groups = (lines + kProductLines - 1) / kProductLines;
  if (product.bound != Product::Bound::kNone) return 1;
  return std::min(groups, std::max(1, most / product.tiles()));
}

}  // namespace

void RowTilesWriter::find_products(const Launch& launch) {
  const std::vector<NodeId> computed = layout_.computed_by(launch);
  for (const NodeId id : computed) {
    auto product = find_product(layout_, id);
    if (!product) continue;
    product->fold = find_fold(layout_, *product, computed);
    products_.push_back(std::move(*product));
  }
  runs_ = runs_to_copy(layout_, products_);
  in_pieces_ =
      std::all_of(runs_.begin(), runs_.end(), [](const CopiedRun& run) { return !run.whole && run.bytes <= kMostBytesInPieces; });
  scope_.tile_pages = tile_pages_of(products_, runs_);
}

void RowTilesWriter::place_values(const std::vector<NodeId>& selected) {
  std::vector<NodeId> all = selected;
  for (const Launch& launch : layout_.launches) {
    const std::vector<NodeId> ids = nodes_of(launch);
    all.insert(all.end(), ids.begin(), ids.end());
    if (!launch.by_row) find_products(launch);
  }
  place_fixed(all);
  place_in_tile(all);
}

int64_t RowTilesWriter::bytes_in_stage() const {
  int64_t bytes = 0;
  for (const CopiedRun& run : runs_) bytes += bytes_in_stage(run);
  return bytes;
}

void RowTilesWriter::declare_ring(const char* rings) {
  writer_.line("__shared__ uint64_t barriers[kWarps * kMostStages{}];", leaves_newest_ ? "" : " + 1");
  writer_.write("__shared__ int next_tile;");
  writer_.line("uint8_t* const ring_memory = reinterpret_cast<uint8_t*>({});", rings);
  writer_.line("const uint32_t ring = shared_address(ring_memory) + warp * a.stages * {};", bytes_in_stage());
  writer_.write("const uint32_t barrier = shared_address(barriers + warp * kMostStages);");
  writer_.line("if (lane < a.stages) barrier_init(barrier + 8 * lane, {});", in_pieces_ ? 32 : 1);
  writer_.write("if (threadIdx.x == 0) next_tile = a.stages * kWarps;");
  if (!leaves_newest_) {
    writer_.write("const uint32_t fields_there = shared_address(barriers + kWarps * kMostStages);");
    writer_.write("if (threadIdx.x == 0) barrier_init(fields_there, kFieldThreads);");
  }
  writer_.write("publish_barriers();");
  writer_.write("__syncwarp();");
}

void RowTilesWriter::write_asking() {
  int page_bytes = 0;
  for (const CopiedRun& run : runs_) page_bytes += run.bytes * run.lines;
  if (!leaves_newest_) {
    writer_.write("// The tile with the newest page has to wait for whoever writes to it, unless that goes straight to a stage.");
    writer_.write("const int newest = has_newest && scored == count ? tiles - 1 : -1;");
    writer_.line("const bool holds_newest = {};",
                 may_hold_newest() ? "a.refreshes && newest >= 0 && newest / kWarps < a.stages" : "false");
  }
  // With fields in pages of their own the id of a page is a pair: of the page with fields, and of that with K and V.
  const bool pairs = layout_.plan.has_field_pages();
  writer_.open("const auto ask = [&](int tile, {} id, int stage)", pairs ? "int2" : "int");
  writer_.line("const int all_pages = min({}, scored - tile * {});", scope_.tile_pages, scope_.tile_pages);
  writer_.line("const int pages = all_pages{};", leaves_newest_ ? "" : " - (holds_newest && tile == newest ? 1 : 0)");
  writer_.write("const uint32_t there = barrier + 8 * stage;");
  writer_.line("const uint32_t to = ring + stage * {};", bytes_in_stage());
  if (!graph_.fields.empty() && !leaves_newest_) {
    writer_.write("if (a.refreshes && tile == newest && !holds_newest) barrier_wait(fields_there, 0);");
  }
  if (!in_pieces_) writer_.line("if (lane == 0) barrier_expect(there, pages * {});", page_bytes);
  int64_t begin = 0;
  for (const CopiedRun& run : runs_) {
    if (in_pieces_) {
      ask_in_pieces(run, begin);
      begin += bytes_in_stage(run);
      continue;
    }
    writer_.open("");
    const char* const id = !pairs ? "id" : run.part.in_field_page ? "id.x" : "id.y";
    const int lines = run.whole ? 1 : run.lines;  // that are asked for one by one
    const int bytes = run.bytes * (run.lines / lines);
    writer_.line("const int page = __shfl_sync(~0U, {}, lane / {});", id, lines);
    writer_.line("if (lane < pages * {}) copy_bytes(to + {} + lane * {}, row.{}(page) + {} + lane % {} * {}, {}, there);", lines,
                 begin, run.whole ? bytes : run.stride(), run.part.in_field_page ? "field_block" : "block", run.part.offset,
                 lines, bytes, bytes);
    writer_.close();
    begin += bytes_in_stage(run);
  }
  if (in_pieces_) writer_.write("arrive_with_pieces(there);");
  writer_.line("if (lane < all_pages) ids[tile * {} + lane] = {};", scope_.tile_pages, pairs ? "id.y" : "id");
  writer_.close(";");
  writer_.open("const auto id_in = [&](int tile)");
  writer_.line("const int at = tile * {} + lane;", scope_.tile_pages);
  writer_.line("const bool exists = lane < {} && at < scored;", scope_.tile_pages);
  writer_.write(pairs ? "return exists ? make_int2(row.field_ids[first + at], row.ids[first + at]) : make_int2(0, 0);"
                      : "return exists ? row.ids[first + at] : 0;");
  writer_.close(";");
  writer_.open("const auto ask_first = [&]");
  writer_.write("auto id = id_in(warp);");
  writer_.write("#pragma unroll 1");
  writer_.open("for (int stage = 0; stage < a.stages; ++stage)");
  writer_.write("const int tile = warp + stage * kWarps;");
  writer_.write("const auto next_id = id_in(tile + kWarps);");
  writer_.line("if (tile < tiles{}) ask(tile, id, stage);", leaves_newest_ ? "" : " && (tile != newest || holds_newest)");
  writer_.write("id = next_id;");
  writer_.close();
  writer_.close(";");
}

/// Of a run that lies at `begin` in a stage.
void RowTilesWriter::ask_in_pieces(const CopiedRun& run, int64_t begin) {
  const int pieces = run.bytes / 16;  // of a line
  const char* const id = !layout_.plan.has_field_pages() ? "id" : run.part.in_field_page ? "id.x" : "id.y";
  writer_.write("#pragma unroll");
  writer_.open("for (int i = 0; i < {}; ++i)", (scope_.tile_pages * run.lines * pieces + 31) / 32);
  writer_.line("const int line = (32 * i + lane) / {};", pieces);
  writer_.line("const int piece = (32 * i + lane) % {} * 16;", pieces);
  writer_.line("const int page = __shfl_sync(~0U, {}, line / {} % 32);", id, run.lines);
  writer_.line("if (line < pages * {}) copy_piece(to + {} + line * {} + piece, row.{}(page) + {} + line % {} * {} + piece);",
               run.lines, begin, run.stride(), run.part.in_field_page ? "field_block" : "block", run.part.offset, run.lines,
               run.bytes);
  writer_.close();
}

void RowTilesWriter::write_newest_asking() {
  writer_.write("const int first_stage = newest / kWarps;");
  writer_.write("if (newest >= 0 && !holds_newest && newest % kWarps == warp && first_stage < a.stages)");
  writer_.write("  ask(newest, id_in(newest), first_stage);");
}

bool RowTilesWriter::may_hold_newest() const {
  const auto is_field = [&](const Product& product) {
    return std::all_of(product.parts.begin(), product.parts.end(),
                       [&](NodeId part) { return node(part).op != Op::kKey && node(part).op != Op::kValue; });
  };
  return !leaves_newest_ && !runs_.empty() && std::all_of(products_.begin(), products_.end(), is_field) &&
         std::all_of(runs_.begin(), runs_.end(), [](const CopiedRun& run) { return run.lines == 1; });
}

std::string RowTilesWriter::newest_line(size_t field) const {
  if (!may_hold_newest()) return "";
  const BlockPart part{layout_.plan.fields().field_offsets[field], graph_.fields[field].type, layout_.plan.has_field_pages()};
  int64_t begin = 0;
  for (const CopiedRun& run : runs_) {
    if (run.has(part)) {
      const auto in_run = static_cast<int64_t>(part.offset - run.part.offset);
      return fmt::format("ring_memory + (newest % kWarps * a.stages + newest / kWarps) * {} + {} + (scored - 1) % {} * {}",
                         bytes_in_stage(), begin + in_run, scope_.tile_pages, run.stride());
    }
    begin += bytes_in_stage(run);
  }
  return "";
}

void RowTilesWriter::write_queries() {
  for (const Product& product : products_) {
    writer_.open("const auto number_{} = [&](int r, int channel)", product.node);
    Index index = split(writer_, product.result_shape, "r");
    at(index, Axis::kDim) = "channel";
    Values values(scope_, writer_);
    writer_.line("return {};", values.read(product.query, index));
    writer_.close(";");
    // A barrier as well.
    writer_.line("{0}write_query_parts<kThreads, {2}, {3}, {4}>(query_{1}, number_{1});",
                 product.joins_parts() ? "" : fmt::format("const int parts_{} = ", product.node), product.node, crew_.type,
                 product.query_shape(compact_queries_), product.bound_name());
  }
}

/// Stores the maxima or minima of `sums`; `odd` if any of these is not finite.
void RowTilesWriter::write_fold(const Product& product) {
  const NodeId id = product.fold.nodes.back();
  const int tokens = graph_.geometry.page;
  const int token_axis = find_axis(product.line_shape, Axis::kToken);
  const bool ragged = token_axis >= 0 && product.line_shape[static_cast<size_t>(token_axis)].extent == tokens;
  writer_.open("const auto counts = [&](int of_product)");
  writer_.write("const int line = first_line + of_product;");
  writer_.line("if (line >= tile_count * {}) return false;", product.lines);
  if (ragged) {
    const Index index = split(writer_, product.line_shape, fmt::format("(line % {})", product.lines));
    writer_.line("return {} < row.last_tokens || tile_first + line / {} != row.pages - 1;", at(index, Axis::kToken),
                 product.lines);
  } else {
    writer_.write("return true;");
  }
  writer_.close(";");
  writer_.open("const auto give = [&](int of_product, {}, float x)", product.fold.of_results ? "int" : "int result");
  writer_.line("const int page = first_line / {} + of_product;", product.lines);
  writer_.write("if (page >= tile_count) return;");
  writer_.write("const int p = tile_first + page;");
  Index index;
  if (!product.fold.of_results) index = split(writer_, product.result_shape, "result");
  at(index, Axis::kPage) = "p";
  writer_.line("{} = x;", *place_of(scope_, id, index));
  writer_.close(";");
  writer_.line("const bool whole = tile_count == {} && tile_first + tile_count < row.pages;", scope_.tile_pages);
  writer_.line("odd |= fold_products<{}, {}, {}, {}>(sums, {}, whole, counts, give);", reduction_of(node(id).op).op,
               product.query_shape(compact_queries_), product.lines, product.fold.of_results,
               reduction_of(node(product.node).op).mean ? fmt::format("{}", product.dim) : "1");
}

/// Stores `sums` where the value belongs; `odd` if any is not finite.
void RowTilesWriter::write_product_results(const Product& product, int groups) {
  const int numbers = 4 * product.tiles();  // of a lane, in a group
  writer_.write("#pragma unroll");
  writer_.open("for (int i = 0; i < {}; ++i)", groups * numbers);
  writer_.line("const float sum = sums[i / {0}][i % {0} / 4][i % 4];", numbers);
  writer_.line("const int line = first_line + i / {} * {} + lane / 4 + i % 4 / 2 * 8;", numbers, kProductLines);
  writer_.line("const int result = i % {} / 4 * 8 + lane % 4 * 2 + i % 2;", numbers);
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

void RowTilesWriter::write_product(const Product& product) {
  comment(product.node);
  writer_.open("");
  const int lines = scope_.tile_pages * product.lines;
  const auto address = [&](NodeId part) {
    const BlockPart of_block = part_of(layout_.plan, node(part));
    int64_t begin = 0;
    size_t i = 0;
    for (; !runs_[i].has(of_block); ++i) begin += bytes_in_stage(runs_[i]);
    const auto in_run = static_cast<int64_t>(of_block.offset - runs_[i].part.offset);
    return fmt::format("from + {} + line * {}", begin + in_run, runs_[i].stride());
  };
  const int groups = groups_of(product, lines, most_groups_);
  writer_.write("bool odd = false;");
  const bool several = lines > groups * kProductLines;
  if (several) {
    writer_.write("#pragma unroll 1");
    writer_.open("for (int first_line = 0; first_line < tile_count * {}; first_line += {})", product.lines,
                 groups * kProductLines);
  } else {
    writer_.write("constexpr int first_line = 0;");
  }
  const bool is_bound = product.bound != Product::Bound::kNone;
  for (const auto& [name, part] : {std::pair("a_line", product.parts.front()), {"b_line", product.parts.back()}}) {
    if (!is_bound && name == std::string_view("b_line")) break;
    writer_.open("const auto {} = [&](int group, int of_group)", name);
    const bool is_full = lines % (groups * kProductLines) == 0;
    const std::string line = fmt::format("first_line + {} * group + of_group", kProductLines);
    writer_.line("const int line = {};", is_full ? line : fmt::format("min({}, {})", line, lines - 1));
    writer_.line("return {};", address(part));
    writer_.close(";");
  }
  writer_.line("float sums[{}][{}][4];", groups, product.tiles());
  const auto multiply = [&](int parts) {
    return fmt::format("multiply_lines<{}, {}, {}, {}>(sums, a_line, {}, query_{});", product.query_shape(compact_queries_),
                       product.bound_name(), parts, product.of_bytes() ? type_name(product.type) : "BF16",
                       is_bound ? "b_line" : "a_line", product.node);
  };
  if (product.joins_parts()) {
    writer_.write(multiply(kMostParts));
  } else {
    writer_.line("if (parts_{} == 1) {}", product.node, multiply(1));
    writer_.line("else {}", multiply(kMostParts));
  }
  if (product.fold.nodes.empty()) {
    write_product_results(product, groups);
  } else {
    write_fold(product);
  }
  if (several) writer_.close();
  writer_.open("if (__any_sync(~0U, odd))");
  unrolled_ = 1;  // this hardly ever runs, and should not be in the way of what does
  if (product.fold.nodes.empty()) {
    writer_.write("__syncwarp();");
    compute_elements(product.node, true, "!isfinite");
  } else {
    compute(product.node, true);
    for (const NodeId id : product.fold.nodes) compute(id, true);
  }
  unrolled_ = 8;
  writer_.close();
  writer_.close();
}

/// Opens the loop over the tiles that a warp takes; the next one is known, and its pages are, while one is computed.
void RowTilesWriter::open_queue() {
  writer_.write("// Lane i has the number of the tile in stage i. Who is done takes the next one.");
  writer_.write("int queued = warp + lane * kWarps;");
  writer_.write("int upcoming = 0;");
  writer_.write(layout_.plan.has_field_pages() ? "int2 upcoming_id = make_int2(0, 0);" : "int upcoming_id = 0;");
  writer_.open("const auto take = [&]");
  writer_.write("if (lane == 0) upcoming = atomicAdd(&next_tile, 1);");
  writer_.write("upcoming = __shfl_sync(~0U, upcoming, 0);");
  writer_.write("upcoming_id = id_in(upcoming);");
  writer_.close(";");
  writer_.write("// Where all have a stage from the start there is no next one.");
  writer_.write("const bool has_queue = tiles > a.stages * kWarps;");
  writer_.write("if (has_queue) {");
  writer_.write("  take();");
  writer_.write("} else {");
  writer_.write("  upcoming = tiles;");
  writer_.write("}");
  writer_.write("uint32_t parity = 0;");
  writer_.open("for (int stage = 0;;)");
  writer_.write("const int tile_index = __shfl_sync(~0U, queued, stage);");
  writer_.write("if (tile_index >= tiles) break;");
}

/// Products of the tile that has arrived; its stage goes to the next one.
void RowTilesWriter::write_stage() {
  writer_.write("barrier_wait(barrier + 8 * stage, parity);");
  if (may_hold_newest()) writer_.write("if (holds_newest && tile_index == newest) barrier_wait(fields_there, 0);");
  writer_.line("const uint32_t from = ring + stage * {};", bytes_in_stage());
  for (const Product& product : products_) write_product(product);
  writer_.write("__syncwarp();");
  writer_.write("if (upcoming < tiles) ask(upcoming, upcoming_id, stage);");
  writer_.write("if (lane == stage) queued = upcoming;");
  writer_.write("if (has_queue) take();");
  writer_.open("if (++stage == a.stages)");
  writer_.write("stage = 0;");
  writer_.write("parity ^= 1;");
  writer_.close();
}

void RowTilesWriter::compute_beside_products(const Launch& launch) {
  for (const NodeId id : layout_.computed_by(launch)) {
    const bool done = std::any_of(products_.begin(), products_.end(),
                                  [&](const Product& product) { return product.node == id || product.fold.has(id); });
    if (!done) compute(id, true);
  }
}

void RowTilesWriter::write_row_tiles(const Launch& launch) {
  crew_ = kWarp;
  scope_.tile_first = "tile_first";
  if (runs_.empty()) {
    writer_.open("for (int tile_index = warp; tile_index < tiles; tile_index += kWarps)");
  } else {
    open_queue();
  }
  writer_.line("const int tile_first = first + tile_index * {};", scope_.tile_pages);
  writer_.line("const int tile_count = min({}, first + scored - tile_first);", scope_.tile_pages);
  if (!runs_.empty()) write_stage();
  compute_beside_products(launch);
  writer_.close();
  writer_.write("__syncthreads();");
  crew_ = kRowBlocks;
  scope_.tile_first = "first";
}

}  // namespace sluice::cuda::codegen
