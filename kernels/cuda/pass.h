#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/pool.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

struct CUevent_st;

namespace sluice::cuda {

/// Carries small arrays to the device without waiting: from pinned memory, of
/// which there are two halves, so that the host fills one while the copy from
/// the other may still be due. What was sent last is in `device()`, until more
/// is reserved.
class Staging {
 public:
  /// Makes room for `bytes` at a time.
  void reserve(size_t bytes);
  /// Host memory to fill, for one `send`. Waits for the copy before the last,
  /// if that has not been made yet.
  std::byte* fill(size_t bytes);
  /// Copies the first `bytes` of what was filled.
  void send(size_t bytes, Stream stream);
  std::byte* device() const { return device_.as<std::byte>(); }

 private:
  struct FreePinned {
    void operator()(void* memory) const;
  };
  struct DestroyEvent {
    void operator()(CUevent_st* event) const;
  };
  struct Half {
    std::unique_ptr<void, FreePinned> memory;
    std::unique_ptr<CUevent_st, DestroyEvent> sent;
  };

  std::array<Half, 2> halves_;
  int half_ = 0;
  DeviceMemory device_;
};

/// What kernels need to know of a pass, in device memory.
struct PassArrays {
  const int32_t* tokens = nullptr;          // [rows] what `upload` was given, or undefined
  const int32_t* positions = nullptr;       // [rows] of the token in its sequence
  const int32_t* row_pages = nullptr;       // [rows] the page that holds the token
  const int32_t* lengths = nullptr;         // [sequences] these as in PassBatch
  const int32_t* query_indptr = nullptr;    // [sequences + 1]
  const int32_t* page_indptr = nullptr;     // [sequences + 1]
  const int32_t* page_indices = nullptr;    // [page_indptr.back()] last, as their number varies
  const uint64_t* seeds = nullptr;          // [sequences]
  const StateBlock* states = nullptr;       // [sequences] those of requests without state are null
  const int32_t* touched_pages = nullptr;   // [touched] the pages that the pass writes to
  const int32_t* touched_tokens = nullptr;  // [touched] tokens that they hold afterwards
  int touched = 0;
};

/// The batch of one forward pass, checked, and its way to the device: one copy.
class Pass {
 public:
  void reserve(const Device::Limits& limits);
  /// Throws InternalError naming the field of the batch that disagrees.
  void begin(const PassBatch& batch, CudaPool& pool);
  void end() noexcept { pool_ = nullptr; }

  bool active() const { return pool_ != nullptr; }
  const PassBatch& batch() const { return batch_; }
  CudaPool& pool() const { return *pool_; }

  /// Whether the pass's arrays have left already; `upload` may still take the
  /// tokens along if not.
  bool uploaded() const { return uploaded_; }
  /// Sends the arrays, and with them the tokens of all rows (or none).
  void upload(std::span<const int32_t> tokens, Stream stream);
  /// Whether the tokens that were sent are these.
  bool has(std::span<const int32_t> tokens) const {
    return uploaded_ && tokens_.data() == tokens.data() && tokens_.size() == tokens.size();
  }
  /// The arrays, sent if they have not been. Of passes of decode steps alone, all begin at places that depend on the number of
  /// sequences and on `ground`.
  PassArrays arrays(Stream stream);

  uintptr_t ground() const { return reinterpret_cast<uintptr_t>(staging_.device()); }

  int query_rows(int sequence) const { return batch_.query_rows(sequence); }
  /// The pages that hold the sequence's tokens, oldest first.
  std::span<const int32_t> pages(int sequence) const { return batch_.pages(sequence, pool_->layout().page); }

 private:
  void fill();
  size_t bytes() const;
  int count_touched() const;

  PassBatch batch_;
  CudaPool* pool_ = nullptr;
  Staging staging_;
  std::span<const int32_t> tokens_;  // that were sent
  std::byte* host_ = nullptr;        // what PassArrays points to, in its order
  int touched_ = 0;
  bool uploaded_ = false;
};

}  // namespace sluice::cuda
