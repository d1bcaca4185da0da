#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device/compiled_flow.h"
#include "kernels/device/matrix.h"
#include "kernels/device/operation_observer.h"

namespace sluice {

/// What an attention call reports beyond its output. Every pointer may be null. Only decode rows are reported.
struct AttentionProbe {
  /// [sequences, kv_heads, scored_selections(graph), score_capacity] what each of them ranks pages by, or tokens, before any are
  /// forced; room for scores_a_page(graph) of each page
  float* scores = nullptr;
  int32_t* selected = nullptr;  // [sequences, kv_heads, selected_capacity] ascending, padded with -1
  int32_t* counts = nullptr;    // [sequences, kv_heads] pages selected, or with tokens that are
  /// [sequences, kv_heads, token_words] of flows that select tokens: a bit for each that is selected, of those that the row is
  /// shown
  uint32_t* tokens = nullptr;
  /// [sequences, kv_heads] share of the attention mass of all tokens that a step is shown, of those that it attends to (mean of
  /// the heads); 0 if it sees none. Of several sources, of the tokens of the first's pages. Costs a dense pass.
  float* mass = nullptr;
  int score_capacity = 0;
  int selected_capacity = 0;
  int token_words = 0;
};

/// Attention over the cache, dense or by a flow.
class AttentionOperations : public virtual ObservedOperations {
 public:
  virtual ~AttentionOperations() = default;

  /// Throws FlowError if the device has no way to run the plan.
  virtual std::unique_ptr<CompiledFlow> compile(const Plan& plan, int layers, int kv_heads) = 0;
  /// Does what takes long in compiling these plans, by several threads, and keeps it: `compile` is soon done with them then. What
  /// cannot be compiled it leaves to that.
  virtual void compile_ahead(std::span<const Plan> /*plans*/) {}

  struct Attention {
    int layer = 0;
    int query_heads = 0;
    float scale = 1;                     // of q . k, usually 1/sqrt(head_dim)
    const CompiledFlow* flow = nullptr;  // for decode rows; null: dense
    AttentionProbe* probe = nullptr;
  };
  /// q, out: [rows, query_heads * head_dim]. A row sees the tokens up to itself that the group of
  /// its layer keeps, those of its mask where the batch has one.
  virtual void attention(const Attention& call, Matrix q, Matrix out) = 0;

  struct RowMasses {
    int layer = 0;
    int query_heads = 0;
    float scale = 1;
    std::span<const int32_t> rows;  // of the pass, ascending
    int known = 0;                  // tokens that have sums by now; what others have does not count
  };
  /// Adds to masses (float32 [query_heads, tokens] on the device, or [1, tokens]: of all heads) what some rows of a pass with one
  /// sequence, which sees all, give each token up to themselves (SparseX, equation 2). q as for `attention`. Returns how many
  /// tokens have sums then. May allocate.
  virtual int add_row_masses(const RowMasses& call, Matrix q, Matrix masses) = 0;
};

}  // namespace sluice
