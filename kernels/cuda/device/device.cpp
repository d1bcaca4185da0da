#include "kernels/cuda/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/flow/device_flow.h"
#include "kernels/cuda/runtime/step_graphs.h"
#include "kernels/device/checks.h"

namespace sluice::cuda {
namespace {

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(size_t bytes) : memory_(bytes) { memory_.clear(); }
  void* data() const override { return memory_.data(); }
  size_t bytes() const override { return memory_.bytes(); }

 private:
  DeviceMemory memory_;
};

/// Whether more than one token has to leave some sequence.
bool moves_many(const PassBatch& batch, const GroupPages& group) {
  for (int s = 0; s < batch.sequences() && !group.held.empty(); ++s) {
    if (group.held[static_cast<size_t>(s)] - group.staying(s, batch.query_rows(s)) > 1) return true;
  }
  return false;
}

}  // namespace

void CudaDevice::DestroyStream::operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }

CudaDevice::CudaDevice() {
  // In order with the default stream, which uploads of weights use.
  cudaStream_t stream = nullptr;
  // Before what goes on beside it: whoever waits for that has nothing else to run.
  int lowest = 0;
  int highest = 0;
  SLUICE_CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  SLUICE_CHECK_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamDefault, highest));
  stream_.reset(stream);
  int device = 0;
  cudaDeviceProp properties{};
  SLUICE_CHECK_CUDA(cudaGetDevice(&device));
  SLUICE_CHECK_CUDA(cudaGetDeviceProperties(&properties, device));
  info_.name = "cuda";
  info_.activation = DataType::kBF16;
  info_.works_beside_host = true;
  info_.compiles_kernels = true;
  info_.description = fmt::format("{}, {} multiprocessors", properties.name, properties.multiProcessorCount);
}

std::unique_ptr<Memory> CudaDevice::allocate(size_t bytes) { return std::make_unique<CudaMemory>(bytes); }

void CudaDevice::write(void* target, const void* host_source, size_t bytes) {
  const auto told = operation("write");
  SLUICE_CHECK_CUDA(cudaMemcpyAsync(target, host_source, bytes, cudaMemcpyHostToDevice, stream_.get()));
  wait();
}

void CudaDevice::read(void* host_target, const void* source, size_t bytes) {
  const auto told = operation("read");
  SLUICE_CHECK_CUDA(cudaMemcpyAsync(host_target, source, bytes, cudaMemcpyDeviceToHost, stream_.get()));
  wait();
}

void CudaDevice::synchronize() {
  copying_.join(stream_.get());
  wait();
}

void CudaDevice::wait() { SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream_.get())); }

size_t CudaDevice::free_bytes() const { return cuda::free_bytes(); }

void CudaDevice::reserve(const Limits& limits) {
  Limits most = limits_;
  most.sequences = std::max(most.sequences, limits.sequences);
  most.pages_per_sequence = std::max(most.pages_per_sequence, limits.pages_per_sequence);
  for (CudaFlow* flow : *flows_) flow->reserve(std::min(most.sequences, kMostLists), most.pages_per_sequence);
  pass_.reserve(limits);
  reserve_picks(limits.sequences);
  indices_.reserve(limits.rows * sizeof(int32_t));
  const size_t bytes = static_cast<size_t>(limits.rows) * limits.query_heads * limits.head_dim * sizeof(uint16_t);
  grow(plain_q_, bytes);
  // Workspace depends on the shape of the pool, not on its memory: this one has
  // a page, and is asked for nothing else.
  const int group = limits.query_heads / std::max(1, limits.kv_heads);
  const PageLayout layout = page_layout({limits.head_dim, group, limits.page, DataType::kBF16}, {});
  const DeviceMemory page(layout.bytes * limits.kv_heads);
  reserve_decode(DecodeAttention({page.as<std::byte>(), layout, 1, limits.kv_heads}), group);
  limits_ = most;  // once there is memory for all of it
}

void CudaDevice::reserve_decode(const DecodeAttention& attention, int group) {
  require_group(info_, group);
  const size_t partials = attention.workspace_bytes({.sequences = 0, .group = group});
  const size_t counters = attention.workspace_bytes({.sequences = kMostLists, .group = group}) - partials;
  if (counters <= decode_counters_ && partials <= decode_workspace_.bytes() - decode_counters_) return;
  const size_t most_partials = std::max(partials, decode_workspace_.bytes() - decode_counters_);
  const size_t most_counters = std::max(counters, decode_counters_);
  DeviceMemory workspace(most_counters + most_partials);
  workspace.clear();
  decode_workspace_ = std::move(workspace);
  decode_counters_ = most_counters;
}

