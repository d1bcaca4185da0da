#pragma once

#include <vector>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/prompt_masks.h"
#include "kernels/cpu/flow/compiled_flow.h"
#include "kernels/cpu/runtime/batch_rows.h"
#include "kernels/cpu/runtime/thread_pool.h"

namespace sluice::cpu {

/// Scratch of one thread: partials of one row's pieces, then log sums and a spare output, or of a prompt's tile those of its rows
/// and two partials that are joined, then the kernels' own.
struct ThreadScratch {
  size_t partials;
  size_t spare;
  size_t of_one;  // partial
  size_t kernel;
  size_t total;

  ThreadScratch(int group, int dim, int pages, int page);
  /// The first of two partials, or the second.
  size_t joined(int which) const { return spare + kMostTileColumns + static_cast<size_t>(which) * of_one; }
};

/// Attention of a whole pass: cuts it into tasks, hands them to the threads, and merges what they find.
///
/// A prefill tile is a task. So are a few pieces of a dense decode row, and each (decode row, KV head) that runs a flow: its
/// index stage and then its pieces, since the selection is fresh in this core's cache, and its after stage. What rows of prompts
/// give their tokens is summed once all tiles are done, by other tasks.
class Attend {
 public:
  /// `tiles`: prefill and the scores of decode run on AMX tiles where K, V and the head dimension fit them.
  Attend(ThreadPool& pool, bool tiles) : pool_(pool), tiles_(tiles), scratch_(pool.threads()), source_rows_(pool.threads()) {}

  void reserve(const Device::Limits& limits);
  /// `flow` is call.flow as this device compiled it, or null.
  void run(const BatchRows& pass, const Device::Attention& call, const DeviceFlow* flow, const Matrix& q, const Matrix& out);
  /// Device::add_row_masses.
  void add_row_masses(const BatchRows& pass, const Device::RowMasses& call, const Matrix& q, const Matrix& masses);

 private:
  enum class Kind : uint8_t { kTile, kPieces, kFlow };
  struct Task {
    Kind kind;
    int sequence;
    int kv_head;
    int first;   // row of the tile or number of the first piece
    int pieces;  // that follow each other
    int row;     // of pieces: in rows_
  };
  /// A (decode row, KV head) without a flow.
  struct DecodeRow {
    int64_t first;  // of its partials
    int pieces;
    int left;  // pieces that no thread has ended yet; counted atomically
  };

  void plan(const BatchRows& pass);
  /// Pieces of all dense rows.
  int64_t count_pieces(const BatchRows& pass) const;
  /// Pieces of a dense row that a task takes while `left` are without one: many, since the memory stays busy between them;
  /// fewer towards the end, so that the threads end together.
  int pieces_together(int64_t left) const;
  /// Whether a mask hides everything from the row of a sequence that decodes.
  bool sees_nothing(int sequence, int kv_head) const;
  /// Whether a sequence is in prefill on AMX tiles.
  bool is_packed(int sequence) const;
  /// Makes the prompt masks of the pass's sequences.
  void split_masks();
  /// Of a sequence in prefill that has masks; null for others.
  PromptMasks* prompt_masks(int sequence);
  /// One tile, by `attend` (tile, scratch), and the tokens that its rows see beside it.
  template <class AttendTile>
  void attend_rows(int sequence, int kv_head, int first, int rows, int thread, AttendTile attend);
  /// Prefill on AMX tiles: packs a sequence's K and V, then runs its tiles. One sequence at a time shares the memory.
  void run_packed(int sequence);
  void run_tile(const Task& task, int thread);
  void run_pieces(const Task& task, int thread);
  void run_flow(const Task& task, int thread);
  /// What the sources of a plan have in a row, of which pages.
  struct SourceRow {
    std::vector<std::vector<int32_t>> entries;  // [sources] positions of those that weigh what they weigh
    std::vector<int32_t> opened;                // positions of pages whose tokens share the weight of an entry ...
    int sharing = -1;                           // ... of this source
    std::vector<uint8_t> shares;                // [pages] whether such a source has the page
    std::vector<uint8_t> has_tokens;            // [pages] whether a source of tokens does

    std::vector<GroupKind> groups;  // of a source whose pages are grouped
    std::vector<float> logits;      // [pages, group] of it

