#include "kernels/cuda/codegen/lanes.h"

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include "kernels/cuda/codegen/lane_sums.h"
#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kMostInFlight = 12;  // pieces that a lane has asked for at a time
constexpr size_t kMostRingPieces = 4;

/// Whether node `id` may be part of the expression that is reduced; `blocks` counts the parts of blocks in it.
bool fits(const KernelScope& scope, NodeId id, int dim, int& blocks) {
  const FlowLayout& layout = *scope.layout;
  const Node& node = layout.node(id);
  const auto at = static_cast<size_t>(id);
  if (node.op == Op::kConstant || layout.query_only[at]) return true;
  const bool placed = layout.slots[at].stored || scope.slots[at].kind != KernelSlot::Kind::kNone;
  if (placed) return !has_axis(node.shape, Axis::kDim);
  if (is_block_part(node.op) || is_line_of_state(node)) {
    ++blocks;
    return !node.shape.empty() && node.shape.back() == Dimension{Axis::kDim, dim};
  }
  if (is_source(node.op)) return !has_axis(node.shape, Axis::kDim);
  if (!is_elementwise(node.op)) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](NodeId input) { return fits(scope, input, dim, blocks); });
}

}  // namespace

/// Writes the loops of one reduction.
class LaneWriter {
 public:
  LaneWriter(const KernelScope& scope, NodeId id, int lanes) : scope_(scope), id_(id), lanes_(lanes), sums_(scope, id) {
    const size_t pieces = sums_.pieces().size();
    if (!sums_.is_unrolled() || pieces == 0 || pieces > kMostRingPieces) return;
    together_ = std::clamp(lanes_ / sums_.padded_results(), 1, 4 / static_cast<int>(pieces));
    const int wanted = kMostInFlight / static_cast<int>(pieces);
    groups_ = std::max(2, wanted / together_);
  }

  /// Bytes of shared memory for what is on its way; 0: pieces go straight to registers.
  int64_t ring_bytes() const { return int64_t{groups_} * together_ * sums_.page_bytes() * KernelScope::kTileThreads; }

  void begin_tile(Writer& writer) const {
    if (groups_ == 0) return;
    writer.line("// %{} what the first pages need", id_);
    writer.open("");
    write_ask(writer);
    writer.line("for (int group = 0; group < {}; ++group) ask(group);", groups_);
    writer.close();
  }

  void write(Writer& writer) const {
    writer.open("");
    writer.line("const int lane = threadIdx.x % {};", lanes_);
    writer.line("const int team = threadIdx.x / {};", lanes_);
    writer.line("const int teams = blockDim.x / {};", lanes_);
    writer.append(sums_.hoisted());
    if (groups_ > 0) {
      write_pipelined(writer);
    } else {
      write_one_by_one(writer);
    }
    writer.close();
  }

 private:
  /// The address of piece `k` of page `u` of a group in this thread's share of the ring.
  std::string slot(size_t k, const std::string& group) const {
    int64_t before = 0;
    for (size_t i = 0; i < k; ++i) before += sums_.pieces()[i].bytes;
    return fmt::format("ring + ({} % {} * {} + u) * {} + {} + threadIdx.x * {}", group, groups_, together_,
                       sums_.page_bytes() * KernelScope::kTileThreads, before * KernelScope::kTileThreads,
                       sums_.pieces()[k].bytes);
  }

  /// Where what pieces of the page `at` of the tile are parts of lies.
  void declare_bases(Writer& writer, const char* at) const {
    std::set<std::string> declared;
    for (const LanePiece& piece : sums_.pieces()) {
      if (declared.insert(piece.base).second) writer.line("const uint8_t* const {} = {};", piece.base, base_of(piece, at));
    }
  }
  std::string base_of(const LanePiece& piece, const char* at) const {
    const FlowLayout& layout = *scope_.layout;
    const Node& node = layout.node(piece.node);
    if (is_line_of_state(node)) {
      return fmt::format(
          "reinterpret_cast<const uint8_t*>(row.states({}, {}) + {}LL * row.state_capacity() + static_cast<long long>(first + "
          "{}) * {})",
          layout.state_page_numbers, layout.state_fixed_numbers,
          layout.states[static_cast<size_t>(layout.state_index(node.attributes.field))].offset, at,
          elements_per_page(node.shape));
    }
    const BlockPart part = part_of(layout.plan, node);
    return is_tile_part(layout.plan, part) ? tile_block(part, at) : row_block(part, fmt::format("first + {}", at));
  }

  /// ask(group): sends for the pieces of a group of pages, those of team t at group * together * teams + u * teams + t.
  void write_ask(Writer& writer) const {
    writer.open("const auto ask = [&](int group)");
    writer.line("const int lane = threadIdx.x % {};", lanes_);
    writer.line("const int team = threadIdx.x / {};", lanes_);
    writer.line("const int teams = blockDim.x / {};", lanes_);
    writer.write("#pragma unroll");
    writer.open("for (int u = 0; u < {}; ++u)", together_);
    writer.line("const int i = (group * {} + u) * teams + team;", together_);
    writer.write("if (i >= count) continue;");
    declare_bases(writer, "i");
    for (size_t k = 0; k < sums_.pieces().size(); ++k) {
      writer.line("Eight<{}>::ask({}, {});", sums_.pieces()[k].type, slot(k, "group"), sums_.pieces()[k].from);
    }
    writer.close();
    writer.write("end_group_of_pieces();");
    writer.close(";");
  }

