#include "kernels/cuda/flow/state.h"

#include "kernels/cuda/primitives/round_up.h"

namespace sluice::cuda {
namespace {

std::vector<float> initial_values(const codegen::FlowLayout& layout, int64_t capacity) {
  std::vector<float> values(layout.state_page_numbers * capacity + layout.state_fixed_numbers);
  for (size_t i = 0; i < layout.states.size(); ++i) {
    const State& state = layout.plan.graph.states[i];
    const codegen::StateSlot& slot = layout.states[i];
    const int64_t begin = slot.paged ? slot.offset * capacity : layout.state_page_numbers * capacity + slot.offset;
    const int64_t count = elements_per_page(state.shape) * (slot.paged ? capacity : 1);
    std::fill_n(values.begin() + begin, count, static_cast<float>(state.initial));
  }
  return values;
}

}  // namespace

CudaFlowState::CudaFlowState(const codegen::FlowLayout& layout, int sparse_layers, int kv_heads, int max_pages, int hint_room)
    : capacity_(round_up(max_pages, codegen::FlowLayout::kPad)),
      initial_(initial_values(layout, capacity_)),
      blocks_(sparse_layers * kv_heads),
      hint_room_(hint_room),
      memory_(initial_.size() * sizeof(float) * blocks_),
      hints_(layout.selections.size() * blocks_ * hint_room * sizeof(int32_t)) {
  const FlowGraph& graph = layout.plan.graph;
  const int64_t slots = int64_t{capacity_} * graph.geometry.page;
  if (graph.eviction) positions_ = DeviceMemory(static_cast<size_t>(blocks_ * slots) * sizeof(int32_t));
  if (graph.reads_mass() && graph.mass_rows > 0) {
    layer_masses_ = kv_heads * graph.geometry.group * slots;
    prompt_masses_ = DeviceMemory(static_cast<size_t>(sparse_layers * layer_masses_) * sizeof(float));
  }
  reset();
}

void CudaFlowState::reset() {
  if (hints_.bytes() > 0) hints_.fill(0xff);  // no hints
  const size_t bytes = initial_.size() * sizeof(float);
  if (blocks_ == 0 || bytes == 0) return;
  auto* base = memory_.as<std::byte>();
  const NoRecording outside;
  SLUICE_CHECK_CUDA(cudaMemcpy(base, initial_.data(), bytes, cudaMemcpyHostToDevice));
  // Each copy doubles what is there.
  for (size_t done = bytes; done < memory_.bytes();) {
    const size_t more = std::min(done, memory_.bytes() - done);
    SLUICE_CHECK_CUDA(cudaMemcpy(base + done, base, more, cudaMemcpyDeviceToDevice));
    done += more;
  }
}

}  // namespace sluice::cuda
