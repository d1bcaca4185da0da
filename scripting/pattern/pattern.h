#pragma once

#include <climits>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

/// A size that has no end.
inline constexpr int kUnbounded = INT_MAX;

/// A rectangle of queries and keys, of which strides leave some (SAS, section 4.1): query i is in it if
/// row <= i < row + rows and row_stride divides i - row - row_offset; keys in the same way.
struct PatternRect {
  int row = 0;
  int column = 0;
  int rows = kUnbounded;
  int columns = kUnbounded;
  int row_stride = 1;
  int column_stride = 1;
  int row_offset = 0;
  int column_offset = 0;

  bool operator==(const PatternRect&) const = default;
};

/// A band along the diagonal: offset <= i - j < offset + size, and stride divides i - j - offset.
struct PatternDiag {
  int offset = 0;
  int size = kUnbounded;
  int stride = 1;

  bool operator==(const PatternDiag&) const = default;
};

/// Which keys each query attends to, by their positions alone (SAS, section 4): an expression over rectangles and bands. Queries
/// and keys are counted from 0; the query at i never sees a key beyond i, whatever the expression says. Plain data.
class Pattern {
 public:
  enum class Kind : uint8_t {
    kRect,
    kDiag,
    kAnd,
    kOr,
    kNot,     // of `left`
    kSpread,  // every point of `right` becomes a block, the rectangle `left`: the Kronecker product of both
  };
  struct Node {
    Kind kind = Kind::kRect;
    PatternRect rect = {};
    PatternDiag diag = {};
    int left = -1;  // operands come before the nodes that use them
    int right = -1;

    bool operator==(const Node&) const = default;
  };
  /// Calls `take` with each number that the node's kind has: those of a rectangle, of a band, or the operands.
  template <typename AnyNode, typename Take>
  static void for_each_number(AnyNode& node, Take take) {
    switch (node.kind) {
      case Kind::kRect:
        for (auto* number : {&node.rect.row, &node.rect.column, &node.rect.rows, &node.rect.columns, &node.rect.row_stride,
                             &node.rect.column_stride, &node.rect.row_offset, &node.rect.column_offset}) {
          take(*number);
        }
        return;
      case Kind::kDiag:
        for (auto* number : {&node.diag.offset, &node.diag.size, &node.diag.stride}) take(*number);
        return;
      case Kind::kNot:
        return take(node.left);
      case Kind::kAnd:
      case Kind::kOr:
      case Kind::kSpread:
        take(node.left);
        take(node.right);
    }
  }
  static constexpr int kMostNodes = 256;
  static constexpr int kMostNumber = 1 << 30;  // of positions, sizes and strides

  /// All of these throw InputError for sizes and strides below 1, numbers beyond kMostNumber, offsets that are no residue of
  /// their stride, and expressions of more than kMostNodes.
  static Pattern rect(const PatternRect& rect);
  static Pattern diag(const PatternDiag& diag);
  Pattern operator&(const Pattern& other) const { return joined(Kind::kAnd, other); }
  Pattern operator|(const Pattern& other) const { return joined(Kind::kOr, other); }
  Pattern operator~() const;
  /// `block` is one rectangle at the origin, with an end. Throws InputError for others.
  static Pattern spread(const Pattern& block, const Pattern& pattern);

  /// Every key up to the query's own.
  static Pattern causal() { return diag({}); }
  /// The first `tokens`.
  static Pattern sink(int tokens) { return rect({.columns = tokens}); }
  /// The last `tokens`, the query's own included.
  static Pattern window(int tokens) { return diag({.size = tokens}); }
  /// Every `rate`-th of the last `tokens` * `rate`, the query's own included (LongNet).
  static Pattern dilated(int tokens, int rate);
  /// The query's block of `block` tokens and the `count` - 1 before it.
  static Pattern blocks(int block, int count);
  /// The last `tokens`, and those whose distance is a multiple of `stride` (Sparse Transformers, strided).
  static Pattern strided(int tokens, int stride);
  /// The query's block of `block` tokens, and the last token of every block (Sparse Transformers, fixed).
  static Pattern fixed(int block);

  /// The last is the expression's root.
  std::span<const Node> nodes() const { return nodes_; }
  /// Of nodes that come from elsewhere. Throws InputError if the functions above make no such expression.
  static Pattern of(std::vector<Node> nodes);

  /// Whether the query at `i` sees the key at `j`. Both are 0 at least.
  bool sees(int64_t i, int64_t j) const { return j <= i && holds(root(), i, j); }
  /// Sets bit j - begin of `words` (from the lowest of the first on) if the query at `i` sees the key at j, begin <= j < end, and
  /// clears it otherwise, as those beyond. There are words for end - begin bits at least.
  void row(int64_t i, int64_t begin, int64_t end, std::span<uint32_t> words) const;
  /// Of the keys up to `tokens`.
  void row(int64_t i, int64_t tokens, std::span<uint32_t> words) const { row(i, 0, tokens, words); }

  /// Queries so far apart see much of the same keys beside those close to them, and others see other keys: of patterns with
  /// strides the greatest number that divides them all. 0: there are none. It says where to look, not what is seen.
  int query_stride() const { return static_cast<int>(query_stride(root())); }

  /// About how many words, bits and blocks `row` looks at.
  int64_t row_cost(int64_t tokens) const { return cost(root(), tokens); }

  bool operator==(const Pattern&) const = default;

 private:
  Pattern() = default;
  int64_t query_stride(int node) const;
  int64_t cost(int node, int64_t tokens) const;
  /// Runs of keys side by side that a query sees at most.
  int64_t runs(int node, int64_t tokens) const;
  Pattern joined(Kind kind, const Pattern& other) const;
  Pattern with(Node node) const;
  /// Appends the nodes of `other`; its root's place.
  int append(const Pattern& other);
  int root() const { return static_cast<int>(nodes_.size()) - 1; }
  const Node& at(int node) const { return nodes_[static_cast<size_t>(node)]; }
  bool holds(int node, int64_t i, int64_t j) const;
  /// Sets the bits of a node in those of the keys [begin, end), without regard to what is beyond the query.
  void add(int node, int64_t i, int64_t begin, int64_t end, std::span<uint32_t> words) const;

  std::vector<Node> nodes_;
};

}  // namespace sluice
