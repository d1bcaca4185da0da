#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/pages/pool.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/selection/topk.h"
#include "kernels/device.h"

struct CUevent_st;
struct CUstream_st;

namespace sluice::cuda {

/// Carries small arrays to the device without waiting, beside what runs there: on a stream of its own, and by turns through two
/// halves of pinned and of device memory, so that a half is filled while what was sent before is on its way or in use.
class Staging {
 public:
  Staging();

  /// Makes room for `bytes` at a time.
  void reserve(size_t bytes);
  /// Host memory to fill, for one `send`. Waits for the copy before the last, if that has not been made yet.
  std::byte* fill(size_t bytes);
  /// Copies the first `bytes` of what was filled. What is queued on `stream` from now on, until `send` is called again, finds
  /// them in `device()`.
  void send(size_t bytes, Stream stream);
  std::byte* device() const { return halves_[sent_half_].device.as<std::byte>(); }
  /// Which of two places that is.
  int half() const { return sent_half_; }
  /// Differs once these have moved.
  uintptr_t ground() const { return moves_; }

 private:
  struct FreePinned {
    void operator()(void* memory) const;
  };
  struct DestroyEvent {
    void operator()(CUevent_st* event) const;
  };
  struct DestroyStream {
    void operator()(CUstream_st* stream) const;
  };
  using Event = std::unique_ptr<CUevent_st, DestroyEvent>;
  struct Half {
    std::unique_ptr<void, FreePinned> memory;
    DeviceMemory device;
    Event sent;
    Event used;  // all that was queued while it was what had been sent last
  };

  static Event create_event();

  std::unique_ptr<CUstream_st, DestroyStream> stream_;
  std::array<Half, 2> halves_;
  int half_ = 0;       // that was filled last
  int sent_half_ = 0;  // that was sent last
  uintptr_t moves_ = 0;
};

/// What kernels need to know of a pass and of one group of its pool's layers, in device memory.
struct PassArrays {
  const int32_t* tokens = nullptr;        // [rows] what `upload` was given, or undefined
  const int32_t* positions = nullptr;     // [rows] of the token in its sequence
  const int32_t* query_indptr = nullptr;  // [sequences + 1]
  const uint64_t* seeds = nullptr;        // [sequences]
  const StateBlock* states = nullptr;     // [programs, sequences] those of requests without state are null
  const HintBlock* hints = nullptr;       // [programs, sequences] as these

  // Of the group.
  const int32_t* slots = nullptr;      // [rows] as GroupPages has them
  const int32_t* row_slots = nullptr;  // [rows][slot_heads] where a row's key and value go, in KV heads in turn
  const int32_t* row_pages = nullptr;  // [rows][slot_heads] the page that has the slot
  int slot_heads = 1;
  const int32_t* seen = nullptr;            // [sequences] slots that its rows may see
  const int32_t* page_indptr = nullptr;     // [sequences + 1] in page_indices
  const int32_t* mask_indptr = nullptr;     // [sequences + 1] in `masks`: those of a sequence, as GroupPages has them
  const int32_t* beside_indptr = nullptr;   // [sequences + 1] in `page_indices`: a page's place and its words (BesideTokens)
  const int32_t* touched_pages = nullptr;   // [touched] the pages that the pass writes to
  const int32_t* touched_tokens = nullptr;  // [touched] slots in use that they have afterwards
  int touched = 0;

  // Of the group, where tokens leave it; else null.
  const int32_t* held = nullptr;         // [sequences] as GroupPages has them
  const int32_t* staying = nullptr;      // [sequences] of them
  const int32_t* newest = nullptr;       // [sequences] position of the newest token that comes with the rows
  const int32_t* dense_pages = nullptr;  // [sequences] that dense attention of a decode step would read; 0 for prompts

  // Of all groups, last, as their number varies.
  const int32_t* page_indices = nullptr;
  const uint32_t* masks = nullptr;  // the same memory: mask_indptr counts from where page_indices begins