  /// Pages in groups of `together_` for each team; `groups_` groups are on their way at any time.
  void write_pipelined(Writer& writer) const {
    const int padded = sums_.padded_results();
    write_ask(writer);
    writer.line("const int groups = (count + {} * teams - 1) / ({} * teams);", together_, together_);
    writer.open("for (int group = 0; group < groups; ++group)");
    writer.line("wait_for_pieces<{}>();", groups_ - 1);
    writer.line("float all[{}];", together_ * padded);
    writer.write("#pragma unroll");
    writer.open("for (int u = 0; u < {}; ++u)", together_);
    for (size_t k = 0; k < sums_.pieces().size(); ++k) {
      writer.line("Eight<{}> part{};", sums_.pieces()[k].type, k);
      writer.line("part{}.read_shared({});", k, slot(k, "group"));
    }
    if (sums_.reads_positions()) writer.line("const int p = first + min((group * {} + u) * teams + team, count - 1);", together_);
    writer.append(sums_.text());
    writer.write("#pragma unroll");
    writer.line("for (int k = 0; k < {}; ++k) all[u * {} + k] = sums[k];", padded, padded);
    writer.close();
    writer.line("ask(group + {});", groups_);
    // The sums of several pages are combined in as few exchanges as those of one.
    const int numbers = together_ * padded;
    const int at_once = std::min(numbers, lanes_);
    const int apart = lanes_ / at_once;
    writer.write("#pragma unroll");
    writer.open("for (int begin = 0; begin < {}; begin += {})", numbers, at_once);
    writer.line("float some[{}];", at_once);
    writer.write("#pragma unroll");
    writer.line("for (int k = 0; k < {}; ++k) some[k] = all[begin + k];", at_once);
    writer.line("const float sum = combine_lanes<{}, {}, {}>(some);", sums_.how().op, at_once, lanes_);
    writer.line("const int number = begin + lane / {};", apart);
    writer.line("const int i = (group * {} + number / {}) * teams + team;", together_, padded);
    writer.line("const int r = number % {};", padded);
    writer.open("if (lane % {} == 0 && i < count && r < {})", apart, sums_.results());
    writer.write("const int p = first + i;");
    store(writer, split(writer, sums_.rest(), "r"));
    writer.close();
    writer.close();
    writer.close();
    writer.write("wait_for_pieces<0>();");
  }

  /// Results that are too many for registers, or of too many parts: one after the other.
  void write_one_by_one(Writer& writer) const {
    writer.open("for (int begin_page = 0; begin_page < count; begin_page += teams)");
    writer.write("const int i = begin_page + team;");
    writer.write("const int p = first + min(i, count - 1);");
    declare_bases(writer, "min(i, count - 1)");
    if (!sums_.is_unrolled()) {
      writer.open("for (int r = 0; r < {}; ++r)", sums_.results());
      split(writer, sums_.rest(), "r");
    }
    for (size_t k = 0; k < sums_.pieces().size(); ++k) {
      writer.line("Eight<{}> part{};", sums_.pieces()[k].type, k);
      writer.line("part{}.read({});", k, sums_.pieces()[k].from);
    }
    writer.append(sums_.text());
    writer.write("#pragma unroll");
    writer.open("for (int k = 0; k < {}; ++k)", sums_.is_unrolled() ? sums_.results() : 1);
    writer.write("float one[1] = {sums[k]};");
    writer.line("const float sum = combine_lanes<{}, 1, {}>(one);", sums_.how().op, lanes_);
    writer.open("if (lane == 0 && i < count)");
    if (sums_.is_unrolled()) {
      store(writer, split(writer, sums_.rest(), "k"));
    } else {
      store(writer, sums_.named_index());
    }
    writer.close();
    writer.close();
    if (!sums_.is_unrolled()) writer.close();
    writer.close();
  }

  /// Stores `sum` as the result at `index` of page `p`.
  void store(Writer& writer, Index index) const {
    at(index, Axis::kPage) = "p";
    writer.line("{} = {};", *place_of(scope_, id_, index), sums_.how().finished("sum", std::to_string(lanes_ * kLaneChannels)));
  }

  const KernelScope& scope_;
  NodeId id_;
  int lanes_;
  LaneSums sums_;
  int together_ = 0;  // pages of a team that are combined together
  int groups_ = 0;    // of those, on their way at a time
};

LaneReduction::LaneReduction(std::unique_ptr<LaneWriter> writer) : writer_(std::move(writer)) {}
LaneReduction::LaneReduction(LaneReduction&&) noexcept = default;
LaneReduction::~LaneReduction() = default;
int64_t LaneReduction::ring_bytes() const { return writer_->ring_bytes(); }
void LaneReduction::begin_tile(Writer& writer) const { writer_->begin_tile(writer); }
void LaneReduction::write(Writer& writer) const { writer_->write(writer); }

std::optional<LaneReduction> find_lane_reduction(const KernelScope& scope, NodeId id) {
  const Node& node = scope.layout->node(id);
  const bool reduces = is_reduction(node.op) || node.op == Op::kContract;
  if (!reduces || node.attributes.axis != Axis::kDim || !has_axis(node.shape, Axis::kPage)) return {};
  const Shape& from = scope.layout->node(node.inputs[0]).shape;
  const int place = find_axis(from, Axis::kDim);
  if (place < 0) return {};
  const int dim = from[static_cast<size_t>(place)].extent;
  const int lanes = dim / kLaneChannels;
  if (dim % kLaneChannels != 0 || lanes > 32 || !std::has_single_bit(static_cast<unsigned>(lanes))) return {};
  int blocks = 0;
  for (const NodeId input : node.inputs) {
    if (!fits(scope, input, dim, blocks)) return {};
  }
  if (blocks == 0) return {};
  return LaneReduction(std::make_unique<LaneWriter>(scope, id, lanes));
}

}  // namespace sluice::cuda::codegen
