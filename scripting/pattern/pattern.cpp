#include "scripting/pattern/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "scripting/base/bits.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using Words = std::span<uint32_t>;

void check_size(const char* what, int size) {
  if (size == kUnbounded) return;
  if (size < 1 || size > Pattern::kMostNumber) {
    throw InputError(fmt::format("{} = {} is not between 1 and 2^30", what, size));
  }
}

void check_position(const char* what, int position) {
  if (position < 0 || position > Pattern::kMostNumber) {
    throw InputError(fmt::format("{} = {} is not between 0 and 2^30", what, position));
  }
}

void check_stride(const char* what, int stride, int offset) {
  if (stride < 1 || stride > Pattern::kMostNumber) {
    throw InputError(fmt::format("{}: a stride of {} is not between 1 and 2^30", what, stride));
  }
  if (offset < 0 || offset >= stride) {
    throw InputError(fmt::format("{}: an offset of {} is not from 0 to below the stride, {}", what, offset, stride));
  }
}

void check(const PatternRect& rect) {
  check_position("rect: at, row", rect.row);
  check_position("rect: at, column", rect.column);
  check_size("rect: size, rows", rect.rows);
  check_size("rect: size, columns", rect.columns);
  check_stride("rect: rows", rect.row_stride, rect.row_offset);
  check_stride("rect: columns", rect.column_stride, rect.column_offset);
}

void check(const PatternDiag& diag) {
  if (diag.offset < -Pattern::kMostNumber || diag.offset > Pattern::kMostNumber) {
    throw InputError(fmt::format("diag: offset = {} is beyond 2^30", diag.offset));
  }
  check_size("diag: size", diag.size);
  check_stride("diag", diag.stride, 0);
}

bool is_block(const Pattern::Node& node) {
  return node.kind == Pattern::Kind::kRect && node.rect.row == 0 && node.rect.column == 0 && node.rect.rows != kUnbounded &&
         node.rect.columns != kUnbounded;
}

void check_block(const Pattern::Node& node) {
  if (is_block(node)) return;
  throw InputError("a spread wants a block: one rectangle at 0, 0 with an end",
                   "for example sluice.pattern.rect{size = {64, 64}} >> sluice.pattern.diag{size = 2}");
}

/// Whether a coordinate is in [first, first + size) and on the stride.
bool is_on(int64_t at, int first, int size, int stride, int offset) {
  const int64_t from = at - first;
  return from >= 0 && (size == kUnbounded || from < size) && (from - offset) % stride == 0;
}

bool row_in(const PatternRect& rect, int64_t i) { return is_on(i, rect.row, rect.rows, rect.row_stride, rect.row_offset); }

/// Keys [begin, end) of a row; bit j - begin stands for key j.
struct KeyRange {
  int64_t begin;
  int64_t end;

  int64_t size() const { return end - begin; }
};

/// Sets the bits of first, first + stride, ... below `end`, as far as they are in the range.
void set_strided_bits(Words words, const KeyRange& keys, int64_t first, int64_t end, int64_t stride) {
  end = std::min(end, keys.end);
  if (first < keys.begin) first += (keys.begin - first + stride - 1) / stride * stride;
  if (stride == 1) return set_bits(words, first - keys.begin, end - keys.begin);
  if (stride >= 32 || end - first <= 32) {
    for (int64_t key = first; key < end; key += stride) set_bit(words, key - keys.begin);
    return;
  }
  uint32_t comb = 0;
  for (int64_t tooth = 0; tooth < 32; tooth += stride) comb |= uint32_t{1} << tooth;
  for (int64_t at = first - keys.begin; at < end - keys.begin;) {  // a word at a time
    const int64_t word = at / 32;
    const int64_t left = end - keys.begin - 32 * word;
    const uint32_t within = left < 32 ? (uint32_t{1} << left) - 1 : ~uint32_t{0};
    words[static_cast<size_t>(word)] |= comb << at % 32 & within;
    at += ((31 - at % 32) / stride + 1) * stride;
  }
}

