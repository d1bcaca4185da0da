#include <algorithm>
#include <utility>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/attended_tiles.h"
#include "kernels/cuda/codegen/cluster_writer.h"
#include "kernels/cuda/codegen/kernel_writers.h"
#include "kernels/cuda/codegen/selection_plan.h"
#include "scripting/base/error.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"

namespace sluice::cuda::codegen {
namespace {

constexpr const char* kName = "cover_in_cluster";
constexpr int64_t kBarrierBytes = 8;

/// What a tile of summaries is: SummaryTile in cover_row.cuh.
struct SummaryShape {
  int entries;
  int64_t row_bytes;

  explicit SummaryShape(const PageLayout& layout)
      : entries(layout.kv == DataType::kBF16 ? 32 : 16), row_bytes(2 * layout.head_dim + 16) {}

  int64_t tile_bytes() const { return entries * row_bytes; }
};

const AttendedSource& summaries_of(const Plan& plan) { return plan.attend.sources.at(1); }

/// The kernel in which the blocks of a cluster score, select, and attend under a cover (cover_attending.cuh).
class ClusterCoverWriter final : public ClusterWriter {
 public:
  ClusterCoverWriter(const FlowLayout& layout, Writer& writer)
      : ClusterWriter(layout, writer), source_(summaries_of(layout.plan)), shape_(layout.plan.layout) {
    scope_.held_pages = "own_pages";
  }

  ClusterAttendingKernel write();

 private:
  /// Where everything lies in the memory of a block. Scores and places in the pool are those of the whole row, what else is held
  /// is of the block's own pages.
  ClusterAttendingKernel place_memory();
  /// Where the values of a page's summary begin in its block, and their bytes.
  std::pair<int64_t, int64_t> values_in_block() const;
  /// ask_summary(tile, slot): sends for the values of summaries of this block's pages but the newest, which is always opened;
  /// ask_summaries(): for as many as there is room for.
  void write_summary_asking();
  /// Brings pages that are opened anyway nearer, and where summaries come in turn some of the next, while memory is idle.
  void fetch_while_selecting();
  /// Every block lists what is selected: few pages of the best that blocks tell each other, others of the whole row.
  void write_selection();
  /// What is known of this block's pages once it is known which are opened.
  void declare_covered();
  void write_attention();

