#include "scripting/graph/ops.h"

#include <array>

#include "scripting/base/error.h"

namespace sluice {

namespace {

constexpr Attribute kEnds = Attribute::kFirst | Attribute::kLast;
constexpr Attribute kBudget = Attribute::kK | Attribute::kRatio | kEnds;
constexpr Attribute kWindowed = Attribute::kAxis | Attribute::kStart | Attribute::kStop | Attribute::kValue;

constexpr std::array kOps = {
    // op, name, Lua names, inputs, cache, index, family, attributes, doc, commutative, scored
    OpInfo{Op::kQuery, "query", "", 0, false, true, OpFamily::kSource, Attribute::kNone, "the query, [head, dim]"},
    OpInfo{Op::kKey, "key", "", 0, true, true, OpFamily::kSource, Attribute::kNone,
           "keys, [token, dim], in the index stage [page, token, dim]"},
    OpInfo{Op::kValue, "value", "", 0, true, true, OpFamily::kSource, Attribute::kNone,
           "values, [token, dim], in the index stage [page, token, dim]"},
    OpInfo{Op::kField, "field", "", 0, false, true, OpFamily::kSource, Attribute::kField, "a cached field, [page, ...]"},
    OpInfo{Op::kConstant, "constant", "", 0, true, true, OpFamily::kSource, Attribute::kValue, "a number, []"},
    OpInfo{Op::kFill, "fill", "fill", 0, true, true, OpFamily::kSource, Attribute::kValue, "a tensor of one number"},
    OpInfo{Op::kPosition, "position", "position", 0, false, true, OpFamily::kSource, Attribute::kNone,
           "0 for the oldest page ... B-1, [page]"},
    OpInfo{Op::kRandom, "random", "random", 0, false, true, OpFamily::kSource, Attribute::kNone, "uniform in [0, 1), [page]"},
    OpInfo{Op::kLoad, "load", "load", 0, false, true, OpFamily::kSource, Attribute::kField, "a state as the last step saved it"},
    OpInfo{Op::kMass, "mass", "", 0, false, false, OpFamily::kSource, Attribute::kNone,
           "the weight that attention gave each token, [page, token, head]"},

    OpInfo{Op::kAdd, "add", "add", 2, true, true, OpFamily::kBinary, Attribute::kNone, "a + b", true},
    OpInfo{Op::kSub, "sub", "sub", 2, true, true, OpFamily::kBinary, Attribute::kNone, "a - b"},
    OpInfo{Op::kMul, "mul", "mul multiply", 2, true, true, OpFamily::kBinary, Attribute::kNone, "a * b", true},
    OpInfo{Op::kDiv, "div", "div", 2, true, true, OpFamily::kBinary, Attribute::kNone, "a / b"},
    OpInfo{Op::kMaximum, "maximum", "maximum", 2, true, true, OpFamily::kBinary, Attribute::kNone, "the larger of a and b"},
    OpInfo{Op::kMinimum, "minimum", "minimum", 2, true, true, OpFamily::kBinary, Attribute::kNone, "the smaller of a and b"},
    OpInfo{Op::kRelu, "relu", "relu", 1, true, true, OpFamily::kUnary, Attribute::kNone, "max(x, 0)"},
    OpInfo{Op::kSigmoid, "sigmoid", "sigmoid", 1, true, true, OpFamily::kUnary, Attribute::kNone, "1 / (1 + exp(-x))"},
    OpInfo{Op::kSilu, "silu", "silu", 1, true, true, OpFamily::kUnary, Attribute::kNone, "x * sigmoid(x)"},
    OpInfo{Op::kExp, "exp", "exp", 1, true, true, OpFamily::kUnary, Attribute::kNone, "e to the power of x"},
    OpInfo{Op::kLog, "log", "log", 1, true, true, OpFamily::kUnary, Attribute::kNone, "natural logarithm"},
    OpInfo{Op::kAbs, "abs", "abs", 1, true, true, OpFamily::kUnary, Attribute::kNone, "|x|"},
    OpInfo{Op::kSqrt, "sqrt", "sqrt", 1, true, true, OpFamily::kUnary, Attribute::kNone, "square root"},
    OpInfo{Op::kWhere, "where", "where_eq where_ne where_gt where_ge where_lt where_le", 4, true, true, OpFamily::kChoice,
           Attribute::kCompare, "x where a compares with b, else y"},

    OpInfo{Op::kMean, "mean", "mean", 1, true, true, OpFamily::kReduction, Attribute::kAxis, "average along an axis"},
    OpInfo{Op::kMax, "max", "max", 1, true, true, OpFamily::kReduction, Attribute::kAxis, "largest along an axis"},
    OpInfo{Op::kMin, "min", "min", 1, true, true, OpFamily::kReduction, Attribute::kAxis, "smallest along an axis"},
    OpInfo{Op::kL2Norm, "l2norm", "l2norm", 1, true, true, OpFamily::kReduction, Attribute::kAxis,
           "sqrt of the sum of squares along an axis"},
    OpInfo{Op::kSum, "sum", "sum", 1, false, true, OpFamily::kReduction, Attribute::kAxis, "sum along an axis"},
    OpInfo{Op::kMeanInterleave, "mean_interleave", "mean_interleave", 1, true, false, OpFamily::kInterleave,
           Attribute::kAxis | Attribute::kGroup, "averages of groups of consecutive entries"},
    OpInfo{Op::kMaxInterleave, "max_interleave", "max_interleave", 1, true, false, OpFamily::kInterleave,
           Attribute::kAxis | Attribute::kGroup, "maxima of groups of consecutive entries"},
    OpInfo{Op::kMinInterleave, "min_interleave", "min_interleave", 1, true, false, OpFamily::kInterleave,
           Attribute::kAxis | Attribute::kGroup, "minima of groups of consecutive entries"},
    OpInfo{Op::kL2NormInterleave, "l2norm_interleave", "l2norm_interleave", 1, true, false, OpFamily::kInterleave,
           Attribute::kAxis | Attribute::kGroup, "norms of groups of consecutive entries"},
    OpInfo{Op::kSumInterleave, "sum_interleave", "sum_interleave", 1, true, false, OpFamily::kInterleave,
           Attribute::kAxis | Attribute::kGroup, "sums of groups of consecutive entries"},

    OpInfo{Op::kContract, "contract", "dot gemm", 2, true, true, OpFamily::kAlgebra, Attribute::kAxis,
           "sum of a * b along an axis"},
    OpInfo{Op::kKron, "kron", "kron", 2, false, true, OpFamily::kAlgebra, Attribute::kAxis, "Kronecker product along an axis"},
    OpInfo{Op::kSoftmax, "softmax", "softmax", 1, false, true, OpFamily::kAlgebra, Attribute::kAxis,
           "exp(x - max) / sum along an axis"},
    OpInfo{Op::kNormalize, "normalize", "normalize", 1, false, true, OpFamily::kAlgebra, Attribute::kAxis,
           "x / sum(x) along an axis"},
    OpInfo{Op::kConv1d, "conv1d", "conv1d", 1, false, true, OpFamily::kAlgebra, Attribute::kAxis | Attribute::kKernel,
           "convolution along an axis, zeros outside"},
    OpInfo{Op::kReshape, "reshape", "reshape", 1, true, true, OpFamily::kShape, Attribute::kNone,
           "the same elements under other axes"},
    OpInfo{Op::kTranspose, "transpose", "transpose", 1, false, true, OpFamily::kShape, Attribute::kNone,
           "swaps the last two axes"},
    OpInfo{Op::kMaskSlice, "mask_slice", "mask_slice", 1, true, true, OpFamily::kShape, kWindowed,
           "x inside a window of an axis, a number outside"},

    OpInfo{Op::kSave, "save", "save", 1, false, true, OpFamily::kEffect, Attribute::kField | Attribute::kLast,
           "keeps a value for the next step"},
    OpInfo{Op::kTopK, "topk", "topk", 1, false, true, OpFamily::kSelection, kBudget | Attribute::kMethod,
           "the pages with the highest scores", false, true},
    OpInfo{Op::kApproxTopK, "approx_topk", "approx_topk", 1, false, true, OpFamily::kSelection, kBudget | Attribute::kTolerate,
           "about the pages with the highest scores", false, true},
    OpInfo{Op::kThreshold, "threshold", "threshold", 2, false, true, OpFamily::kSelection, kEnds | Attribute::kMaxPages,
           "pages whose score exceeds a bound", false, true},
    OpInfo{Op::kTopP, "topp", "topp", 1, false, true, OpFamily::kSelection, Attribute::kValue | kEnds | Attribute::kMaxPages,
           "the fewest pages that have a share of the weights", false, true},
    OpInfo{Op::kWindow, "window", "window", 0, false, true, OpFamily::kSelection, kEnds, "the first and the last pages"},
    OpInfo{Op::kTopKTokens, "topk_tokens", "topk_tokens", 1, false, true, OpFamily::kSelection, kBudget,
           "the tokens with the highest scores", false, true},
    OpInfo{Op::kUnion, "union", "union", 2, false, true, OpFamily::kSelection, Attribute::kNone, "pages of either selection"},
};

constexpr bool rows_follow_the_enumeration() {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (static_cast<size_t>(kOps[i].op) != i) return false;
  }
  return kOps.size() == kOpCount;
}
static_assert(rows_follow_the_enumeration());

}  // namespace

