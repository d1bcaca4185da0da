#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice {

/// What is known of tokens whose K and V are copied from where their text stood before (SparseX, section 3). New are the tokens
/// of the prompt that are not copied, but for those of a known prefix.
enum class CopyFact : uint8_t {
  kMass,         // the weights that rows look at it with, summed over the rows that look (SparseX, equation 2)
  kKeyChange,    // squared distance of its key, computed here, from the copied one (CacheBlend)
  kValueChange,  // the same of its value
  kPosition,     // in the prompt
  kMoved,        // its position less the one where it was computed
  kFromEdge,     // tokens before it of its run: blocks of one segment that stood one behind the other before, too
  kToEdge,       // tokens behind it of its run
  kFromNew,      // to the nearest new token before it: 1, that is the one before; infinity: there is none
  kToNew,        // the same behind it
  kLooks,        // 1 if it is one of the rows that look, as the last tokens of a prompt that ends with a copy do; else 0
};

struct CopyFactInfo {
  CopyFact fact;
  std::string_view name;  // r.NAME
  bool by_head;           // [page, token, head], else [page, token]
  bool of_layer;          // known once all rows of the prompt have come to a layer
};
/// All of them, in the order of the enumeration.
std::span<const CopyFactInfo> copy_facts();
/// Null if none has this name.
const CopyFactInfo* find_copy_fact(std::string_view name);

/// Which copied tokens are computed again: flow.recompute, traced. It runs once a prompt.
struct Recompute {
  enum class Kind : uint8_t { kSelected, kNone, kAll };
  Kind kind = Kind::kSelected;
  /// Of kSelected: its pages are the blocks that are copied, in the order of the prompt, and its heads the query heads of the
  /// model. Its states are facts by their names; nobody saves them. The selection may be empty.
  FlowGraph graph;
  int layer = 1;      // up to which all rows are computed: it is the one that says what facts of a layer are
  int rows = kToEnd;  // that look, of those that are computed whatever the rule says: the last; kToEnd: all
  SourceLocation where;
};

/// The shape of what a rule is told of it.
Shape shape_of(const CopyFactInfo& fact, const Geometry& geometry);

/// Element operations of a rule for one block, at most: a rule runs between two steps of those who decode.
inline constexpr int64_t kMostRuleWork = int64_t{1} << 16;

/// Refuses rules that could not run. Throws FlowError.
void verify_recompute(const Recompute& rule);
/// Refuses a flow whose rule goes by a layer that a model of `layers` layers does not have. Throws FlowError.
void verify_recompute_layer(const FlowGraph& graph, int layers);

/// As graphs are printed.
std::string to_text(const Recompute& rule);

}  // namespace sluice
