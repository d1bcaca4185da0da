#include "kernels/cuda/codegen/held_row_writer.h"

#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/primitives/round_up.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"

namespace sluice::cuda::codegen {

HeldRowWriter::HeldRowWriter(const FlowLayout& layout, Writer& writer, const Crew& crew)
    : RowTilesWriter(layout, writer, crew),
      selected_(leaf_selections(graph_)),
      fields_(layout, writer, kFieldWarps, kFieldThreads) {}

int64_t HeldRowWriter::place_fixed_memory(int warps) {
  const int64_t field_numbers = fields_.numbers();
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

void HeldRowWriter::declare_share(const char* shared, int step) {
  writer_.line("RowBlocks blocks({});", shared);
  declare_row("static_cast<int>(blockIdx.x) / blocks.count");
  writer_.write("// Equal stretches of what the row has, not of what rows may have.");
  writer_.line("const int share = ((row.pages + blocks.count - 1) / blocks.count + {0} - 1) / {0} * {0};", step);
  writer_.write("const int first = min(blocks.rank * share, row.pages);");
  writer_.write("const int count = min(share, row.pages - first);");
  writer_.write("const bool has_newest = count > 0 && first + count == row.pages;");
  declare_newest();
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

void HeldRowWriter::declare_newest() {
  writer_.write("const int newest_page = has_newest ? row.ids[row.pages - 1] : 0;");
  if (layout_.plan.has_field_pages()) {
    writer_.write("const int newest_field_page = has_newest ? row.field_ids[row.pages - 1] : 0;");
  }
}

/// What the newest page's fields are computed from is on its way before it may be read.
void HeldRowWriter::write_prefetch() {
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
void HeldRowWriter::write_refresh(bool is_scored) {
  if (graph_.fields.empty()) return;
  writer_.open("if (a.refreshes && has_newest && threadIdx.x < kFieldThreads)");
  writer_.write("uint8_t* const block = row.block(newest_page);");
  if (layout_.plan.has_field_pages()) writer_.write("uint8_t* const field_block = row.field_block(newest_field_page);");
  writer_.write("const int tokens = row.last_tokens;");
  if (fields_.numbers() > 0) writer_.write("float* const tile = field_values;");
  const bool is_awaited = !runs_.empty() && is_scored;
  if (is_awaited) {
    fields_.write("holds_newest", [&](size_t field) { return newest_line(field); });
    writer_.open("if (newest >= 0)");
    writer_.write("if (!holds_newest) publish_fields();");
    writer_.write("barrier_arrive(fields_there);");
    writer_.close();
  } else {
    fields_.write();
  }
  writer_.close();
  if (runs_.empty()) writer_.write("if (a.refreshes && has_newest) __syncthreads();");  // nothing else waits for these fields
}

std::pair<int, int> HeldRowWriter::kept_pages() const {
  int first = 0;
  int last = 0;
  for (const NodeId id : selected_) {
    first = std::max(first, node(id).attributes.first);
    last = std::max(last, node(id).attributes.last);
  }
  return {first, last};
}

/// What the selection begins with, which needs no scores.
void HeldRowWriter::begin_selection() {
  const auto [first, last] = kept_pages();
  writer_.write("PageSet pages(bits, first, count);");
  writer_.line("pages.begin({}, {}, row.pages, {});", first, last, crew_.threads);
}

/// Brings pages that are selected whatever their scores nearer, for the attention that follows, while memory is idle.
void HeldRowWriter::fetch_kept_pages(int most) {
  int first = 0;
  int last = 0;
  for (const NodeId id : selected_) {
    first = std::max(first, std::min(most, node(id).attributes.first));
    last = std::max(last, std::min(most, node(id).attributes.last));
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
void HeldRowWriter::select_from_row(const char* share) {
  for (const NodeId id : selected_) {
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

}  // namespace sluice::cuda::codegen