std::span<const OpInfo> all_ops() { return kOps; }

bool is_op(Op op) { return static_cast<size_t>(op) < kOps.size(); }

bool exists_in(const OpInfo& info, Stage stage) {
  switch (stage) {
    case Stage::kCache:
      return info.in_cache;
    case Stage::kIndex:
      return info.in_index;
    case Stage::kAfter:
      return info.op == Op::kMass || (info.in_index && info.family != OpFamily::kSelection);
  }
  return false;
}

std::string_view stages_of(const OpInfo& info) {
  if (!info.in_index) return info.in_cache ? "cache" : "after";
  if (!exists_in(info, Stage::kAfter)) return "index";
  return info.in_cache ? "cache, index and after" : "index and after";
}

const OpInfo& info_of(Op op) {
  if (!is_op(op)) throw InternalError("info_of: not an operator");
  return kOps[static_cast<size_t>(op)];
}

std::string_view name_of(Op op) { return info_of(op).name; }

std::string_view spoken_name_of(Op op) {
  const OpInfo& info = info_of(op);
  // The six comparisons share a row; the family's name says enough.
  if (info.lua_names.empty() || op == Op::kWhere) return info.name;
  return info.lua_names.substr(0, info.lua_names.find(' '));
}

std::string_view name_of(Compare compare) {
  constexpr std::array<std::string_view, 6> kNames = {"eq", "ne", "gt", "ge", "lt", "le"};
  const auto index = static_cast<size_t>(compare);
  return index < kNames.size() ? kNames[index] : "?";
}

