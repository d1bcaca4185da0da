#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scripting/base/error.h"
#include "scripting/graph/layer_patterns.h"
#include "scripting/graph/types.h"

namespace sluice {

struct Recompute;

/// The parts of a flow (Vortex, section 13). Cache-stage nodes see one page and no query; index-stage nodes see every page of one
/// request and one KV head, and the query of one decode step. After-stage nodes see the same once attention has run, and the
/// weights that it gave. They run at every decode step, and once before, for the rows of the prompt. What a step saves in either
/// of the two is loaded in both from the next step on.
enum class Stage : uint8_t { kCache, kIndex, kAfter };

/// Operators. `scripting/graph/ops.cpp` holds the table of names, stages and shape rules; the meaning of each is here. What the
/// index stage has but for selections, the after stage has, too.
/// "a op b" broadcasts by axis name: the result has the union of the axes (those of `a` first, the page axis always first).
///
/// Ragged last page: only the tokens that a page holds so far exist. Reductions over `token` see only those. An
/// interleaved group over tokens that has none yet repeats the last group that has some, so every `sub` entry is defined.
enum class Op : uint8_t {
  // Sources. No inputs.
  kQuery,     // index: [head, dim] the query after QK-norm and RoPE, not scaled
  kKey,       // cache: [token, dim]; index: [page, token, dim]; as it lies in the cache (after RoPE)
  kValue,     // the same for values
  kField,     // index: [page, ...axes of the field]; `field` names it; read in its storage type
  kConstant,  // []; `value`
  kFill,      // `shape` filled with `value`; cache: without page axis; index: with or without
  kPosition,  // index: [page] 0 for the oldest page ... B-1
  kRandom,    // index: [page] uniform in [0, 1), a function of (seed, request, layer, KV head, step, page) only
  kLoad,      // index: the named state as the last step saved it; `field` names it
  kMass,      // after: [page, token, head] the weight of each token in the softmax of attention; of a prompt, summed over rows

  // Elementwise.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kRelu,
  kSigmoid,
  kSilu,  // x * sigmoid(x)
  kExp,
  kLog,
  kAbs,
  kSqrt,
  kWhere,  // inputs a, b, x, y: x where `compare`(a, b) holds, else y. Comparisons with NaN are false, but Ne is true.

  // Reductions over `axis` (any axis, the page axis only in the index stage).
  kMean,
  kMax,  // NaN if any element is NaN; so for kMin, kMaximum, kMinimum
  kMin,
  kL2Norm,  // sqrt(sum x^2)
  kSum,     // index only

  // Interleaved reductions, cache only: `axis` is cut into groups of `group` consecutive entries (the extent must be a
  // multiple); the result has axis `sub` with extent/group entries in place of it.
  kMeanInterleave,
  kMaxInterleave,
  kMinInterleave,
  kL2NormInterleave,
  kSumInterleave,

  // Algebra.
  kContract,   // gemm/dot: the sum over `axis` of a * b; the other axes broadcast by name
  kKron,       // index: Kronecker product over `axis`: out[i * n + j] = a[i] * b[j]; a missing axis counts as extent 1
  kSoftmax,    // index: over `axis`, with the maximum subtracted
  kNormalize,  // index: x / sum(x) over `axis`
  kConv1d,     // index: over `axis` with odd-length `kernel`, centred, zeros outside: out[i] = sum_j kernel[j] x[i+j-n/2]
  kReshape,    // to `shape`: same count of elements, row-major, page axis unchanged, no ragged token axis
  kTranspose,  // index: swaps the last two axes (matters to reshape only)
  kMaskSlice,  // x where start <= position along `axis` < stop, else `value`; negative bounds count from the end; for
               // the page axis from B. `stop` of kToEnd means the extent.