/// Columns of a rectangle that begins at `first`, whichever its row is.
void set_columns(Words words, const KeyRange& keys, const PatternRect& rect, int64_t first) {
  const int64_t end = rect.columns == kUnbounded ? keys.end : first + rect.columns;
  set_strided_bits(words, keys, first + rect.column_offset, end, rect.column_stride);
}

void set_band(Words words, const KeyRange& keys, const PatternDiag& diag, int64_t i) {
  // j = i - offset - k * stride for k = 0, 1, ... below size / stride.
  const int64_t last = i - diag.offset;
  const int64_t least = diag.size == kUnbounded ? 0 : std::max<int64_t>(0, last - diag.size + 1);
  if (last < least) return;
  set_strided_bits(words, keys, last - (last - least) / diag.stride * diag.stride, last + 1, diag.stride);
}

size_t words_for(int64_t tokens) { return static_cast<size_t>((tokens + 31) / 32); }

/// Calls use(begin, end) for each run of bits that are set.
template <class Use>
void for_each_run(std::span<const uint32_t> words, const Use& use) {
  int64_t begin = -1;  // of a run that has begun
  for (size_t w = 0; w < words.size(); ++w) {
    const int64_t at = 32 * static_cast<int64_t>(w);
    // One run ends, or begins, at each change of bits.
    uint32_t changes = words[w] ^ (words[w] << 1 | static_cast<uint32_t>(begin >= 0));
    for (; changes != 0; changes &= changes - 1) {
      const int64_t change = at + std::countr_zero(changes);
      if (begin >= 0) use(begin, change);
      begin = begin >= 0 ? -1 : change;
    }
  }
  if (begin >= 0) use(begin, 32 * static_cast<int64_t>(words.size()));
}

int64_t width_of(int columns, int64_t tokens) { return columns == kUnbounded ? tokens : std::min<int64_t>(tokens, columns); }

/// Whether blocks that stand side by side have no gap.
bool is_whole(const PatternRect& block) { return block.column_stride == 1; }

}  // namespace

Pattern Pattern::rect(const PatternRect& rect) {
  check(rect);
  return Pattern().with({.kind = Kind::kRect, .rect = rect});
}

Pattern Pattern::diag(const PatternDiag& diag) {
  check(diag);
  return Pattern().with({.kind = Kind::kDiag, .diag = diag});
}

Pattern Pattern::operator~() const { return with({.kind = Kind::kNot, .left = root()}); }

Pattern Pattern::spread(const Pattern& block, const Pattern& pattern) {
  check_block(block.at(block.root()));
  return block.joined(Kind::kSpread, pattern);
}

Pattern Pattern::dilated(int tokens, int rate) {
  if (rate < 1 || tokens < 1 || tokens > kMostNumber / rate) {
    throw InputError(fmt::format("dilated({}, {}): both are 1 at least, and their product 2^30 at most", tokens, rate));
  }
  return diag({.size = tokens * rate, .stride = rate});
}

Pattern Pattern::blocks(int block, int count) { return spread(rect({.rows = block, .columns = block}), diag({.size = count})); }

Pattern Pattern::strided(int tokens, int stride) { return window(tokens) | diag({.stride = stride}); }

Pattern Pattern::fixed(int block) { return blocks(block, 1) | rect({.column_stride = block, .column_offset = block - 1}); }

Pattern Pattern::of(std::vector<Node> nodes) {
  if (nodes.empty()) throw InputError("a pattern of nothing");
  if (nodes.size() > kMostNodes) throw InputError(fmt::format("a pattern of more than {} parts", kMostNodes));
  std::vector<bool> used(nodes.size());
  for (size_t place = 0; place < nodes.size(); ++place) {
    const Node& node = nodes[place];
    // Each is used once, or short expressions would take for ever.
    const auto check_operand = [&](int operand) {
      if (operand < 0 || operand >= static_cast<int>(place) || used[static_cast<size_t>(operand)]) {
        throw InputError("a pattern whose parts are out of order");
      }
      used[static_cast<size_t>(operand)] = true;
    };
    switch (node.kind) {
      case Kind::kRect:
        check(node.rect);
        continue;
      case Kind::kDiag:
        check(node.diag);
        continue;
      case Kind::kNot:
        check_operand(node.left);
        continue;
      case Kind::kAnd:
      case Kind::kOr:
      case Kind::kSpread:
        check_operand(node.left);
        check_operand(node.right);
        if (node.kind == Kind::kSpread) check_block(nodes[static_cast<size_t>(node.left)]);
        continue;
    }
    throw InputError("a pattern with a part of an unknown kind");
  }
  if (std::count(used.begin(), used.end(), false) != 1) throw InputError("a pattern with parts that are not used");
  Pattern pattern;
  pattern.nodes_ = std::move(nodes);
  return pattern;
}

