#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "scripting/graph/graph.h"

namespace sluice {

/// Families that passes, checks and devices treat alike.
enum class OpFamily : uint8_t {
  kSource,      // no operands: reads the query, the cache or a state, or makes numbers
  kUnary,       // elementwise
  kBinary,      // elementwise
  kChoice,      // elementwise: where
  kReduction,   // along one axis
  kInterleave,  // reductions of groups of consecutive entries
  kAlgebra,     // along one axis, with another shape or other numbers
  kShape,       // the same numbers under other axes, or some of them replaced
  kEffect,      // save
  kSelection,   // a sorted list of pages, or of tokens
};

/// The members of Attributes, one bit each.
enum class Attribute : uint32_t {
  kNone = 0,
  kValue = 1U << 0,
  kAxis = 1U << 1,
  kGroup = 1U << 2,
  kStart = 1U << 3,
  kStop = 1U << 4,
  kCompare = 1U << 5,
  kField = 1U << 6,
  kKernel = 1U << 7,
  kK = 1U << 8,
  kFirst = 1U << 9,
  kLast = 1U << 10,
  kRatio = 1U << 11,
  kMethod = 1U << 12,
  kTolerate = 1U << 13,
  kMaxPages = 1U << 14,
};
constexpr Attribute operator|(Attribute a, Attribute b) {
  return static_cast<Attribute>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr bool has(Attribute set, Attribute one) { return (static_cast<uint32_t>(set) & static_cast<uint32_t>(one)) != 0; }

/// What an operator takes, gives and is called; one row for each Op, in the order of the enumeration. Whoever adds an operator
/// adds its row here, its shape in shapes.cpp, and its meaning in kernels/reference and on the devices.
struct OpInfo {
  Op op;
  std::string_view name;       // as graphs print it
  std::string_view lua_names;  // separated by spaces, the first is the one that diagnostics use; empty for sources
  int inputs;                  // number of operands
  bool in_cache;               // stages, after Vortex, Table 1; see `exists_in` for the third
  bool in_index;
  OpFamily family;
  Attribute attributes;  // those that it reads; all others have their defaults
  std::string_view doc;  // one line
  /// b op a has the bits of a op b; not so maximum and minimum, for zeros.
  bool commutative = false;
  /// A selection that ranks pages by a score.
  bool scored = false;
};

/// All rows.
std::span<const OpInfo> all_ops();
/// True if `op` is a value of the enumeration (graphs may come from outside).
bool is_op(Op op);
/// Whether an operator may stand in a stage. The after stage has those of the index stage but for selections, and the masses.
bool exists_in(const OpInfo& info, Stage stage);
/// The stages in which it may stand, for diagnostics: "cache", "index", "after", "cache, index and after" ...
std::string_view stages_of(const OpInfo& info);
/// The row of `op`. Throws InternalError if there is none.
const OpInfo& info_of(Op op);

/// Name for diagnostics: the Lua name where there is one.
std::string_view spoken_name_of(Op op);

std::string_view name_of(Compare compare);    // "eq", "ne", "gt", "ge", "lt", "le"
std::string_view name_of(TopKMethod method);  // "auto", "radix", "gvr"
std::string_view name_of(Stage stage);        // "cache", "index", "after"

bool is_source(Op op);
bool is_unary_elementwise(Op op);
bool is_binary_elementwise(Op op);
bool is_elementwise(Op op);
bool is_commutative(Op op);
bool is_reduction(Op op);   // mean, max, min, l2norm, sum
bool is_interleave(Op op);  // *_interleave
bool is_selection(Op op);   // topk ... union
bool is_scored(Op op);      // topk, approx_topk, threshold, topp, topk_tokens
/// What is no tensor: a selection, or a save.
bool has_no_shape(Op op);

/// Those of `attributes` that `op` has, and the defaults of the others.
Attributes own_attributes(Op op, const Attributes& attributes);

/// Calls visit(pointer to the member of Attributes, what it is called in messages) for each attribute that `op` has, in the order
/// of their bits.
template <typename Visit>
void for_each_attribute(Op op, Visit visit) {
  const Attribute own = info_of(op).attributes;
  const auto offer = [&](Attribute which, auto member, std::string_view what) {
    if (has(own, which)) visit(member, what);
  };
  offer(Attribute::kValue, &Attributes::value, "a value");
  offer(Attribute::kAxis, &Attributes::axis, "an axis");
  offer(Attribute::kGroup, &Attributes::group, "a group");
  offer(Attribute::kStart, &Attributes::start, "a start");
  offer(Attribute::kStop, &Attributes::stop, "a stop");
  offer(Attribute::kCompare, &Attributes::compare, "a comparison");
  offer(Attribute::kField, &Attributes::field, "a field's name");
  offer(Attribute::kKernel, &Attributes::kernel, "a kernel");
  offer(Attribute::kK, &Attributes::k, "k");
  offer(Attribute::kFirst, &Attributes::first, "first");
  offer(Attribute::kLast, &Attributes::last, "last");
  offer(Attribute::kRatio, &Attributes::ratio, "ratio");
  offer(Attribute::kMethod, &Attributes::method, "a method");
  offer(Attribute::kTolerate, &Attributes::tolerate, "tolerate");
  offer(Attribute::kMaxPages, &Attributes::max_pages, "max");
}

}  // namespace sluice
