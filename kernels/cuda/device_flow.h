#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/flow.h"
#include "kernels/cuda/pool.h"

namespace sluice::cuda {

/// Sequences that attend in one launch.
inline constexpr int kMostLists = 512;

/// A flow that its device knows of while it lives.
class RegisteredFlow final : public CompiledFlow {
 public:
  RegisteredFlow(const Plan& plan, int layers, int kv_heads, std::shared_ptr<std::vector<CudaFlow*>> flows)
      : flow_(plan, layers, kv_heads), flows_(std::move(flows)) {
    flows_->push_back(&flow_);
  }
  ~RegisteredFlow() override { std::erase(*flows_, &flow_); }
  RegisteredFlow(const RegisteredFlow&) = delete;
  RegisteredFlow& operator=(const RegisteredFlow&) = delete;

  const Plan& plan() const override { return flow_.plan(); }
  std::unique_ptr<RequestState> create_state(int max_pages) const override { return flow_.create_state(max_pages); }
  void reserve(int sequences, int pages) { flow_.reserve(sequences, pages); }
  /// Flows have scratch, which is no part of what they mean.
  CudaFlow& flow() const { return flow_; }

 private:
  mutable CudaFlow flow_;
  std::shared_ptr<std::vector<CudaFlow*>> flows_;
};

/// Throws InternalError for the pool of another device.
CudaPool& as_cuda(Pool& pool);
/// The flow as this device compiled it, checked to lay out pages as `pool` does. Throws InternalError.
CudaFlow& as_cuda(const char* operation, const CompiledFlow& flow, const CudaPool& pool);
/// Throws InternalError for activations that are neither f32 nor bf16.
void require_numbers(const char* operation, const Matrix& matrix);

}  // namespace sluice::cuda
