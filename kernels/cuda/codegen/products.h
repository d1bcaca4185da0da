#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/codegen/values.h"

namespace sluice::cuda::codegen {

/// Maxima, or minima, of all that a product gives a page: over all lines of the page and perhaps over all results. Warps find
/// them in registers; what lies between the product and the last of them is stored only where a sum is not finite.
struct Fold {
  std::vector<NodeId> nodes;  // in the order of reading; empty: there is no fold
  bool of_results = false;

  bool has(NodeId id) const;
};

/// What `find_product` finds, for people.
inline constexpr const char* kProductsTaken =
    "products of bf16 or 8 bits with the query, of 16 to 256 channels in steps of 16 (of 8 bits: 32), at most 16 lines a page "
    "and "
    "32 results a line";

/// A sum over channels that tensor cores compute: of q * a, or, as in Quest, of max(q * a, q * b) or min(q * a, q * b). `a` and
/// `b` are parts of blocks in bf16, or in 8 bits, which become float16 on their way, [page, ..., dim]; q depends on the query
/// alone,
/// [..., dim]. For a channel, max(q * a, q * b) is q * max(a, b) where q >= 0 and q * min(a, b) elsewhere, so the sum is two
/// ordinary ones, each over the channels of one sign.
struct Product {
  enum class Bound : uint8_t { kNone, kUpper, kLower };

  NodeId node = kNoNode;
  NodeId query = kNoNode;
  std::vector<NodeId> parts;        // a, and b if there is a bound
  DataType type = DataType::kBF16;  // of these
  Bound bound = Bound::kNone;
  int dim = 0;
  int results = 1;     // numbers of q for a channel
  int lines = 1;       // of `dim` channels in a page
  Shape result_shape;  // axes of q but dim
  Shape line_shape;    // axes of the parts but page and dim
  Fold fold;           // by `find_fold`

  int steps() const { return dim / 16; }
  int tiles() const { return (results + 7) / 8; }
  /// Whether one product has all parts of the query side by side (QueryShape::kJoinsParts).
  bool joins_parts() const { return results <= 2; }
  /// Whether lines are of 8 bits.
  bool of_bytes() const { return size_of(type) == 1; }
  /// "kNone"
  std::string bound_name() const;
  /// "QueryShape<8, 1, false>", of the split query in shared memory (row_products.cuh); `compact`: without lanes that only have
  /// zeros.
  std::string query_shape(bool compact) const;
  int64_t query_bytes(bool compact) const;
};

/// Neighbouring parts of a block that are copied in one piece for each line.
struct CopiedRun {
  BlockPart part;      // the first of them
  int bytes = 0;       // of a line
  int lines = 1;       // in a page
  bool whole = false;  // the lines of a page are copied together, which is less to ask for where they are short

  /// From line to line in shared memory: as a rule an odd multiple of 16 bytes, so that eight lines of one piece lie in different
  /// banks.
  int stride() const { return whole ? bytes : bytes + 16; }
  bool has(const BlockPart& other) const {
    return other.in_field_page == part.in_field_page && other.offset >= part.offset &&
           other.offset < part.offset + static_cast<size_t>(bytes) * lines;
  }
};

/// If node `id` can be computed so.
std::optional<Product> find_product(const FlowLayout& layout, NodeId id);
/// What becomes of a product in registers; `computed`: what its launch computes.
Fold find_fold(const FlowLayout& layout, const Product& product, const std::vector<NodeId>& computed);
/// What has to be copied for products, in the order of the block.
std::vector<CopiedRun> runs_to_copy(const FlowLayout& layout, const std::vector<Product>& products);

}  // namespace sluice::cuda::codegen