  /// Those of a program of the flow, of sequences from `first` on.
  const StateBlock* states_of(int program, int first) const { return states + static_cast<size_t>(program) * sequences + first; }
  const HintBlock* hints_of(int program, int first) const { return hints + static_cast<size_t>(program) * sequences + first; }
  int sequences = 0;

  RowPlaces places() const { return {positions, row_slots, row_pages, slot_heads}; }
};

/// The batch of one forward pass, checked, and its way to the device: one copy.
class BatchUpload {
 public:
  void reserve(const Device::Limits& limits);
  /// Throws InternalError naming the field of the batch that disagrees.
  void begin(const PassBatch& batch, CudaPool& pool);
  void end() noexcept { pool_ = nullptr; }

  bool active() const { return pool_ != nullptr; }
  const PassBatch& batch() const { return batch_; }
  CudaPool& pool() const { return *pool_; }

  /// Whether the pass's arrays have left already; `upload` may still take the tokens along if not.
  bool uploaded() const { return uploaded_; }
  /// Sends the arrays, and with them the tokens of all rows (or none).
  void upload(std::span<const int32_t> tokens, Stream stream);
  /// Whether the tokens that were sent are these.
  bool has(std::span<const int32_t> tokens) const {
    return uploaded_ && tokens_.data() == tokens.data() && tokens_.size() == tokens.size();
  }
  /// The arrays, sent if they have not been. Of passes of decode steps alone, all begin at places that depend on the number of
  /// sequences, on `half` and on `ground`.
  PassArrays arrays(Stream stream, int group);

  /// Which of two places the arrays of this pass are in, once they have been sent.
  int half() const { return staging_.half(); }
  /// Differs once these places have moved.
  uintptr_t ground() const { return staging_.ground(); }

  int query_rows(int sequence) const { return batch_.query_rows(sequence); }
  const GroupPages& group(int index) const { return batch_.groups[index]; }
  /// Slots of a group that rows of a sequence may see: all in use where masks say more, else those up to the last row's.
  int seen(int group, int sequence) const {
    return this->group(group).is_masked(sequence) ? this->group(group).lengths[sequence] : batch_.seen(group, sequence);
  }
  /// Pages of these slots.
  int page_count(int group, int sequence) const { return pages_for(seen(group, sequence), pool_->layout(group).page); }
  /// Whether the rows of every sequence in prefill are its last slots, one behind the other, and have no masks.
  bool is_regular(int group) const { return group_pages_[group].regular; }
  /// Where the pages of a sequence begin in PassArrays::page_indices.
  int first_page(int group, int sequence) const { return group_pages_[group].indices + this->group(group).page_indptr[sequence]; }
  /// Where the masks of a sequence that has some begin in PassArrays::masks.
  int first_mask(int group, int sequence) const { return group_pages_[group].masks + this->group(group).mask_indptr[sequence]; }

 private:
  /// Where the arrays of one group lie.
  struct GroupPlace {
    bool regular = true;
    int touched = 0;
    int fixed = 0;    // numbers before its first array
    int indices = 0;  // before its pages, from where page_indices begins
    int masks = 0;    // and before its masks
    int beside = 0;   // and before its tokens beside a selection
  };

  void place();
  void fill();
  void fill_group(int index);
  void fill_beside(const BesideTokens& beside, int words, int first, const PassArrays& at);
  int count_touched(int index) const;
  bool finds_regular(int index) const;
  PassArrays arrays_at(const std::byte* data, int group) const;

  PassBatch batch_;
  CudaPool* pool_ = nullptr;
  Staging staging_;
  std::span<const int32_t> tokens_;  // that were sent
  std::byte* host_ = nullptr;        // what PassArrays points to
  int programs_ = 1;                 // of the flow whose states the requests have
  std::vector<GroupPlace> group_pages_;
  size_t fixed_ = 0;  // numbers before page_indices
  size_t bytes_ = 0;
  bool uploaded_ = false;
};

}  // namespace sluice::cuda