void CudaDevice::begin_pass(const PassBatch& batch, Pool& pool) {
  refreshed_ = {};
  ++passes_;
  pass_.begin(batch, as_cuda(pool));
}

const int32_t* CudaDevice::send(std::span<const int32_t> indices, std::span<const int32_t> others) {
  const size_t bytes = indices.size_bytes() + others.size_bytes();
  auto* const to = reinterpret_cast<int32_t*>(indices_.fill(bytes));
  std::copy(others.begin(), others.end(), std::copy(indices.begin(), indices.end(), to));
  indices_.send(bytes, stream_.get());
  return reinterpret_cast<const int32_t*>(indices_.device());
}

std::unique_ptr<Device::Repetition> CudaDevice::create_repetition() { return std::make_unique<StepGraphs>(); }

std::vector<uintptr_t> CudaDevice::ground(std::span<const RegisteredFlow* const> flows) const {
  std::vector<uintptr_t> ground{pass_.ground(), matmul_.ground(), decode_counters_, gang_.cooperative() ? 1U : 0U};
  for (const DeviceMemory* memory : {&plain_q_, &plain_out_, &decode_workspace_}) {
    ground.push_back(reinterpret_cast<uintptr_t>(memory->data()));
  }
  for (const RegisteredFlow* flow : flows) ground.push_back(flow->flow().ground());
  return ground;
}

void CudaDevice::repeat(Repetition* repetition, std::span<const int32_t> tokens, std::span<const CompiledFlow* const> flows,
                        const std::function<void()>& operations) {
  if (!pass_.active()) throw InternalError("repeat was called outside a pass");
  const PassBatch& batch = pass_.batch();
  require_equal("repeat", "tokens", static_cast<int64_t>(tokens.size()), batch.rows());
  auto* const graphs = dynamic_cast<StepGraphs*>(repetition);
  if (graphs == nullptr || is_observed() ||
      !std::all_of(batch.decoding.begin(), batch.decoding.end(), [](uint8_t step) { return step == 1; })) {
    operations();
    return;
  }
  if (std::any_of(batch.groups.begin(), batch.groups.end(), [&](const GroupPages& group) { return moves_many(batch, group); })) {
    operations();  // memory for the moves may grow
    return;
  }
  StepGraphs::Shape shape{.sequences = batch.sequences()};
  for (const GroupPages& group : batch.groups) shape.masked = 2 * shape.masked + (group.has_masks() ? 1 : 0);
  std::vector<const RegisteredFlow*> mine;
  for (size_t layer = 0; layer < flows.size(); ++layer) {
    if (flows[layer] == nullptr) continue;
    const RegisteredFlow* const flow = &as_cuda(*flows[layer]);
    if (std::find(mine.begin(), mine.end(), flow) != mine.end()) continue;
    mine.push_back(flow);
    check_flow_sequences(flow->flow(), pass_.pool().group_of(static_cast<int>(layer)), 0, batch.sequences());
  }
  if (!mine.empty()) {
    shape.pages = bound_on_pages();
    const auto minds = [&](const RegisteredFlow* flow) { return flow->flow().minds_evenness(batch.sequences(), shape.pages); };
    shape.even = std::any_of(mine.begin(), mine.end(), minds) && decodes_evenly();
  }
  pass_.upload(tokens, stream_.get());
  copying_.join(stream_.get());  // a graph that is replayed asks for no layer
  const Gang::Launches launches(gang_);
  graphs->run(
      shape, pass_.half(), [&] { return ground(mine); }, stream_.get(),
      [&] {
        operations();
        beside_.join(stream_.get());
      });
}

void CudaDevice::reserve_picks(int rows) {
  if (picks_ == nullptr || picks_->most_rows() < rows) picks_ = std::make_unique<CudaPicks>(rows);
}

}  // namespace sluice::cuda

namespace sluice {

std::unique_ptr<Device> create_cuda_device() {
  cuda::require_device();
  return std::make_unique<cuda::CudaDevice>();
}

}  // namespace sluice