Pattern Pattern::joined(Kind kind, const Pattern& other) const {
  Pattern both = *this;
  const int right = both.append(other);
  return both.with({.kind = kind, .left = root(), .right = right});
}

Pattern Pattern::with(Node node) const {
  if (nodes_.size() >= kMostNodes) throw InputError(fmt::format("a pattern of more than {} parts", kMostNodes));
  Pattern more = *this;
  more.nodes_.push_back(node);
  return more;
}

int Pattern::append(const Pattern& other) {
  const int base = static_cast<int>(nodes_.size());
  for (Node node : other.nodes_) {
    if (node.left >= 0) node.left += base;
    if (node.right >= 0) node.right += base;
    nodes_.push_back(node);
  }
  return root();
}

bool Pattern::holds(int node, int64_t i, int64_t j) const {
  const Node& own = at(node);
  switch (own.kind) {
    case Kind::kRect:
      return row_in(own.rect, i) && is_on(j, own.rect.column, own.rect.columns, own.rect.column_stride, own.rect.column_offset);
    case Kind::kDiag: {
      const int64_t behind = i - j - own.diag.offset;
      return behind >= 0 && (own.diag.size == kUnbounded || behind < own.diag.size) && behind % own.diag.stride == 0;
    }
    case Kind::kAnd:
      return holds(own.left, i, j) && holds(own.right, i, j);
    case Kind::kOr:
      return holds(own.left, i, j) || holds(own.right, i, j);
    case Kind::kNot:
      return !holds(own.left, i, j);
    case Kind::kSpread: {
      const PatternRect& block = at(own.left).rect;
      return holds(own.left, i % block.rows, j % block.columns) && holds(own.right, i / block.rows, j / block.columns);
    }
  }
  throw InternalError("a pattern with a part of an unknown kind");
}

void Pattern::add(int node, int64_t i, int64_t begin, int64_t end, Words words) const {
  const Node& own = at(node);
  const KeyRange keys{begin, end};
  const size_t count = words_for(keys.size());
  switch (own.kind) {
    case Kind::kRect:
      if (row_in(own.rect, i)) set_columns(words, keys, own.rect, own.rect.column);
      return;
    case Kind::kDiag:
      return set_band(words, keys, own.diag, i);
    case Kind::kOr:
      add(own.left, i, begin, end, words);
      return add(own.right, i, begin, end, words);
    case Kind::kAnd: {
      std::vector<uint32_t> left(count);
      std::vector<uint32_t> right(count);
      add(own.left, i, begin, end, left);
      add(own.right, i, begin, end, right);
      for (size_t w = 0; w < count; ++w) words[w] |= left[w] & right[w];
      return;
    }
    case Kind::kNot: {
      std::vector<uint32_t> inner(count);
      add(own.left, i, begin, end, inner);
      for (size_t w = 0; w < count; ++w) inner[w] = ~inner[w];
      if (keys.size() % 32 != 0) inner[count - 1] &= ~uint32_t{0} >> (32 - keys.size() % 32);
      for (size_t w = 0; w < count; ++w) words[w] |= inner[w];
      return;
    }
    case Kind::kSpread: {
      const PatternRect& block = at(own.left).rect;
      if (!row_in(block, i % block.rows)) return;
      const KeyRange blocks{begin / block.columns, (end + block.columns - 1) / block.columns};
      std::vector<uint32_t> inner(words_for(blocks.size()));
      add(own.right, i / block.rows, blocks.begin, blocks.end, inner);
      for_each_run(inner, [&](int64_t first, int64_t last) {
        if (is_whole(block)) {
          const int64_t width = block.columns;
          set_strided_bits(words, keys, (blocks.begin + first) * width, (blocks.begin + last) * width, 1);
          return;
        }
        for (int64_t b = blocks.begin + first; b < blocks.begin + last; ++b) set_columns(words, keys, block, b * block.columns);
      });
      return;
    }
  }
  throw InternalError("a pattern with a part of an unknown kind");
}

