#pragma once

#include <vector>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/layout.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

namespace sluice::cuda {

/// The states of one request in device memory: a block of float32 numbers for each sparse layer and KV head (StateBlock).
/// Pages that no step has saved hold the initial values.
class CudaFlowState final : public RequestState {
 public:
  CudaFlowState(const codegen::FlowLayout& layout, int sparse_layers, int kv_heads, int max_pages);

  size_t bytes() const override { return memory_.bytes(); }
  void reset() override;

  StateBlock block() const { return {memory_.as<float>(), capacity_}; }
  int max_pages() const { return capacity_; }

 private:
  std::vector<float> initial_;  // of one layer and KV head
  int blocks_;
  int capacity_;
  DeviceMemory memory_;
};

}  // namespace sluice::cuda
