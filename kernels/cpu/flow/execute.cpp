#include "kernels/cpu/flow/execute.h"

#include <hwy/cache_control.h>

#include <algorithm>

#include "kernels/cpu/simd/targets.h"
#include "kernels/device/random.h"

namespace sluice::cpu::flows {

namespace {

Reduction reduction_of(Op op) {
  switch (op) {
    case Op::kMean:
    case Op::kMeanInterleave:
      return Reduction::kMean;
    case Op::kMax:
    case Op::kMaxInterleave:
      return Reduction::kMax;
    case Op::kMin:
    case Op::kMinInterleave:
      return Reduction::kMin;
    case Op::kL2Norm:
    case Op::kL2NormInterleave:
      return Reduction::kL2Norm;
    default:
      return Reduction::kSum;
  }
}

/// Groups of consecutive entries; those that no token has reached yet repeat the last that one has.
void reduce_groups(Reduction reduction, const AxisView& view, int64_t group, const float* x, float* out) {
  const int64_t groups = view.extent / group;
  if (view.used == view.extent) {
    reduce(reduction, {view.outer * groups, group, view.inner, group}, x, out);
    return;
  }
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t g = 0; g < groups; ++g) {
      const float* entries = x + (o * view.extent + g * group) * view.inner;
      float* result = out + (o * groups + g) * view.inner;
      const int64_t used = std::min(group, view.used - g * group);
      if (used > 0) {
        reduce(reduction, {1, group, view.inner, used}, entries, result);
      } else {
        std::copy_n(result - view.inner, view.inner, result);
      }
    }
  }
}

/// Entries start <= position < stop of an axis keep their value.
void mask_slice(const AxisView& view, int64_t first_position, int64_t length, const Attributes& attributes, const float* x,
                float* out) {
  const auto bound = [length](int at) { return at == kToEnd ? length : at < 0 ? length + at : int64_t{at}; };
  const int64_t start = bound(attributes.start);
  const int64_t stop = bound(attributes.stop);
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t j = 0; j < view.used; ++j) {
      const int64_t at = (o * view.extent + j) * view.inner;
      const int64_t position = first_position + j;
      if (position >= start && position < stop) {
        std::copy_n(x + at, view.inner, out + at);
      } else {
        std::fill_n(out + at, view.inner, static_cast<float>(attributes.value));
      }
    }
  }
}

/// Runs one instruction; `x` are its operands and `out` its result, at the first page of the tile.
class Execution {
 public:
  Execution(const Plan& plan, const Program& program, const Instruction& instruction, const Tile& tile, Scratch& scratch)
      : plan_(plan), instruction_(instruction), node_(plan.graph.nodes[static_cast<size_t>(instruction.node)]), tile_(tile) {
    for (size_t i = 0; i < node_.inputs.size(); ++i)
      x_[i] = value_of(plan.graph, program, node_.inputs[i], tile.first, tile, scratch);
    out_ = value_of(plan.graph, program, instruction.node, tile.first, tile, scratch);
    pages_ = instruction.paged ? tile.count : 1;
    if (node_.op == Op::kLoad) {
      const float* state = scratch.states()[static_cast<size_t>(instruction.index)];
      x_[0] = instruction.paged ? state + tile.first * instruction.elements : state;
    }
    if (instruction.fusion) find_leaves(*instruction.fusion, program, scratch);
  }

  void run() const {
    if (instruction_.fusion) {
      const FusedReduction& fused = instruction_.fusion->kernel;
      const PageRun run{tile_.count, tile_.pages - tile_.first};
      return reduce_fused(fused, {leaves_.data(), fused.leaves.size()}, run, view().used, out_);
    }
    switch (instruction_.op) {
      case Op::kQuery:
        std::copy_n(tile_.row->query, instruction_.elements, out_);
        return;
      case Op::kKey:
        return read_tokens(plan_.layout.key_offset);
      case Op::kValue:
        return read_tokens(plan_.layout.value_offset);
      case Op::kField:
        return read_pages(tile_.row->fields, plan_.fields().field_offsets[instruction_.index],
                          plan_.graph.fields[instruction_.index].type);
      case Op::kFill:
        std::fill_n(out_, instruction_.elements * pages_, static_cast<float>(node_.attributes.value));
        return;
      case Op::kPosition:
        for (int i = 0; i < tile_.count; ++i) out_[i] = static_cast<float>(tile_.first + i);
        return;
      case Op::kRandom:
        return draw();
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kDiv:
      case Op::kMaximum:
      case Op::kMinimum:
      case Op::kKron:
        return binary(instruction_.op, instruction_.nest, pages_, x_[0], x_[1], out_);
      case Op::kRelu:
      case Op::kSigmoid:
      case Op::kSilu:
      case Op::kExp:
      case Op::kLog:
      case Op::kAbs:
      case Op::kSqrt:
        return unary(instruction_.op, x_[0], instruction_.elements * pages_, out_);
      case Op::kWhere:
        return where(node_.attributes.compare, instruction_.nest, pages_, x_, out_);
      case Op::kLoad:
      case Op::kReshape:
        std::copy_n(x_[0], instruction_.elements * pages_, out_);
        return;
      case Op::kTranspose:
        return copy_strided(instruction_.nest, pages_, x_[0], out_);
      case Op::kMean:
      case Op::kMax:
      case Op::kMin:
      case Op::kL2Norm:
      case Op::kSum:
        return reduce(reduction_of(instruction_.op), view(), x_[0], out_);
      case Op::kMeanInterleave:
      case Op::kMaxInterleave:
      case Op::kMinInterleave:
      case Op::kL2NormInterleave:
      case Op::kSumInterleave:
        return reduce_groups(reduction_of(instruction_.op), view(), node_.attributes.group, x_[0], out_);
      case Op::kContract:
        return contract(instruction_.nest, pages_, view().used, instruction_.a_step, instruction_.b_step, x_[0], x_[1], out_);
      case Op::kSoftmax:
        return softmax(view(), x_[0], out_);
      case Op::kNormalize:
        return normalize(view(), x_[0], out_);
      case Op::kConv1d:
        return convolve(view(), node_.attributes.kernel, x_[0], out_);
      case Op::kMaskSlice: {
        const AxisView along = view();
        const bool by_page = instruction_.along_page;
        return mask_slice(along, by_page ? tile_.first : 0, by_page ? tile_.pages : along.used, node_.attributes, x_[0], out_);
      }
      default:
        throw InternalError("flow: no kernel for " + std::string(name_of(instruction_.op)));
    }
  }