  const AttendedSource& source_;
  const SummaryShape shape_;
};

ClusterAttendingKernel ClusterCoverWriter::place_memory() {
  // What a thread has of a row of 64 channels leaves registers for two blocks.
  const Geometry& heads = graph_.geometry;
  ClusterAttendingKernel kernel = open_kernel(kName, heads.head_dim == 64 && heads.group <= 8 ? 2 : 1);
  kernel.listed_bytes = 2 * kNumberBytes;
  kernel.own_bytes = kOwnStep * layout_.held_numbers * kNumberBytes;
  kernel.summary_bytes = shape_.tile_bytes() + kBarrierBytes;
  kernel.summary_pages = shape_.entries;
  writer_.line("using Summaries = decode::SummaryTile<Tile::kElement == 2 ? DataType::kBF16 : DataType::kE4M3, {}>;",
               graph_.geometry.head_dim);
  writer_.line("static_assert(Summaries::kEntries == {} && Summaries::kRowBytes == {});", shape_.entries, shape_.row_bytes);
  writer_.line("const int own_pages = (a.held_pages / {0} + cluster_blocks() - 1) / cluster_blocks() * {0};", kOwnStep);
  writer_.write("float* const held = reinterpret_cast<float*>(row_ids + a.held_pages);");
  writer_.line("uint32_t* const opened = reinterpret_cast<uint32_t*>(held + {} * own_pages);", layout_.held_numbers);
  writer_.write("int* const list = reinterpret_cast<int*>(opened + a.held_pages / 32);");
  writer_.write("int* const positions = list + t.list_room;");
  // All before are multiples of 16 bytes but for the words, and the list: the rings' alignment has room for both.
  place_rings("positions + t.list_room");
  writer_.write("uint8_t* const summaries = rings + t.ring_bytes;");
  writer_.line("const int summary_slots = min(own_pages / {}, t.summary_turns * kWarps);", shape_.entries);
  writer_.write("uint64_t* const summary_barriers = reinterpret_cast<uint64_t*>(summaries + summary_slots * Summaries::kBytes);");
  return kernel;
}

std::pair<int64_t, int64_t> ClusterCoverWriter::values_in_block() const {
  const auto field = static_cast<size_t>(source_.values.field);
  return {static_cast<int64_t>(layout_.plan.fields().field_offsets[field]),
          graph_.geometry.head_dim * static_cast<int64_t>(size_of(graph_.fields[field].type))};
}

void ClusterCoverWriter::write_summary_asking() {
  const auto [offset, bytes] = values_in_block();
  const bool pairs = layout_.plan.has_field_pages();
  writer_.write("const int lasting = has_newest ? count - 1 : count;");
  writer_.open("for (int slot = warp; slot < summary_slots; slot += kWarps)");
  writer_.write("if (lane == 0) barrier_init(shared_address(summary_barriers + slot), 32);");
  writer_.close();
  writer_.write("publish_barriers();");
  writer_.write("__syncwarp();  // no other warp uses these barriers");
  writer_.open("const auto ask_summary = [&](int tile, int slot)");
  writer_.write("const int at = tile * Summaries::kEntries + lane;");
  writer_.line("const int id = lane < Summaries::kEntries && at < lasting ? row.{}[first + at] : 0;",
               pairs ? "field_ids" : "ids");
  const int64_t pieces = bytes / 16;
  writer_.write("#pragma unroll");
  writer_.open("for (int i = 0; i < {}; ++i)", shape_.entries * pieces / 32);
  writer_.line("const int entry = (32 * i + lane) / {};", pieces);
  writer_.line("const int piece = (32 * i + lane) % {} * 16;", pieces);
  writer_.write("const int page = __shfl_sync(~0U, id, entry);");
  writer_.write(
      "const uint32_t to = shared_address(summaries + slot * Summaries::kBytes + entry * Summaries::kRowBytes) + piece;");
  writer_.line("if (tile * Summaries::kEntries + entry < lasting) copy_piece(to, row.{}(page) + {} + piece);",
               pairs ? "field_block" : "block", offset);
  writer_.close();
  writer_.write("arrive_with_pieces(shared_address(summary_barriers + slot));");
  writer_.close(";");
  writer_.open("const auto ask_summaries = [&]");
  writer_.write("#pragma unroll 1");
  writer_.write(
      "for (int tile = warp; tile < summary_slots && tile * Summaries::kEntries < count; tile += kWarps) ask_summary(tile, "
      "tile);");
  writer_.close(";");
}

void ClusterCoverWriter::fetch_while_selecting() {
  constexpr int kTailPages = 16;
  constexpr int kMostPages = 256;  // of a block: what all fetch is to stay in L2 until then
  constexpr int kLine = 128;
  const auto [offset, bytes] = values_in_block();
  const bool pairs = layout_.plan.has_field_pages();
  writer_.write("const int later_summaries = summary_slots * Summaries::kEntries;");
  writer_.open("if (later_summaries < count)");
  fetch_kept_pages(kTailPages);
  writer_.write("#pragma unroll 1");
  writer_.open("for (int at = later_summaries + threadIdx.x; at < min(lasting, later_summaries + {}); at += kThreads)",
               kMostPages);
  writer_.line("const uint8_t* const from = row.{} + {};", pairs ? "field_block(row.field_ids[first + at])" : "block(ids[at])",
               offset);
  for (int64_t line = 0; line < bytes; line += kLine) writer_.line("prefetch_line(from + {});", line);
  writer_.close();
  writer_.close();
  writer_.open("else");
  fetch_kept_pages();
  writer_.close();
}

void ClusterCoverWriter::write_selection() {
  const auto scored = std::find_if(selected_.begin(), selected_.end(), [&](NodeId id) { return is_scored(node(id).op); });
  const RowSlot& score = layout_.slots[static_cast<size_t>(node(*scored).inputs[0])];
  fetch_while_selecting();
  const std::string open_own =
      "if (page >= first && page < first + count) atomicOr(opened + (page - first) / 32, 1U << (page - first) % 32);";
  const Attributes& wanted = node(*scored).attributes;
  if (wanted.ratio == 0 && wanted.k <= kFewPages) {
    writer_.write("__shared__ FewPages few;");
    writer_.write("int chosen;");
    release_memory("tiles of fields were");
    writer_.open("");
    declare_selecting(*scored);
    writer_.open(
        "chosen = select_few<kThreads>(blocks, row, held + {} * own_pages, ids, first, count, what, few, "
        "[&](int rank, int page, int id)",
        score.offset);
    writer_.write("list[rank] = id; positions[rank] = page; " + open_own);
    writer_.close(");");
    writer_.close();
    return;
  }
  writer_.line("for (int i = threadIdx.x; i < count; i += kThreads) row_scores[first + i] = held[{} * own_pages + i];",
               score.offset);
  writer_.write("__syncthreads();");
  writer_.write("share_pages(blocks, row_scores, row_ids, row.pages, first, count);");
  select_whole_row("kThreads", "WholeBlock", "list[rank] = row_ids[page]; positions[rank] = page; " + open_own);
  publish_memory("tiles of fields were");
}

void ClusterCoverWriter::declare_covered() {
  const Node* const bias = source_.bias == kNoNode ? nullptr : &node(source_.bias);
  const bool has_numbers = bias != nullptr && bias->op != Op::kFill;
  const double common = bias != nullptr && bias->op == Op::kFill ? bias->attributes.value : 0;
  const auto at = [&](NodeId id) { return fmt::format("held + {} * own_pages", layout_.slots[static_cast<size_t>(id)].offset); };
  const bool all_have = source_.selection == layout_.plan.attend.selection();  // none of those that are opened counts
  const Attributes none;
  const Attributes& without = all_have ? none : node(source_.selection).attributes;
  writer_.line("const int first_page = min({}, row.pages);", all_have ? 0 : without.first);
  writer_.line("const int end_page = max(first_page, row.pages - {});", all_have ? 0 : without.last);
  writer_.line(
      "const CoveredPages<{}, {}> covered{{blocks, first, count, share, first_page, end_page, {}, {}, t.scale, {} * kLog2E, "
      "opened}};",
      graph_.geometry.group, has_numbers ? elements_per_page(bias->shape) : 0, at(source_.logits),
      has_numbers ? at(source_.bias) : "nullptr", literal(common));
}

void ClusterCoverWriter::write_attention() {
  const int page = graph_.geometry.page;
  const char* const shares = source_.shares ? "true" : "false";
  declare_covered();
  writer_.write("uint8_t* const own_ring = rings + warp * t.value_stages * Tile::kTileBytes;");
  writer_.write("const uint32_t filled = shared_address(value_barriers + warp * Tile::kStages);");
  writer_.write("const int place = blocks.rank + blocks.count * warp;");
  writer_.write("const int step = blocks.count * kWarps;");
  writer_.line("OpenedTiles<Tile, kBox, {}> tiles_asked(list, chosen, place, step);", page);
  writer_.open("if (lane == 0)");
  writer_.write("#pragma unroll 1");
  writer_.write("for (int slot = 0; slot < t.value_stages; ++slot)");
  writer_.write("  tiles_asked.copy(a, t, row.head, shared_address(own_ring + slot * Tile::kTileBytes), filled + 8 * slot);");
  writer_.close();
  writer_.line("decode::CoverRow<AttendedRow, Tile::kElement == 2 ? DataType::kBF16 : DataType::kE4M3, {}> all;",
               graph_.geometry.head_dim);
  writer_.write("Turn turn;");
  writer_.write("#pragma unroll 1");
  writer_.open("for (int tile = warp; tile * Summaries::kEntries < count; tile += kWarps)");
  writer_.write("const int slot = warp + turn.index * kWarps;");
  writer_.line(
      "attend_own_summaries<Summaries, DataType::{}>(covered, tile, summaries + slot * Summaries::kBytes, "
      "shared_address(summary_barriers + slot), turn.parity, all);",
      graph_.fields[static_cast<size_t>(source_.values.field)].type == DataType::kBF16   ? "kBF16"
      : graph_.fields[static_cast<size_t>(source_.values.field)].type == DataType::kE4M3 ? "kE4M3"
                                                                                         : "kE5M2");
  writer_.write("const int later = tile + t.summary_turns * kWarps;");
  // Where all have room this is not to be in the way of what comes.
  writer_.open("if (__builtin_expect(later * Summaries::kEntries < count, 0))");
  writer_.write("__syncwarp();");
  writer_.write("ask_summary(later, slot);");
  writer_.close();
  writer_.write("turn.next(t.summary_turns);");
  writer_.close();
  writer_.line(
      "attend_opened<{}, {}, Tile>(a, t, row, covered, positions, chosen, place, step, own_ring, filled, tiles_asked, mine, "
      "all);",
      shares, page);
  writer_.line("if (blocks.rank == 0 && threadIdx.x == 0) count_covered(row, chosen, end_page - first_page{}, {});",
               source_.shares ? "" : " - chosen", page);
  merge_attended("all");
}

ClusterAttendingKernel ClusterCoverWriter::write() {
  place_values(selected_);
  if (runs_.empty()) return {};
  ClusterAttendingKernel kernel = place_memory();
  begin_barriers();
  declare_share("true", kOwnStep);
  writer_.write("int* const ids = row_ids + first;");
  write_asking();
  write_summary_asking();
  writer_.open("const auto ask_early = [&]");
  writer_.write("ask_first();");
  writer_.write("ask_summaries();");
  writer_.close(";");
  wait_for_row("ask_early()");
  write_refresh(true);
  write_newest_asking();
  writer_.write("#pragma unroll 1");
  writer_.write("for (int i = threadIdx.x; i < (count + 31) / 32; i += kThreads) opened[i] = 0;");
  for (const Launch& launch : layout_.launches) {
    if (launch.by_row) {
      compute_rows(launch);
    } else {
      write_row_tiles(launch);
    }
  }
  declare_attended();
  write_selection();
  write_attention();
  return kernel;
}

}  // namespace

std::string why_not_attending_under_cover(const FlowLayout& layout) {
  const FlowGraph& graph = layout.plan.graph;
  if (layout.selections.empty()) return "nothing is scored";
  if (layout.selections.size() > 1) return "it unites several selections";
  const Node& selection = layout.node(layout.selections.front().node);
  if (selection.op != Op::kTopK) return "pages are opened otherwise than by exact top-k";
  if (!graph.saves.empty()) return "it saves a state";
  if (summaries_of(layout.plan).group_pages > 1) return "pages have summaries together (levels = 2)";
  if (summaries_of(layout.plan).values.state >= 0) return "its summaries are states";
  if (graph.selects_under_masks()) return "it sees parts of pages";
  const std::vector<NodeId> leaves = leaf_selections(graph);
  const bool opens_newest =
      std::any_of(leaves.begin(), leaves.end(), [&](NodeId id) { return layout.node(id).attributes.last > 0; });
  if (!opens_newest) return "it need not open the newest page (tail = 1 or more would)";
  return has_tiles(layout.plan.layout) ? "" : "it attends heads of 64 (bf16) or 128 channels, of bf16, e4m3 or e5m2";
}

ClusterAttendingKernel write_cluster_cover_kernel(const FlowLayout& layout, Writer& writer) {
  return ClusterCoverWriter(layout, writer).write();
}

}  // namespace sluice::cuda::codegen
