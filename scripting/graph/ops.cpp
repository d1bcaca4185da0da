#include "scripting/graph/ops.h"

#include <array>

#include "scripting/base/error.h"

namespace sluice {

namespace {

constexpr std::array kOps = {
    // op, name, Lua names, inputs, cache, index, doc
    OpInfo{Op::kQuery, "query", "", 0, false, true, "the query, [head, dim]"},
    OpInfo{Op::kKey, "key", "", 0, true, true, "keys, [token, dim], in the index stage [page, token, dim]"},
    OpInfo{Op::kValue, "value", "", 0, true, true, "values, [token, dim], in the index stage [page, token, dim]"},
    OpInfo{Op::kField, "field", "", 0, false, true, "a cached field, [page, ...]"},
    OpInfo{Op::kConstant, "constant", "", 0, true, true, "a number, []"},
    OpInfo{Op::kFill, "fill", "fill", 0, true, true, "a tensor of one number"},
    OpInfo{Op::kPosition, "position", "position", 0, false, true, "0 for the oldest page ... B-1, [page]"},
    OpInfo{Op::kRandom, "random", "random", 0, false, true, "uniform in [0, 1), [page]"},
    OpInfo{Op::kLoad, "load", "load", 0, false, true, "a state as the last step saved it"},

    OpInfo{Op::kAdd, "add", "add", 2, true, true, "a + b"},
    OpInfo{Op::kSub, "sub", "sub", 2, true, true, "a - b"},
    OpInfo{Op::kMul, "mul", "mul multiply", 2, true, true, "a * b"},
    OpInfo{Op::kDiv, "div", "div", 2, true, true, "a / b"},
    OpInfo{Op::kMaximum, "maximum", "maximum", 2, true, true, "the larger of a and b"},
    OpInfo{Op::kMinimum, "minimum", "minimum", 2, true, true, "the smaller of a and b"},
    OpInfo{Op::kRelu, "relu", "relu", 1, true, true, "max(x, 0)"},
    OpInfo{Op::kSigmoid, "sigmoid", "sigmoid", 1, true, true, "1 / (1 + exp(-x))"},
    OpInfo{Op::kSilu, "silu", "silu", 1, true, true, "x * sigmoid(x)"},
    OpInfo{Op::kExp, "exp", "exp", 1, true, true, "e to the power of x"},
    OpInfo{Op::kLog, "log", "log", 1, true, true, "natural logarithm"},
    OpInfo{Op::kAbs, "abs", "abs", 1, true, true, "|x|"},
    OpInfo{Op::kSqrt, "sqrt", "sqrt", 1, true, true, "square root"},
    OpInfo{Op::kWhere, "where", "where_eq where_ne where_gt where_ge where_lt where_le", 4, true, true,
           "x where a compares with b, else y"},

    OpInfo{Op::kMean, "mean", "mean", 1, true, true, "average along an axis"},
    OpInfo{Op::kMax, "max", "max", 1, true, true, "largest along an axis"},
    OpInfo{Op::kMin, "min", "min", 1, true, true, "smallest along an axis"},
    OpInfo{Op::kL2Norm, "l2norm", "l2norm", 1, true, true, "sqrt of the sum of squares along an axis"},
    OpInfo{Op::kSum, "sum", "sum", 1, false, true, "sum along an axis"},
    OpInfo{Op::kMeanInterleave, "mean_interleave", "mean_interleave", 1, true, false,
           "averages of groups of consecutive entries"},
    OpInfo{Op::kMaxInterleave, "max_interleave", "max_interleave", 1, true, false, "maxima of groups of consecutive entries"},
    OpInfo{Op::kMinInterleave, "min_interleave", "min_interleave", 1, true, false, "minima of groups of consecutive entries"},
    OpInfo{Op::kL2NormInterleave, "l2norm_interleave", "l2norm_interleave", 1, true, false,
           "norms of groups of consecutive entries"},
    OpInfo{Op::kSumInterleave, "sum_interleave", "sum_interleave", 1, true, false, "sums of groups of consecutive entries"},

    OpInfo{Op::kContract, "contract", "dot gemm", 2, true, true, "sum of a * b along an axis"},
    OpInfo{Op::kKron, "kron", "kron", 2, false, true, "Kronecker product along an axis"},
    OpInfo{Op::kSoftmax, "softmax", "softmax", 1, false, true, "exp(x - max) / sum along an axis"},
    OpInfo{Op::kNormalize, "normalize", "normalize", 1, false, true, "x / sum(x) along an axis"},
    OpInfo{Op::kConv1d, "conv1d", "conv1d", 1, false, true, "convolution along an axis, zeros outside"},
    OpInfo{Op::kReshape, "reshape", "reshape", 1, true, true, "the same elements under other axes"},
    OpInfo{Op::kTranspose, "transpose", "transpose", 1, false, true, "swaps the last two axes"},
    OpInfo{Op::kMaskSlice, "mask_slice", "mask_slice", 1, true, true, "x inside a window of an axis, a number outside"},

    OpInfo{Op::kSave, "save", "save", 1, false, true, "keeps a value for the next step"},
    OpInfo{Op::kTopK, "topk", "topk", 1, false, true, "the pages with the highest scores"},
    OpInfo{Op::kApproxTopK, "approx_topk", "approx_topk", 1, false, true, "about the pages with the highest scores"},
    OpInfo{Op::kThreshold, "threshold", "threshold", 2, false, true, "pages whose score exceeds a bound"},
    OpInfo{Op::kWindow, "window", "window", 0, false, true, "the first and the last pages"},
    OpInfo{Op::kUnion, "union", "union", 2, false, true, "pages of either selection"},
};

constexpr bool rows_follow_the_enumeration() {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (static_cast<size_t>(kOps[i].op) != i) return false;
  }
  return kOps.size() == static_cast<size_t>(Op::kUnion) + 1;
}
static_assert(rows_follow_the_enumeration());

constexpr bool between(Op op, Op first, Op last) { return op >= first && op <= last; }

}  // namespace

std::span<const OpInfo> all_ops() { return kOps; }

bool is_op(Op op) { return static_cast<size_t>(op) < kOps.size(); }

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

std::string_view name_of(Stage stage) { return stage == Stage::kCache ? "cache" : "index"; }

bool is_source(Op op) { return between(op, Op::kQuery, Op::kLoad); }
bool is_unary_elementwise(Op op) { return between(op, Op::kRelu, Op::kSqrt); }
bool is_binary_elementwise(Op op) { return between(op, Op::kAdd, Op::kMinimum); }
bool is_commutative(Op op) { return op == Op::kAdd || op == Op::kMul; }
bool is_reduction(Op op) { return between(op, Op::kMean, Op::kSum); }
bool is_interleave(Op op) { return between(op, Op::kMeanInterleave, Op::kSumInterleave); }
bool is_selection(Op op) { return between(op, Op::kTopK, Op::kUnion); }
bool is_scored(Op op) { return between(op, Op::kTopK, Op::kThreshold); }

}  // namespace sluice
