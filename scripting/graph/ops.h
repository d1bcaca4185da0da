#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "scripting/graph/graph.h"

namespace sluice {

/// What an operator takes, gives and is called; one row for each Op, in the order of the enumeration.
struct OpInfo {
  Op op;
  std::string_view name;       // as graphs print it
  std::string_view lua_names;  // separated by spaces, the first is the one that diagnostics use; empty for sources
  int inputs;                  // number of operands
  bool in_cache;               // stages (Vortex, Table 1)
  bool in_index;
  std::string_view doc;  // one line
};

/// All rows.
std::span<const OpInfo> all_ops();
/// True if `op` is a value of the enumeration (graphs may come from outside).
bool is_op(Op op);
/// The row of `op`. Throws InternalError if there is none.
const OpInfo& info_of(Op op);

/// Name for diagnostics: the Lua name where there is one.
std::string_view spoken_name_of(Op op);

std::string_view name_of(Compare compare);    // "eq", "ne", "gt", "ge", "lt", "le"
std::string_view name_of(TopKMethod method);  // "auto", "radix", "gvr"
std::string_view name_of(Stage stage);        // "cache", "index"

/// Families that passes and checks treat alike.
bool is_source(Op op);  // no inputs
bool is_unary_elementwise(Op op);
bool is_binary_elementwise(Op op);
bool is_commutative(Op op);  // b op a has the bits of a op b; not so maximum and minimum, for zeros
bool is_reduction(Op op);    // mean, max, min, l2norm, sum
bool is_interleave(Op op);   // *_interleave
bool is_selection(Op op);    // topk ... union
bool is_scored(Op op);       // selections that rank pages by a score: topk, approx_topk, threshold

}  // namespace sluice
