#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/kernel_library.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/selection.h"
#include "kernels/device.h"

namespace sluice::cuda {

/// The blocks of one layer: those of page `p` and KV head `h` at base + p * page_stride + h * block_bytes.
struct FlowBlocks {
  std::byte* base = nullptr;
  size_t page_stride = 0;
  size_t block_bytes = 0;
  int kv_heads = 1;
  int layer = 0;
};

/// Sequences that decode, in device memory.
struct FlowSequences {
  int count = 0;
  int most_pages = 0;                     // of any of them
  const int32_t* lengths = nullptr;       // [count] tokens
  const int32_t* page_indptr = nullptr;   // [count]
  const int32_t* page_indices = nullptr;  // oldest first
  const uint64_t* seeds = nullptr;        // [count]; null: 0
  const StateBlock* states = nullptr;     // [count]; null for flows that keep none
  const void* query = nullptr;            // [count, kv_heads * group, dim]
  int64_t query_stride = 0;               // elements from sequence to sequence
  DataType query_type = DataType::kBF16;  // or f32
};

/// What a flow selected, in device memory until its next selection. A row is sequence * kv_heads + head.
struct FlowResult {
  const int32_t* positions = nullptr;  // [rows, stride] ascending
  const int32_t* pages = nullptr;      // [rows, stride] the same as pool pages
  const int32_t* starts = nullptr;     // [rows] row * stride
  const int32_t* tokens = nullptr;     // [rows] tokens in them
  const int32_t* counts = nullptr;     // [rows]
  int64_t stride = 0;
  const float* scores = nullptr;  // [rows, score_stride] of the last selection by score; null: there is none
  int64_t score_stride = 0;
};

/// Pages attended to and pages there were, summed by the GPU.
struct PageCounters {
  unsigned long long* attended = nullptr;
  unsigned long long* available = nullptr;
};

/// A plan compiled to kernels of its own. It has scratch memory, so one stream at a time may use it.
class CudaFlow final {
 public:
  CudaFlow(Plan plan, int layers, int kv_heads);

  const Plan& plan() const { return plan_; }
  /// State for one request of at most `max_pages` pages; null if the flow keeps none.
  std::unique_ptr<RequestState> create_state(int max_pages) const;
  const std::string& source() const { return source_.text; }

  /// Makes room for so many sequences of so many pages.
  void reserve(int sequences, int pages);

  /// Differs after its scratch has moved.
  uintptr_t ground() const { return static_cast<uintptr_t>(reserved_) + scratch_.bytes(); }

  /// Recomputes the fields of `count` pages (device memory) of all KV heads. `tokens` (may be null) are those that each holds;
  /// without it all are full but the last, which holds `last_tokens`.
  void refresh(const FlowBlocks& blocks, const int32_t* pages, const int32_t* tokens, int count, int last_tokens, Stream stream);

  /// Runs the index stage of one layer for all sequences and KV heads. Exact top-k keeps the order of kernels/cpu/topk.h.
  FlowResult select(const FlowBlocks& blocks, const FlowSequences& sequences, const PageCounters& counters, Stream stream);

 private:
  struct Loaded {
    codegen::GeneratedKernel how;
    Kernel kernel = nullptr;
    int resident = 1;  // blocks that the device runs at a time
  };

  Loaded load(const codegen::GeneratedKernel& how) const;
  void launch(const Loaded& loaded, int64_t blocks, const FlowArguments& arguments, Stream stream) const;
  FlowArguments arguments_of(const FlowBlocks& blocks) const;
  /// Most pages that a selection by score takes between those that are kept anyway.
  int most_budget(const Node& selection, int pages) const;
  /// The union of selections that the flow's result is.
  void find_leaves(NodeId id);
  int64_t row_stride() const;
  void grow_memory();
  const float* values_of(NodeId id) const;

  Plan plan_;
  codegen::FlowLayout layout_;
  codegen::GeneratedSource source_;
  int kv_heads_;
  std::vector<int> state_layers_;  // by layer: its number among sparse ones, or -1
  int sparse_layers_ = 0;
  KernelLibrary library_;
  Loaded refresh_;
  std::vector<Loaded> index_;
  std::vector<NodeId> leaves_;

  int refreshed_layer_ = -1;  // since the last selection
  int reserved_ = 0;          // times
  int capacity_ = 0;          // pages of a row
  int most_rows_ = 0;
  DeviceMemory rows_;       // [rows, row_stride()] float32
  DeviceMemory lists_;      // [selections, rows, capacity]
  DeviceMemory numbers_;    // [selections, rows] counts, lengths, budgets; then of the result [rows] starts, tokens, counts
  DeviceMemory positions_;  // [rows, capacity]
  DeviceMemory pages_;      // [rows, capacity]
  mutable DeviceMemory scratch_;
};

}  // namespace sluice::cuda