  // Effects and selections, index only. Selections have no shape; they are sorted lists of pages.
  kSave,  // input x: keeps it as the state `field` for the next step. If `last` > 0: of each page once, by the end of the step
          // before the first that does not count it among its `last` newest pages; until then it holds the first value
  kTopK,  // input score [page]
  kApproxTopK,  // input score [page]; early termination within `tolerate` (Vortex, section 5.2)
  kThreshold,   // inputs score [page], bound []: pages whose score > bound, and the first and last pages; `max_pages` if > 0
                // keeps the best that many (forced pages counted in)
  kTopP,        // input score [page], what pages weigh: the `first` and `last` pages, and the best others until all of them
                // have the share `value` of what is above 0 (the rest and NaN weigh nothing); `max_pages` as above
  kWindow,      // the `first` and `last` pages
  kTopKTokens,  // input score [page, token]; `k`, `first`, `last` and `ratio` count tokens, and ties go to the older
  kUnion,       // of two selections; of tokens, if one of them is
};
inline constexpr size_t kOpCount = static_cast<size_t>(Op::kUnion) + 1;

enum class Compare : uint8_t { kEq, kNe, kGt, kGe, kLt, kLe };
/// How an exact top-k is to be found; all give the same pages. CPUs have one method and ignore it.
enum class TopKMethod : uint8_t { kAuto, kRadix, kGvr };

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;
inline constexpr int kToEnd = INT32_MAX;

/// Attributes; each operator has those that its row in ops.cpp names, and the defaults of all others.
struct Attributes {
  double value = 0;
  Axis axis = Axis::kDim;
  int group = 0;
  int start = 0;
  int stop = kToEnd;
  Compare compare = Compare::kEq;
  std::string field;
  std::vector<float> kernel;
  // Selections. Budget = min(B, max(k + first + last, ceil(ratio * B))); first and last pages are always kept.
  int k = 0;
  int first = 0;
  int last = 0;
  double ratio = 0;
  TopKMethod method = TopKMethod::kAuto;
  double tolerate = 0;
  int max_pages = 0;

  bool operator==(const Attributes&) const = default;
};

struct Node {
  Op op = Op::kConstant;
  Stage stage = Stage::kIndex;
  std::vector<NodeId> inputs;  // each smaller than the node's own id
  Shape shape;                 // empty for scalars, selections and saves
  Attributes attributes;
  SourceLocation where;
  NodeId traced = kNoNode;  // in a plan: the node of the graph given to `compile` that this one computes
};

/// A query-free summary of a page, computed by the cache stage and stored in the page beside K and V.
struct Field {
  std::string name;
  NodeId node = kNoNode;  // cache stage, computes it
  Shape shape;            // without page axis
  DataType type = DataType::kBF16;
  SourceLocation where;
};

/// A value kept across decode steps, per request, layer and KV head. With a page axis, pages that are new since the last
/// step hold `initial`.
struct State {
  std::string name;
  Shape shape;
  double initial = 0;
  SourceLocation where;
};

/// Which layers run the flow; the others attend densely.
struct LayerChoice {
  bool rest_sparse = true;
  std::map<int, bool> sparse;  // by layer index; negative counts from the last layer

  bool is_sparse(int layer, int layers) const;
  bool is_sparse_anywhere(int layers) const;
  bool operator==(const LayerChoice&) const = default;
};

/// What attention runs over: the entries of some pages. One softmax runs over the entries of all sources of a flow.
struct AttentionSource {
  NodeId selection = kNoNode;  // whose entries they are
  bool others = false;         // they are those of all pages that the selection leaves out
  /// "k" and "v": the tokens of a page, as they lie in the cache. Otherwise names of a field or a state each, [dim] for an entry
  /// a page or [sub, dim] for several. A state is read as the last step left it, and saved by the after stage.
  std::string keys = "k";
  std::string values = "v";
  NodeId bias = kNoNode;  // [page] or [page, head]: added to the scaled product of query and key; none
  /// The product of the query with keys that are [dim], before it is scaled: [page, head]. Devices that have it need not
  /// read the keys. A pass adds it (passes::weigh_summaries); none where the flow has no room for it.
  NodeId logits = kNoNode;
  std::optional<Pattern> beside;  // tokens that are attended to whatever was selected, by geometry; of sources of tokens
  /// Of a source with an entry a page: the entry says what its page weighs. Where a source of tokens has the page, too, its
  /// tokens share that weight by a softmax of their own, and the entry itself does not count (LuKA, equations 2 to 4).
  bool shares = false;
  /// Of other pages with an entry each: so many, from a multiple of it on, have one entry together while none of them is open:
  /// the mean of theirs (LuKA, section 3.1: summaries of summaries). It weighs as many as they are, if there is a bias; of pages
  /// that share, the group weighs that in any case, and open pages share it. A group that is not whole is open.
  int group_pages = 1;
  /// Groups that are open, beside those with a page of the first source: those with a page of this selection. None: no others.
  NodeId opened = kNoNode;

  /// The tokens of pages, without bias. Others may be beside them.
  bool is_plain() const { return keys == "k" && values == "v" && bias == kNoNode && !others && !shares; }
  bool operator==(const AttentionSource&) const = default;
};

/// Who leaves once a sequence has as many tokens as it may keep: by layer and KV head, token by token (H2O, section 4; SAS,
/// section 4.1). Tokens lie in slots, of which a page has as many as it holds tokens. Before rows come, as many tokens leave as
/// there is no room for: those with the lowest scores that may, NaN before all others, of equals the oldest. What a leaving token
/// held is taken by the tokens in the highest slots, both ascending; rows then go behind what is left, in their order.
struct Eviction {
  std::string score;  // a state [page, token], saved by the after stage
  int budget = 0;     // tokens that are kept
  int first = 0;      // of the sequence, which never leave
  int recent = 1;     // newest, which stay, those that come included
  /// Rows of a prompt that make room together, a multiple of which each chunk but the last ends at: the after stage runs at its
  /// end. 0: the whole prompt is kept until its end.
  int chunk = 0;
  std::optional<Pattern> keep;  // tokens that a later row still reads under it do not leave
  SourceLocation where;         // of evict(...)

