#pragma once

#include <vector>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/layout.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/selection/topk.h"
#include "kernels/device.h"

namespace sluice::cuda {

/// The states of one request in device memory: a block of float32 numbers for each sparse layer and KV head (StateBlock).
/// Pages that no step has saved hold the initial values. Beside them lies what the flow's selections took last, which belongs to
/// the request as they do: hints to its next step, wherever in a batch that is. So do the positions of its tokens, where some
/// leave, and what the rows of its prompt have given them, where the flow reads that.
class CudaFlowState final : public RequestState {
 public:
  /// `hint_room`: pages of a selection that are kept; 0: none.
  CudaFlowState(const codegen::FlowLayout& layout, int sparse_layers, int kv_heads, int max_pages, int hint_room);

  size_t bytes() const override { return memory_.bytes() + hints_.bytes() + positions_.bytes() + prompt_masses_.bytes(); }
  void reset() override;

  StateBlock block() const { return {memory_.as<float>(), capacity_, positions_.as<int>()}; }
  /// Lists are those of [sparse layers, selections by score].
  HintBlock hints() const { return {hints_.as<int32_t>(), hint_room_}; }
  int max_pages() const { return capacity_; }
  /// Sums over the rows of the prompt so far, of a layer by its number among sparse ones: [kv_heads, group, max_pages() * page].
  float* prompt_masses(int state_layer) const { return prompt_masses_.as<float>() + state_layer * layer_masses_; }

 private:
  int capacity_;                // pages
  std::vector<float> initial_;  // of one layer and KV head
  int blocks_;
  int hint_room_;
  DeviceMemory memory_;
  int64_t layer_masses_ = 0;    // numbers
  DeviceMemory hints_;          // [sparse layers, selections, kv_heads, hint_room_]
  DeviceMemory positions_;      // [sparse layers, kv_heads, capacity_ * page]; empty where nobody leaves
  DeviceMemory prompt_masses_;  // empty where the flow does not read them
};

}  // namespace sluice::cuda
