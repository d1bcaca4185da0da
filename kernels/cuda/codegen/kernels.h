#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/codegen/layout.h"

namespace sluice::cuda::codegen {

/// One generated kernel and how to launch it.
struct GeneratedKernel {
  std::string name;
  int threads = 256;
  int64_t memory_bytes = 0;  // of a block: dynamic shared memory, or, if that is more than a block has, global scratch
  bool global_memory = false;
  bool by_row = false;  // a block for each row, else for each chunk of pages of each row
};

/// The kernel that takes a row from scores to the list of selected pages on chip: a cluster of blocks for each row, each of which
/// holds an equal stretch of its pages.
struct RowKernel {
  std::string name;         // empty: there is none
  int64_t fixed_bytes = 0;  // of a block, whatever the row: queries, constants, tiles of warps, a page's fields
  int64_t page_bytes = 0;   // for each page that it holds
  int64_t stage_bytes = 0;  // of a stage of a warp's ring; 0: nothing is copied
  int64_t read_bytes = 0;   // of a page

  /// Dynamic shared memory of a block of so many threads that holds so many pages (a multiple of kHeldStep), with rings of so
  /// many stages.
  int64_t shared_bytes(int64_t pages, int stages, int threads) const;
  /// Pages of the longest row that fits, about; 0: not even the shortest does.
  int64_t most_pages() const;
};

/// The kernel that takes rows from scores to attention: blocks of kAttendingThreads have a multiprocessor and several rows each.
struct AttendingKernel {
  std::string name;         // empty: there is none
  int64_t fixed_bytes = 0;  // of a block, whatever its rows
  int64_t row_bytes = 0;    // for each of its rows
  int64_t page_bytes = 0;   // for each page of each of them

  /// Dynamic shared memory of a block that has so many rows of at most so many pages (a multiple of 32), of which each selects at
  /// most `room`.
  int64_t shared_bytes(int64_t pages, int64_t rows, int64_t room) const;
};

/// Bytes of fields from which on a page takes long to score.
inline constexpr int kHeavyPage = 1024;

/// Tiles that each warp of a block has room for.
struct ClusterRings {
  int stages = 1;         // of fields, ...
  int value_stages = 1;   // ... and of K and V in the same place
  int summary_turns = 0;  // of summaries: all of its own, or some in turn
};

/// The kernel that does the same for few rows: a cluster of blocks of kAttenderThreads, each with a multiprocessor, has a row.
struct ClusterAttendingKernel {
  std::string name;           // empty: there is none
  int64_t fixed_bytes = 0;    // of a block, whatever the row
  int64_t page_bytes = 0;     // for each page of the row, whichever block has it
  int64_t listed_bytes = 0;   // for each page that the row may select
  int64_t own_bytes = 0;      // for each 32 pages of the block
  int64_t scored_bytes = 0;   // of the fields of a page that are read to score it
  int64_t stage_bytes = 0;    // of a tile of fields
  int scored_pages = 0;       // of such a tile
  int64_t value_bytes = 0;    // of a tile of K and V
  int64_t summary_bytes = 0;  // of a tile of summaries, with what tells that it is there; 0: nothing is attended to but tokens
  int summary_pages = 0;      // of such a tile
  int most_blocks = 1;        // that a multiprocessor has registers for

  /// Tiles of fields that a warp has at most, if blocks have an equal part of so many pages (a multiple of 32) each.
  int most_scored_tiles(int64_t pages, int blocks) const;
  /// Tiles of K and V that a warp asks for where there is no need to save memory.
  int most_value_stages() const;
  /// Tiles of summaries that a warp has at most, if blocks have an equal part of so many pages (a multiple of 32) each.
  int most_summary_turns(int64_t pages, int blocks) const;
  /// Of all warps, of fields, K and V.
  int64_t ring_bytes(const ClusterRings& rings) const;
  /// Dynamic shared memory of one of `blocks` blocks whose row has so many pages (a multiple of 32), of which it selects at most
  /// `room`.
  int64_t shared_bytes(int64_t pages, int blocks, const ClusterRings& rings, int64_t room) const;

 private:
  int64_t summary_tiles(int64_t pages, int blocks) const;
};

/// CUDA source of a flow, without includes.
struct GeneratedSource {
  std::string text;
  std::string small_row_text;          // of `row` for blocks of kSmallRowThreads, which hold a row each; empty if there is none
  GeneratedKernel refresh;             // name empty: there are no fields
  std::vector<GeneratedKernel> index;  // in order; one for each of FlowLayout::launches
  std::vector<GeneratedKernel> after;  // the same of FlowLayout::after
  RowKernel row;                       // the whole index stage in one kernel
  std::string attending_text;          // of `attending`
  AttendingKernel attending;           // the whole index stage and attention in one kernel
  std::string cluster_attending_text;  // of `cluster_attending`
  ClusterAttendingKernel cluster_attending;
  size_t own_bytes = 0;            // of the longest of these texts, without what all flows share
  std::string why_not_whole_rows;  // if there is no kernel that holds rows
  std::string why_not_attending;   // if there is one, but none that attends, too
};

/// Writes the kernels of a plan (Vortex, sections 5.1 and 10): one that recomputes the fields of pages; one that keeps rows on
/// chip through the whole index stage, if the flow is of a kind that can be; and, for rows that are too long for it and for other
/// flows, for each launch of the index stage one that keeps everything but what later launches read in registers and shared
/// memory. Reductions over channels of what blocks hold are read in 16-byte pieces by as many lanes as a page has pieces, or, in
/// the kernel by rows, multiplied on tensor cores. Of plans that `refusal_of_attention` takes.
GeneratedSource generate(const FlowLayout& layout);
/// The text that every source begins with. `has_field_pages`: fields have pages of their own.
std::string shared_text(bool has_field_pages);

/// Why the index stage cannot run as one kernel that holds rows; empty: it can.
std::string why_not_whole_rows(const FlowLayout& layout);
/// Whether every selection keeps the newest page, and its score serves nothing else.
bool newest_is_kept(const FlowLayout& layout);
/// Why one kernel cannot score, select and attend, given that one may hold rows; empty: it can. Of a flow without a cover.
std::string why_not_attending(const FlowLayout& layout);
/// The same of a flow with a cover, for which only clusters can.
std::string why_not_attending_under_cover(const FlowLayout& layout);

}  // namespace sluice::cuda::codegen