  /// The rows that a prompt has done once the chunk is done that `row` of `rows` is in.
  int chunk_end(int row, int rows) const {
    return chunk == 0 ? rows : static_cast<int>(std::min<int64_t>(rows, (int64_t{row} / chunk + 1) * chunk));
  }
};

/// A traced flow: plain data. Valid only if `verify` accepts it (scripting/graph/verify.h).
struct FlowGraph {
  std::string name;
  SourceLocation where;  // of sluice.flow{...}
  Geometry geometry;
  LayerChoice layers;
  LayerPatterns patterns;   // of layers that `layers` makes sparse: what they see, and what the index stage is shown of it
  std::vector<Node> nodes;  // operands come before their users, and stages in their order
  std::vector<Field> fields;
  std::vector<State> states;
  std::vector<NodeId> saves;             // kSave nodes, in program order
  std::vector<AttentionSource> sources;  // what sparse layers attend to; empty: every layer is dense
  /// Rows of a prompt, the last ones, over which kMass is summed; kToEnd: all. 0: the after stage does not run for prompts.
  int mass_rows = kToEnd;
  std::optional<Eviction> eviction;  // of the layers that run the flow; none: they keep all tokens
  /// Of a flow that has several programs: which this is; empty: the flow's own, or the only one.
  std::string variant;
  /// Its other programs: of layers that this one does not run, with the same geometry, and none of their own. Whoever runs a flow
  /// runs them, too.
  std::vector<FlowGraph> variants;
  /// Which copied tokens of a prompt are computed again (scripting/graph/recompute.h); null: the flow does not say. Of a flow,
  /// not of a variant.
  std::shared_ptr<const Recompute> recompute;
  bool ranks_copies = false;  // this is the graph of such a rule: a selection may have nothing

  const Field* find_field(const std::string& field) const;
  const State* find_state(const std::string& state) const;
  /// Whether a stage saves a state, so that it must run even when the budget covers every page.
  bool saves_in(Stage stage) const;
  /// Whether it reads the weights that attention gave.
  bool reads_mass() const;
  /// Rows of a prompt, the last ones, that are to be computed for the after stage whatever is known of it; kToEnd: all.
  int prompt_rows_wanted() const;
  /// Whether a layer, of `count`, attends otherwise than densely: by a pattern, by the index stage, or by both.
  bool is_run_by(int layer, int count) const {
    return layers.is_sparse(layer, count) &&
           (!sources.empty() || (!patterns.empty() && patterns.place_of(layer, count) != LayerPatterns::kNone));
  }
  /// The selection of the first source; kNoNode where every layer is dense.
  NodeId selection() const { return sources.empty() ? kNoNode : sources.front().selection; }
  /// Makes the tokens of the pages that `selected` gives (kNoNode: no source) all that is attended to.
  void attend_to(NodeId selected);
  /// Tokens that sparse layers attend to beside what they select; null: none.
  const Pattern* beside() const { return sources.empty() || !sources.front().beside ? nullptr : &*sources.front().beside; }
  /// Whether what is selected are tokens, not whole pages.
  bool selects_tokens() const;
  /// Whether a row that runs the index stage may see a part of a page: tokens beside it, those of a layer's pattern, or selected
  /// ones.
  bool selects_under_masks() const { return !sources.empty() && (beside() != nullptr || !patterns.empty() || selects_tokens()); }
  /// Whether its layers keep other tokens than those of other flows, or other fields in one layer than in another.
  bool has_own_cache() const { return !patterns.empty() || eviction.has_value() || !variants.empty(); }
  /// The program of a layer, of `count`: this one or a variant; null: it attends densely.
  const FlowGraph* program_of(int layer, int count) const;
  /// Nothing but the tokens of the pages of one selection, and others beside them, or dense.
  bool attends_plainly() const { return sources.empty() || (sources.size() == 1 && sources.front().is_plain()); }
};

/// Of a save with `last` pages in the tail: the pages, oldest first, that it has kept for good at the end of a step of `tokens`
/// tokens, in pages of `page`. The next step has one token more.
int pages_behind_tail(int last, int tokens, int page);

/// Name of an operator as graphs print it: "max", "contract", "topk".
std::string_view name_of(Op op);

}  // namespace sluice