 private:
  static constexpr int kPagesAhead = 16;
  static constexpr size_t kMostPrefetched = 512;  // bytes; hardware goes on from there

  void find_leaves(const Fusion& fusion, const Program& program, Scratch& scratch) {
    for (size_t i = 0; i < fusion.sources.size(); ++i) {
      const Fusion::Source& source = fusion.sources[i];
      if (fusion.kernel.leaves[i].in_page) {
        const PageTable& table = source.is_field ? tile_.row->fields : tile_.row->tokens;
        leaves_[i] = {table.base + source.page_offset, table.stride, table.pages.data() + tile_.first};
      } else {
        const float* values = value_of(plan_.graph, program, source.node, tile_.first, tile_, scratch);
        const auto per_page = static_cast<size_t>(program.slots[static_cast<size_t>(source.node)].per_page);
        leaves_[i] = {reinterpret_cast<const std::byte*>(values), per_page * sizeof(float), nullptr};
      }
    }
  }

  /// The axis that the instruction works along, with the entries that exist.
  AxisView view() const {
    AxisView view = instruction_.view;
    if (instruction_.along_page) {
      view.extent = view.used = pages_;
    } else {
      view.outer *= pages_;
      if (instruction_.ragged && tile_.first + tile_.count == tile_.pages) view.used = tile_.tokens;
    }
    return view;
  }

  /// K or V.
  void read_tokens(size_t offset) const {
    const DataType type = plan_.layout.kv;
    if (tile_.row == nullptr) return widen(type, tile_.page + offset, instruction_.elements, out_);
    read_pages(tile_.row->tokens, offset, type);
  }

  void read_pages(const PageTable& table, size_t offset, DataType type) const {
    for (int i = 0; i < tile_.count; ++i) {
      prefetch(table, tile_.first + i + kPagesAhead, offset, size_of(type));
      widen(type, table.page(tile_.first + i) + offset, instruction_.elements, out_ + i * instruction_.elements);
    }
  }

  /// Pages lie anywhere in the pool, where hardware does not foresee them.
  void prefetch(const PageTable& table, int position, size_t offset, size_t element_bytes) const {
    if (position >= tile_.pages) return;
    const std::byte* part = table.page(position) + offset;
    const size_t bytes = std::min(static_cast<size_t>(instruction_.elements) * element_bytes, kMostPrefetched);
    for (size_t at = 0; at < bytes; at += 64) hwy::Prefetch(part + at);
  }

  void draw() const {
    const FlowRow& row = *tile_.row;
    const uint64_t key = random_key(row.seed, RandomPurpose::kRandom, row.layer, row.kv_head, row.step);
    for (int i = 0; i < tile_.count; ++i) out_[i] = random_uniform(key, tile_.first + i);
  }

  const Plan& plan_;
  const Instruction& instruction_;
  const Node& node_;
  const Tile& tile_;
  std::array<const float*, 4> x_{};
  std::array<LeafSource, Expression::kMostLeaves> leaves_{};  // of a fused reduction
  float* out_ = nullptr;
  int64_t pages_ = 1;
};

}  // namespace

float* value_of(const FlowGraph& graph, const Program& program, NodeId node, int page, const Tile& tile, Scratch& scratch) {
  const Slot& slot = program.slots[static_cast<size_t>(node)];
  switch (slot.place) {
    case Place::kFixed:
      return scratch.fixed(slot.offset);
    case Place::kTile:
      return scratch.tile(slot.offset * tile.tile_pages) + (page - tile.tile_first) * slot.per_page;
    case Place::kRow:
      return scratch.rows(slot.offset) + page * slot.per_page;
    case Place::kState:
      return scratch.states()[static_cast<size_t>(slot.offset)] + page * slot.per_page;
    case Place::kMass:
      return scratch.masses() + page * slot.per_page;
    case Place::kNone:
      return nullptr;
  }
  throw InternalError("flow: node " + std::to_string(node) + " of " + graph.name + " lies nowhere");
}

void execute(const Plan& plan, const Program& program, const Instruction& instruction, const Tile& tile, Scratch& scratch) {
  const bool has_last = tile.first + tile.count == tile.pages;
  const bool short_last = instruction.ragged && has_last && tile.tokens < plan.graph.geometry.page;
  if (!short_last || tile.count == 1) {
    Execution(plan, program, instruction, tile, scratch).run();
    return;
  }
  // Whole pages, then the last one by itself.
  Tile part = tile;
  part.count = tile.count - 1;
  Execution(plan, program, instruction, part, scratch).run();
  part.first = tile.first + part.count;
  part.count = 1;
  Execution(plan, program, instruction, part, scratch).run();
}

}  // namespace sluice::cpu::flows