std::string_view name_of(TopKMethod method) {
  constexpr std::array<std::string_view, 3> kNames = {"auto", "radix", "gvr"};
  const auto index = static_cast<size_t>(method);
  return index < kNames.size() ? kNames[index] : "?";
}

std::string_view name_of(Stage stage) {
  constexpr std::array<std::string_view, 3> kNames = {"cache", "index", "after"};
  const auto index = static_cast<size_t>(stage);
  return index < kNames.size() ? kNames[index] : "?";
}

bool is_source(Op op) { return info_of(op).family == OpFamily::kSource; }
bool is_unary_elementwise(Op op) { return info_of(op).family == OpFamily::kUnary; }
bool is_binary_elementwise(Op op) { return info_of(op).family == OpFamily::kBinary; }
bool is_elementwise(Op op) {
  return is_unary_elementwise(op) || is_binary_elementwise(op) || info_of(op).family == OpFamily::kChoice;
}
bool is_commutative(Op op) { return info_of(op).commutative; }
bool is_reduction(Op op) { return info_of(op).family == OpFamily::kReduction; }
bool is_interleave(Op op) { return info_of(op).family == OpFamily::kInterleave; }
bool is_selection(Op op) { return info_of(op).family == OpFamily::kSelection; }
bool is_scored(Op op) { return info_of(op).scored; }
bool has_no_shape(Op op) { return is_selection(op) || op == Op::kSave; }

Attributes own_attributes(Op op, const Attributes& attributes) {
  Attributes own;
  for_each_attribute(op, [&](auto member, std::string_view) { own.*member = attributes.*member; });
  return own;
}

}  // namespace sluice
