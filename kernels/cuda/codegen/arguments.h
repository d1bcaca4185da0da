#pragma once

// Compiled into the program and, as text, into every generated kernel: no includes, and types of the same size in both.

namespace sluice::cuda {

// Of kernels that hold rows.
constexpr int kRowThreads = 512;         // of a block
constexpr int kLargeRowBlocks = 2;       // of so many threads that share a multiprocessor
constexpr int kSmallRowThreads = 256;    // of a block where there are more rows than that
constexpr int kSmallRowBlocks = 4;       // of so many threads that share a multiprocessor
constexpr int kMostStages = 6;           // of a warp's ring
constexpr int kHeldStep = 128;           // pages that a block holds are a multiple of this
constexpr int kMostRowBlocks = 16;       // that share a row
constexpr int kMostParts = 3;            // of a float32, in bf16
constexpr int kSelectionBytes = 24'576;  // that selection works with, where copies of pages were
constexpr int kFieldThreads = 128;       // that compute the newest page's fields, while the others go on

// Of kernels that attend, too (attending.cuh).
constexpr int kSelectorThreads = 128;
constexpr int kAttenderThreads = 256;
constexpr int kAttendingThreads = kSelectorThreads + kAttenderThreads;  // of a block, which has a multiprocessor to itself
constexpr int kMostOwnRows = 4;                                         // of a block
constexpr int kSelectorBytes = 7'168;                                   // that selectors work with
constexpr int kMergingBytes = 10'240;  // that attenders merge what their warps found with, where queries were
constexpr int kFewPages = 8;           // of a row that blocks tell each other, and that are taken one after the other
constexpr int kMostHeldPages = 4096;   // of a row that some warps of a block select from (held_row.cuh); with more they take long

/// Where a request keeps a flow's states: for each (sparse layer, KV head) the states with a page axis, each of `capacity` pages,
/// then those without.
struct StateBlock {
  float* values;
  long long capacity;  // pages, a multiple of 4, so that lines of channels begin at multiples of 16 bytes
  int* positions;      // [sparse layers, KV heads, capacity * page] of the token in each slot, where tokens leave; else null
};

/// What the generated kernels of a flow are given. A row is a (sequence, KV head), row = sequence * kv_heads + head.
struct FlowArguments {
  unsigned char* pages;   // K and V: block (page, head) at pages + page * page_stride + head * block_bytes
  long long page_stride;  // bytes
  long long block_bytes;
  unsigned char* fields;  // the same of the fields, where they have pages of their own
  long long field_page_stride;
  long long field_block_bytes;
  int kv_heads;
  int layer;

  // Refresh: the fields of these pages, each of which holds so many tokens.
  const int* touched_pages;   // [touched]
  const int* touched_fields;  // [touched] the pages of their fields, where these are others
  const int* touched_tokens;  // [touched]; null: all are full but the last
  int touched;
  int touched_by_head;  // these are [touched, kv_heads], and -1 stands for none
  int last_tokens;

  // Index stage.
  const int* lengths;       // [sequences] tokens
  const int* page_indptr;   // [sequences + 1]
  const int* page_indices;  // pages, oldest first
  const int* field_indptr;  // the same of the pages of fields, where these are others
  const int* field_indices;
  const unsigned long long* seeds;  // [sequences], or null
  const int* steps;                 // [sequences] what chance counts steps by, less 1; null: it is `lengths`
  const StateBlock* states;         // [sequences], or null
  int state_layer;                  // number of the layer among those that run the flow
  const void* query;                // [sequences, kv_heads * group, dim]
  long long query_stride;           // elements from sequence to sequence
  int query_is_f32;                 // else bf16
  float* rows;                      // [rows, row_stride] values that kernels hand on
  long long row_stride;
  int row_count;
  int behind_refresh;  // before earlier kernels have ended, all pages of a row but the newest may be read; q, too, by kernels for
                       // pieces of rows
  int refreshes;   // kernels that hold rows recompute the fields of the newest pages, which nobody has since they were written
  int capacity;    // pages that a row's buffers have room for
  int most_pages;  // of any row
  int chunk;       // pages of a block
  float* scratch;  // of kernels whose blocks need more than shared memory has

  // After stage.
  const float* masses;          // [rows, group, mass_stride] of tokens, at the places where they were attended to
  long long mass_stride;        // of whole pages
  const float* mass_sums;       // [rows, group]: masses are 2^(masses - mass_sums); null: as they are
  const int* mass_pages;        // [rows, mass_page_stride] positions of the pages attended to, ascending; null: all
  const int* mass_page_counts;  // [rows] of them
  long long mass_page_stride;
  int ends_prompt;  // it is that of a prompt, which saves nothing of the index stage's

  // What top-k selects from: [selections, number_stride], by row.
  long long number_stride;
  int* lengths_out;  // scores between the pages that are kept anyway
  int* budgets_out;  // how many of them

  // Kernels that hold rows.
  int held_pages;  // of a block, a multiple of kHeldStep; where blocks attend, of a row, a multiple of 32
  int stages;      // of each warp's ring
  float* scores;   // [rows, score_stride] for those who ask, or null: of a row [row_numbers, capacity], as its scores are placed
  long long score_stride;
  int* list_positions;  // the selected pages as Selection (selection.h) has them
  int* list_pages;
  long long list_stride;
  int* list_starts;
  int* list_tokens;
  int* list_counts;
  unsigned long long* attended;
  unsigned long long* available;
};

/// What kernels that attend are given besides.
struct alignas(64) AttentionArguments {
  unsigned char map[128];       // of K and V (map_blocks in paged_kv.h)
  const unsigned short* query;  // bf16 [sequences, kv_heads * group, dim]
  long long query_stride;       // numbers from sequence to sequence
  unsigned short* out;          // bf16 [sequences, kv_heads * group, dim]
  float scale;                  // of q . k, in base 2
  int own_rows;                 // of a block: so many KV heads of one sequence, at most kMostOwnRows
  int list_room;                // pages that a row may select
  // Of cover_in_cluster, what warps have room for (ClusterRings).
  int ring_bytes;     // of all warps, of tiles of fields and then of K and V
  int value_stages;   // tiles of K and V of a warp
  int summary_turns;  // tiles of summaries of a warp
};

}  // namespace sluice::cuda
