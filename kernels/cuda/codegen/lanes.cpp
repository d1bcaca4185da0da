#include "kernels/cuda/codegen/lanes.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/cuda/codegen/reductions.h"
#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kChannels = 8;       // of a lane
constexpr int kMostUnrolled = 16;  // results a page that are computed side by side
constexpr int kMostSums = 256;     // computations of all of them
constexpr int kMostHoisted = 96;   // numbers of the query that stay in registers
constexpr int kMostInFlight = 12;  // pieces that a lane has asked for at a time
constexpr size_t kMostRingParts = 4;

/// Whether node `id` may be part of the expression that is reduced; `blocks` counts the parts of blocks in it.
bool fits(const KernelScope& scope, NodeId id, int dim, int& blocks) {
  const FlowLayout& layout = *scope.layout;
  const Node& node = layout.node(id);
  const auto at = static_cast<size_t>(id);
  if (node.op == Op::kConstant || layout.query_only[at]) return true;
  const bool placed = layout.slots[at].stored || scope.slots[at].kind != KernelSlot::Kind::kNone;
  if (placed) return !has_axis(node.shape, Axis::kDim);
  if (is_block_part(node.op)) {
    ++blocks;
    return !node.shape.empty() && node.shape.back() == Dimension{Axis::kDim, dim};
  }
  if (is_source(node.op)) return !has_axis(node.shape, Axis::kDim);
  if (!is_elementwise(node.op)) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](NodeId input) { return fits(scope, input, dim, blocks); });
}

int bytes_of_piece(DataType type) { return kChannels * static_cast<int>(size_of(type)); }

}  // namespace

/// Writes the loops of one reduction.
class LaneWriter {
 public:
  LaneWriter(const KernelScope& scope, NodeId id, int lanes)
      : scope_(scope), layout_(*scope.layout), id_(id), node_(layout_.node(id)), lanes_(lanes) {
    how_ = reduction_of(node_.op);
    results_ = static_cast<int>(elements_per_page(node_.shape));
    for (const Dimension& dimension : node_.shape) {
      if (dimension.axis != Axis::kPage) rest_.push_back(dimension);
    }
    int computations = 1;  // of a result
    for (const NodeId input : node_.inputs) computations += layout_.inlined[static_cast<size_t>(input)];
    unrolled_ = results_ <= kMostUnrolled && results_ * computations <= kMostSums;
    hoists_ = unrolled_;
    write_sums();
    if (hoisted_numbers_ > kMostHoisted) {
      parts_.clear();
      hoisted_ = Writer();
      hoisted_names_.clear();
      hoists_ = false;
      write_sums();
    }
    if (unrolled_ && !parts_.empty() && parts_.size() <= kMostRingParts) {
      together_ = std::clamp(lanes_ / padded_results(), 1, 4 / static_cast<int>(parts_.size()));
      const int wanted = kMostInFlight / static_cast<int>(parts_.size());
      groups_ = std::max(2, wanted / together_);
    }
  }

