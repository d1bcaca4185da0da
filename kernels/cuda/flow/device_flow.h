#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/flow/flow.h"
#include "kernels/cuda/pages/pool.h"

namespace sluice::cuda {

/// Sequences that attend in one launch.
inline constexpr int kMostLists = 512;

/// A flow that its device knows of while it lives.
class RegisteredFlow final : public CompiledFlow {
 public:
  RegisteredFlow(const Plan& plan, int layers, int kv_heads, std::shared_ptr<std::vector<CudaFlow*>> flows, Stream stream)
      : flow_(plan, layers, kv_heads), flows_(std::move(flows)), stream_(stream), counters_(2 * sizeof(unsigned long long)) {
    counters_.clear();
    flows_->push_back(&flow_);
  }
  ~RegisteredFlow() override { std::erase(*flows_, &flow_); }
  RegisteredFlow(const RegisteredFlow&) = delete;
  RegisteredFlow& operator=(const RegisteredFlow&) = delete;

  const Plan& plan() const override { return flow_.plan(); }
  std::unique_ptr<RequestState> create_state(int max_pages) const override { return flow_.create_state(max_pages); }
  FlowCounters counters() const override {
    unsigned long long pages[2] = {};
    SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_));
    counters_.download(pages, sizeof(pages));
    return {.pages_attended = pages[0], .pages_available = pages[1]};
  }

  void reserve(int sequences, int pages) const { flow_.reserve(sequences, pages); }
  /// Flows have scratch, which is no part of what they mean.
  CudaFlow& flow() const { return flow_; }
  PageCounters page_counters() const {
    auto* const pages = counters_.as<unsigned long long>();
    return {.attended = pages, .available = pages + 1};
  }

 private:
  mutable CudaFlow flow_;
  std::shared_ptr<std::vector<CudaFlow*>> flows_;
  Stream stream_;
  DeviceMemory counters_;  // pages attended, pages available
};

/// Throws InternalError for the pool of another device.
CudaPool& as_cuda(Pool& pool);
/// The flow as this device compiled it. Throws InternalError for that of another.
const RegisteredFlow& as_cuda(const CompiledFlow& flow);
/// Those of a layer. `field_group` has the fields of the flow whose plan it is, if they have pages of their own.
FlowBlocks blocks_of(const CudaPool& pool, int layer, const Plan& plan, int field_group);
/// Throws InternalError for activations that are neither f32 nor bf16.
void require_numbers(const char* operation, const Matrix& matrix);

}  // namespace sluice::cuda
