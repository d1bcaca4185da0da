#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device/pass_batch.h"
#include "scripting/pattern/head_patterns.h"

namespace sluice {

/// Writes a PassBatch, sequence by sequence. Nothing allocates once `reserve` made room, so that a decode step can describe
/// itself.
class BatchBuilder {
 public:
  /// `pages`: tokens of a page, by group.
  explicit BatchBuilder(std::vector<int> pages);
  /// For one group.
  explicit BatchBuilder(int page) : BatchBuilder(std::vector<int>{page}) {}

  /// Room for so many sequences and rows, and pages of all sequences in each group.
  void reserve(int sequences, int rows, int pages);
  /// As many words of masks as well, in each group.
  void reserve_masks(int words);
  /// Rows of a group have so many masks, which KV heads have in turn (GroupPages::mask_heads); 1, as at first: all have the same.
  /// Before any sequence. Windows alone have as many, all alike.
  void set_mask_heads(int group, int heads) { groups_[static_cast<size_t>(group)].mask_heads = heads; }
  /// As GroupPages has it; 0 at first.
  void set_row_stride(int group, int stride) { groups_[static_cast<size_t>(group)].row_stride = stride; }
  /// Each of those heads has slots of its own, which every sequence of the group is told of by `keep_slots`.
  void set_head_slots(int group) { groups_[static_cast<size_t>(group)].heads_have_slots = true; }
  void clear();

  struct Sequence {
    int first = 0;  // position of the first row
    int rows = 1;
    bool decoding = false;
    uint64_t seed = 0;
    RequestState* state = nullptr;
    int prompt_rows = 0;  // PassBatch::prompt_rows
  };
  /// Rows that follow each other. Their pages are told group by group.
  void add(const Sequence& sequence);
  /// Rows at `positions`, which ascend; sequence.first and sequence.rows are not read.
  void add_at(std::span<const int32_t> positions, const Sequence& sequence);
  /// The group that has the fields of the flow; -1: they lie with K and V.
  void set_field_group(int group) { field_group_ = group; }
  /// The pages of the sequence added last, in a group in which slots are positions and `length` tokens (0: up to its last row)
  /// are there with its rows. `pages` may be more than that takes. A group is told of all sequences or of none.
  void keep(int group, std::span<const int32_t> pages, int length = 0);
  /// The same where the list begins with the page that holds the token at `first`, a multiple of the page, and a row at position
  /// p sees those from p - window + 1 on.
  void keep_window(int group, std::span<const int32_t> pages, int first, int window);
  /// The same where rows go to `slots`, which ascend, of the `length` slots in use; [rows][mask_heads] after `set_head_slots`.
  /// Which of them each row sees is the caller's to say: the words of its rows and of their heads (GroupPages::masks), all clear,
  /// valid until the builder changes.
  std::span<uint32_t> keep_slots(int group, std::span<const int32_t> pages, int length, std::span<const int32_t> slots);
  /// The same where a flow evicts: of `held` tokens as many leave as there are more than `staying`, and rows go to the slots
  /// behind those that stay, which all of them see. `chunk_end`: GroupPages::chunk_ends.
  void keep_staying(int group, std::span<const int32_t> pages, int held, int staying, int chunk_end);
  /// As GroupPages has them, valid as long as batches are; before any sequence.
  void set_last_readers(int group, std::span<const int32_t> last) { groups_[static_cast<size_t>(group)].last_readers = last; }
  /// Forgets these words: the rows see the slots up to their own, which are the same in all heads.
  void drop_masks(int group);
  /// The same for a decode step where slots are positions, which sees what `patterns` say.
  void keep_under(int group, std::span<const int32_t> pages, const HeadPatterns& patterns);
  /// The row of the sequence added last, a decode step, sees the tokens of `pattern` beside what a flow selects
  /// (AttentionSource::beside). The group was told of its pages; its slots are positions.
  void see_beside(int group, const Pattern& pattern);
  /// Takes out the pages of which the sequence added last sees nothing in any head, so that its slots are counted anew. It has
  /// one row, whose own slot stays.
  void drop_unseen_pages(int group);
  /// Both.
  void add(const Sequence& sequence, std::span<const int32_t> pages, int length = 0) {
    add(sequence);
    keep(0, pages, length);
  }

  int sequences() const { return static_cast<int>(decoding_.size()); }
  int rows() const { return query_indptr_.back(); }
  std::span<const uint8_t> decoding() const { return decoding_; }
  int page(int group) const { return groups_[static_cast<size_t>(group)].page; }
  /// Valid until the builder changes.
  PassBatch batch() const;

 private:
  struct Group {
    int page = 16;
    int mask_heads = 1;
    int row_stride = 0;
    bool heads_have_slots = false;
    std::vector<int32_t> lengths, page_indptr, page_indices, slots, head_slots, mask_indptr;
    std::vector<uint32_t> masks;
    std::vector<int32_t> beside_indptr, beside_pages;
    std::vector<uint32_t> beside_words;
    std::vector<int32_t> held, chunk_ends;
    std::span<const int32_t> last_readers;

    /// Words of the mask of a head of the sequence added last.
    size_t mask_words() const { return static_cast<size_t>((lengths.back() + 31) / 32); }
    /// Slots of a row.
    size_t slot_heads() const { return heads_have_slots ? static_cast<size_t>(mask_heads) : 1; }
    /// Those of the row added last.
    std::span<int32_t> last_slots();
    /// Of the tokens beside the selection of the sequence added last those stay that have a bit in its row's mask.
    void bound_beside(std::span<const uint32_t> mask);
    /// Every array by sequence has its entry for the one added last.
    void end_sequence() {
      mask_indptr.push_back(static_cast<int32_t>(masks.size()));
      beside_indptr.push_back(static_cast<int32_t>(beside_pages.size()));
    }
  };
  /// Rows of the sequence added last.
  std::span<const int32_t> last_positions() const;
  void keep(Group& group, std::span<const int32_t> pages, int first, int length);

  std::vector<int32_t> query_indptr_ = {0};
  std::vector<int32_t> positions_;
  std::vector<uint8_t> decoding_;
  std::vector<uint64_t> seeds_;
  std::vector<RequestState*> states_;
  std::vector<int32_t> prompt_rows_;
  std::vector<Group> groups_;
  int field_group_ = -1;
  std::vector<uint32_t> seen_beside_;      // of a row
  std::vector<uint32_t> seen_;             // of a row, by any head
  std::vector<int32_t> moved_;             // [pages] of a sequence: where they have gone
  mutable std::vector<GroupPages> spans_;  // [groups] what `batch` points to
};

}  // namespace sluice