  /// Bytes of shared memory for what is on its way; 0: pieces go straight to registers.
  int64_t ring_bytes() const { return int64_t{groups_} * together_ * page_bytes() * KernelScope::kTileThreads; }

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
    writer.append(hoisted_);
    if (groups_ > 0) {
      write_pipelined(writer);
    } else {
      write_one_by_one(writer);
    }
    writer.close();
  }

 private:
  struct Part {
    std::string key, type, from;
    int bytes;  // of a piece
  };

  int64_t page_bytes() const {
    int64_t bytes = 0;
    for (const Part& part : parts_) bytes += part.bytes;
    return bytes;
  }

  /// The address of part `k` of page `u` of a group in this thread's share of the ring.
  std::string slot(size_t k, const std::string& group) const {
    int64_t before = 0;
    for (size_t i = 0; i < k; ++i) before += parts_[i].bytes;
    return fmt::format("ring + ({} % {} * {} + u) * {} + {} + threadIdx.x * {}", group, groups_, together_,
                       page_bytes() * KernelScope::kTileThreads, before * KernelScope::kTileThreads, parts_[k].bytes);
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
    writer.write("const uint8_t* const block = row.block(ids[i]);");
    for (size_t k = 0; k < parts_.size(); ++k) {
      writer.line("Eight<{}>::ask({}, {});", parts_[k].type, slot(k, "group"), parts_[k].from);
    }
    writer.close();
    writer.write("end_group_of_pieces();");
    writer.close(";");
  }

  /// Pages in groups of `together_` for each team; `groups_` groups are on their way at any time.
  void write_pipelined(Writer& writer) const {
    const int padded = padded_results();
    write_ask(writer);
    writer.line("const int groups = (count + {} * teams - 1) / ({} * teams);", together_, together_);
    writer.open("for (int group = 0; group < groups; ++group)");
    writer.line("wait_for_pieces<{}>();", groups_ - 1);
    writer.line("float all[{}];", together_ * padded);
    writer.write("#pragma unroll");
    writer.open("for (int u = 0; u < {}; ++u)", together_);
    for (size_t k = 0; k < parts_.size(); ++k) {
      writer.line("Eight<{}> part{};", parts_[k].type, k);
      writer.line("part{}.read_shared({});", k, slot(k, "group"));
    }
    if (reads_positions_) writer.line("const int p = first + min((group * {} + u) * teams + team, count - 1);", together_);
    writer.append(sums_);
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
    writer.line("const float sum = combine_lanes<{}, {}, {}>(some);", how_.op, at_once, lanes_);
    writer.line("const int number = begin + lane / {};", apart);
    writer.line("const int i = (group * {} + number / {}) * teams + team;", together_, padded);
    writer.line("const int r = number % {};", padded);
    writer.open("if (lane % {} == 0 && i < count && r < {})", apart, results_);
    writer.write("const int p = first + i;");
    store(writer, split(writer, rest_, "r"));
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
    writer.write("const uint8_t* const block = row.block(ids[min(i, count - 1)]);");
    if (!unrolled_) {
      writer.open("for (int r = 0; r < {}; ++r)", results_);
      split(writer, rest_, "r");
    }
    for (size_t k = 0; k < parts_.size(); ++k) {
      writer.line("Eight<{}> part{};", parts_[k].type, k);
      writer.line("part{}.read({});", k, parts_[k].from);
    }
    writer.append(sums_);
    writer.write("#pragma unroll");
    writer.open("for (int k = 0; k < {}; ++k)", unrolled_ ? results_ : 1);
    writer.write("float one[1] = {sums[k]};");
    writer.line("const float sum = combine_lanes<{}, 1, {}>(one);", how_.op, lanes_);
    writer.open("if (lane == 0 && i < count)");
    if (unrolled_) {
      store(writer, split(writer, rest_, "k"));
    } else {
      store(writer, named_index());
    }
    writer.close();
    writer.close();
    if (!unrolled_) writer.close();
    writer.close();
  }

  /// Stores `sum` as the result at `index` of page `p`.
  void store(Writer& writer, Index index) const {
    at(index, Axis::kPage) = "p";
    writer.line("{} = {};", *place_of(scope_, id_, index), how_.finished("sum", std::to_string(lanes_ * kChannels)));
  }

  int padded_results() const { return unrolled_ ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(results_))) : 1; }

  /// Sums of this lane's channels: sums[results].
  void write_sums() {
    sums_ = Writer();
    const int count = unrolled_ ? results_ : 1;
    sums_.line("float sums[{}];", padded_results());
    sums_.write("#pragma unroll");
    sums_.line("for (float& sum : sums) sum = {}::start();", how_.op);
    sums_.write("#pragma unroll");
    sums_.open("for (int j = 0; j < {}; ++j)", kChannels);
    Values values(scope_, sums_);
    values.set_override([this](NodeId id, const Index& index) { return in_register(id, index); });
    for (int r = 0; r < count; ++r) {
      Index index = unrolled_ ? constant_index(r) : named_index();
      at(index, Axis::kPage) = "p";
      at(index, Axis::kDim) = kChannel;
      std::string x = values.read(node_.inputs[0], index);
      if (node_.op == Op::kContract) x = fmt::format("{} * {}", x, values.read(node_.inputs[1], index));
      sums_.write(how_.step(fmt::format("sums[{}]", r), x));
    }
    sums_.close();
  }

  Index constant_index(int r) const {
    Index index;
    for (size_t i = rest_.size(); i-- > 0;) {
      at(index, rest_[i].axis) = std::to_string(r % rest_[i].extent);
      r /= rest_[i].extent;
    }
    return index;
  }
  /// The names that `split` gives.
  Index named_index() const {
    Index index;
    for (const Dimension& dimension : rest_) at(index, dimension.axis) = fmt::format("i_{}", name_of(dimension.axis));
    return index;
  }

  std::optional<std::string> in_register(NodeId id, const Index& index) {
    const Node& node = layout_.node(id);
    if (is_block_part(node.op)) return part_at(node, id, index);
    if (has_axis(node.shape, Axis::kPage)) reads_positions_ = true;
    if (hoists_ && hoisted_numbers_ <= kMostHoisted && layout_.query_only[static_cast<size_t>(id)] && node.op != Op::kConstant)
      return hoisted_at(node, id, index);
    return {};
  }

  std::string part_at(const Node& node, NodeId id, Index index) {
    at(index, Axis::kDim) = fmt::format("lane * {}", kChannels);
    const BlockPart part = part_of(layout_.plan, node);
    const std::string position = linear(node.shape, index);
    const std::string key = fmt::format("{}:{}", id, position);
    size_t k = 0;
    while (k < parts_.size() && parts_[k].key != key) ++k;
    if (k == parts_.size())
      parts_.push_back(
          {key, type_name(part.type), fmt::format("block + {}, {}", part.offset, position), bytes_of_piece(part.type)});
    return fmt::format("part{}.of(j)", k);
  }

  std::string hoisted_at(const Node& node, NodeId id, const Index& index) {
    const bool channels = has_axis(node.shape, Axis::kDim);
    const std::string key = fmt::format("{}:{}", id, linear(node.shape, index));
    auto known = hoisted_names_.find(key);
    if (known == hoisted_names_.end()) {
      const std::string name = fmt::format("q{}", hoisted_names_.size());
      hoisted_numbers_ += channels ? kChannels : 1;
      hoisted_.line("float {}[{}];", name, channels ? kChannels : 1);
      hoisted_.write("#pragma unroll");
      hoisted_.open("for (int j = 0; j < {}; ++j)", channels ? kChannels : 1);
      Values values(scope_, hoisted_);
      hoisted_.line("{}[j] = {};", name, values.read(id, index));
      hoisted_.close();
      known = hoisted_names_.emplace(key, name).first;
    }
    return fmt::format("{}[{}]", known->second, channels ? "j" : "0");
  }

  static constexpr const char* kChannel = "(lane * 8 + j)";

  const KernelScope& scope_;
  const FlowLayout& layout_;
  NodeId id_;
  const Node& node_;
  int lanes_;
  Reduction how_;
  int results_ = 1;  // numbers a page
  Shape rest_;       // of the result, without pages
  Writer sums_;
  std::vector<Part> parts_;
  bool unrolled_ = true;
  bool reads_positions_ = false;  // something else than blocks depends on the page
  bool hoists_ = false;
  Writer hoisted_;
  std::map<std::string, std::string> hoisted_names_;
  int hoisted_numbers_ = 0;
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
  const int lanes = dim / kChannels;
  if (dim % kChannels != 0 || lanes > 32 || !std::has_single_bit(static_cast<unsigned>(lanes))) return {};
  int blocks = 0;
  for (const NodeId input : node.inputs) {
    if (!fits(scope, input, dim, blocks)) return {};
  }
  if (blocks == 0) return {};
  return LaneReduction(std::make_unique<LaneWriter>(scope, id, lanes));
}

}  // namespace sluice::cuda::codegen