int64_t Pattern::query_stride(int node) const {
  const auto of = [](int stride) { return stride > 1 ? stride : 0; };
  const Node& own = at(node);
  switch (own.kind) {
    case Kind::kRect:
      return of(own.rect.row_stride);
    case Kind::kDiag:
      return of(own.diag.stride);
    case Kind::kNot:
      return query_stride(own.left);
    case Kind::kAnd:
    case Kind::kOr:
      return std::gcd(query_stride(own.left), query_stride(own.right));
    case Kind::kSpread: {
      const PatternRect& block = at(own.left).rect;
      const int64_t blocks = query_stride(own.right) * block.rows;
      return std::gcd(query_stride(own.left), blocks > kMostNumber ? 0 : blocks);
    }
  }
  throw InternalError("a pattern with a part of an unknown kind");
}

int64_t Pattern::cost(int node, int64_t tokens) const {
  const Node& own = at(node);
  const auto words = static_cast<int64_t>(words_for(tokens));
  const auto of_columns = [&](int columns, int stride) {
    const int64_t width = width_of(columns, tokens);
    return std::min(width / stride, width / std::max(stride, 32) + (stride > 1 && stride < 32 ? 32 / stride : 0)) + 1;
  };
  switch (own.kind) {
    case Kind::kRect:
      return of_columns(own.rect.columns, own.rect.column_stride);
    case Kind::kDiag:
      return of_columns(own.diag.size, own.diag.stride);
    case Kind::kNot:
      return words + cost(own.left, tokens);
    case Kind::kOr:
      return cost(own.left, tokens) + cost(own.right, tokens);
    case Kind::kAnd:
      return 2 * words + cost(own.left, tokens) + cost(own.right, tokens);
    case Kind::kSpread: {
      const PatternRect& block = at(own.left).rect;
      const int64_t blocks = (tokens + block.columns - 1) / block.columns;
      const int64_t each =
          is_whole(block) ? words + runs(own.right, blocks) : blocks * (1 + of_columns(block.columns, block.column_stride));
      return each + blocks / 32 + 1 + cost(own.right, blocks);
    }
  }
  throw InternalError("a pattern with a part of an unknown kind");
}

int64_t Pattern::runs(int node, int64_t tokens) const {
  const Node& own = at(node);
  const auto of_columns = [&](int columns, int stride) { return stride == 1 ? 1 : width_of(columns, tokens) / stride + 1; };
  const auto runs_of = [&]() -> int64_t {
    switch (own.kind) {
      case Kind::kRect:
        return of_columns(own.rect.columns, own.rect.column_stride);
      case Kind::kDiag:
        return of_columns(own.diag.size, own.diag.stride);
      case Kind::kNot:
        return runs(own.left, tokens) + 1;
      case Kind::kAnd:
      case Kind::kOr:
        return runs(own.left, tokens) + runs(own.right, tokens);
      case Kind::kSpread: {
        const PatternRect& block = at(own.left).rect;
        const int64_t blocks = (tokens + block.columns - 1) / block.columns;
        return is_whole(block) ? runs(own.right, blocks) : blocks * of_columns(block.columns, block.column_stride);
      }
    }
    throw InternalError("a pattern with a part of an unknown kind");
  };
  return std::min(runs_of(), tokens / 2 + 1);
}

void Pattern::row(int64_t i, int64_t begin, int64_t end, Words words) const {
  std::fill(words.begin(), words.end(), 0);
  const int64_t seen = std::min(end, i + 1);
  if (seen > begin) add(root(), i, begin, seen, words);
}

}  // namespace sluice
