#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/codegen/reductions.h"
#include "kernels/cuda/codegen/values.h"

namespace sluice::cuda::codegen {

inline constexpr int kLaneChannels = 8;  // of a lane

/// A piece that a lane reads: its channels of one line of a page, in a block or in a state.
struct LanePiece {
  std::string key, type, from;
  int bytes = 0;
  NodeId node = kNoNode;  // that it is a part of
  std::string base = {};  // what `from` begins at, of a page
};

/// What a lane computes of a page for a reduction over channels: `float sums[padded_results()]`, of its channels `j`, from
/// `part0`, `part1` ..., the pieces that it has read, and from numbers of the query, which stay in registers if they are few.
class LaneSums {
 public:
  LaneSums(const KernelScope& scope, NodeId id);

  /// Numbers a page.
  int results() const { return results_; }
  /// Side by side in `sums`: all, up to a power of two, or one after the other.
  int padded_results() const;
  bool is_unrolled() const { return is_unrolled_; }
  /// Of the result, without pages.
  const Shape& rest() const { return rest_; }
  /// The names that `split` gives to the positions in it.
  Index named_index() const;
  const std::vector<LanePiece>& pieces() const { return pieces_; }
  /// Of all pieces.
  int64_t page_bytes() const;
  /// Whether something else than blocks depends on the page, `p`.
  bool reads_positions() const { return reads_positions_; }
  const Reduction& how() const { return how_; }

  /// Statements before all pages.
  const Writer& hoisted() const { return hoisted_; }
  /// Statements for a page.
  const Writer& text() const { return text_; }

 private:
  static constexpr const char* kChannel = "(lane * 8 + j)";

  void write();
  Index constant_index(int r) const;
  std::optional<std::string> in_register(NodeId id, const Index& index);
  std::string piece_at(const Node& node, NodeId id, Index index);
  std::string hoisted_at(const Node& node, NodeId id, const Index& index);

  const KernelScope& scope_;
  const FlowLayout& layout_;
  const Node& node_;
  Reduction how_;
  int results_ = 1;
  Shape rest_;
  bool is_unrolled_ = true;
  bool reads_positions_ = false;
  bool hoists_ = false;
  std::vector<LanePiece> pieces_;
  Writer text_;
  Writer hoisted_;
  std::map<std::string, std::string> hoisted_names_;
  int hoisted_numbers_ = 0;
};

}  // namespace sluice::cuda::codegen