    void reserve(size_t sources, size_t pages, size_t heads);
  };
  void find_sources(const FlowRow& row, int thread);
  SummaryPages summaries_of(const FlowRow& row, FlowScratch& scratch, size_t source) const;
  /// The same, as its groups weigh.
  SummaryPages weighed_summaries(const FlowRow& row, int thread, size_t source);
  /// A row over all sources of its flow, which has selected; out [group, dim]. How many pages as many entries would fill, all
  /// of them at most. `masses` (may be null) [pages, page, group] gets what each token of the row is given.
  int attend_sources(const FlowRow& row, int thread, float* out, float* masses);
  /// What the last row of a sequence is counted by (FlowRow::step), which is shown `tokens`.
  int64_t step_of(int sequence, int64_t tokens) const;
  /// Where the flow's fields lie, in the pages of K and V or in their own.
  PageTable field_table(int sequence, int kv_head, std::span<const int32_t> pages) const;
  /// One row over `pages`, in pieces, by this thread alone, whose scratch is for as many pages or more.
  /// `mask` (may be null: all): a bit for each of their tokens that counts. `logits` as attend_piece has it.
  void attend_pages(int kv_head, std::span<const int32_t> pages, int last_tokens, const uint32_t* mask, const float* query,
                    int thread, const ThreadScratch& at, float* out, float* log_sums, float* logits = nullptr);

  // What attention gives tokens (attend_masses.cpp).

  /// Ends a decode step whose flow has an after stage. Where attention is plain, of the logits that it left of the pages at
  /// `positions`, the last of which holds `last_tokens` tokens, the masses of the row are made first; their `log_sums` [group].
  void end_step(const FlowRow& row, std::span<const int32_t> positions, int last_tokens, const float* log_sums, int thread);
  /// Logits [tokens, group] of the pages at `positions`, one behind the other, become those of all `pages` of a row at their
  /// places; -inf of those that are not attended to. The last of `positions` holds `last_tokens` tokens.
  void spread_logits(std::span<const int32_t> positions, int pages, int last_tokens, float* logits) const;
  /// The rows of a sequence's prompt once which have been attended to the after stage runs; 0: it does not.
  int prompt_end(int sequence) const;
  /// Whether a pass has rows of a sequence's prompt that the flow's after stage is given the masses of.
  bool sums_masses(int sequence) const;
  /// The first of them, counted from the sequence's first row in the pass.
  int first_summed_row(int sequence) const;
  RequestState& prompt_state(int sequence) const;
  /// Where the logarithms of what a row's scores sum to are kept until masses are summed: [rows][group] of a KV head.
  float* prompt_log_sums(int64_t row, int kv_head) const;
  /// Adds to the states of sequences what the rows of their prompts have given.
  void sum_prompt_masses();
  void add_block_masses(int sequence, int kv_head, int first, int thread);
  /// Runs the after stage of prompts whose last row the pass had.
  void end_prompts();
  void end_prompt(int sequence, int kv_head, int thread);
  /// Places of the pages that a prompt's last row is shown (all, or those that its masks have in any head, and its own); their
  /// number.
  int pages_shown(int sequence, int32_t* positions) const;
  void report(int64_t slot, std::span<const int32_t> positions);
  /// The tokens that have a bit in `tokens`, page behind page, of the pages at `positions`.
  void report_tokens(int64_t slot, std::span<const int32_t> positions, std::span<const uint32_t> tokens);
  void report_dense(int sequence, int kv_head);

  KvPages kv_pages(int kv_head) const;
  PrefillTile tile_of(int sequence, int kv_head, int first, int rows);
  float* query_of(int sequence, int kv_head) const;
  float* output_of(int sequence, int kv_head) const;

  ThreadPool& pool_;
  bool tiles_;
  std::vector<Task> tasks_;
  std::vector<DecodeRow> rows_;
  MappedMemory partials_;  // of dense decode rows
  MappedMemory packed_;    // [kv_heads] K and V of the sequence in prefill, for AMX: of packs that rows see
  std::vector<std::vector<PromptMasks>> prompt_masks_;  // [groups][sequences]
  std::vector<MappedMemory> scratch_;
  std::vector<SourceRow> source_rows_;  // by thread; of flows whose attention is not plain
  std::vector<int> selected_;           // [tasks] pages that a flow chose
  MappedMemory prompt_log_sums_;        // [kv_heads][rows][group] of flows that read the masses of prompts

  // The call in progress.
  const BatchRows* pass_ = nullptr;
  const Device::Attention* call_ = nullptr;
  const LayerPages* layer_ = nullptr;
  const DeviceFlow* flow_ = nullptr;
  Matrix q_;
  Matrix out_;
  int group_ = 1;
  int64_t score_rows_ = 0;  // of each row that a probe reports
};

}  // namespace sluice::cpu
