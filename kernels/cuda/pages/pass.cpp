#include "kernels/cuda/pages/pass.h"

#include <algorithm>

#include "kernels/cuda/flow/state.h"
#include "kernels/device/checks.h"

namespace sluice::cuda {
namespace {

size_t bytes_of(size_t rows, size_t sequences, size_t pages, size_t touched) {
  return sequences * (sizeof(StateBlock) + sizeof(HintBlock) + sizeof(uint64_t)) +
         (3 * rows + sequences + 2 * (sequences + 1) + pages + 2 * touched) * sizeof(int32_t);
}

/// The arrays one behind the other from `data` on, those of larger types first.
PassArrays arrays_at(const std::byte* data, const PassBatch& batch, int touched) {
  PassArrays arrays;
  arrays.states = reinterpret_cast<const StateBlock*>(data);
  arrays.hints = reinterpret_cast<const HintBlock*>(arrays.states + batch.lengths.size());
  arrays.seeds = reinterpret_cast<const uint64_t*>(arrays.hints + batch.lengths.size());
  arrays.tokens = reinterpret_cast<const int32_t*>(arrays.seeds + batch.lengths.size());
  arrays.positions = arrays.tokens + batch.rows();
  arrays.row_pages = arrays.positions + batch.rows();
  arrays.lengths = arrays.row_pages + batch.rows();
  arrays.query_indptr = arrays.lengths + batch.lengths.size();
  arrays.page_indptr = arrays.query_indptr + batch.query_indptr.size();
  arrays.touched_pages = arrays.page_indptr + batch.page_indptr.size();
  arrays.touched_tokens = arrays.touched_pages + touched;
  arrays.page_indices = arrays.touched_tokens + touched;
  arrays.touched = touched;
  return arrays;
}

/// Null if there is none.
const CudaFlowState* as_cuda(const RequestState* state) {
  const auto* mine = dynamic_cast<const CudaFlowState*>(state);
  if (mine == nullptr && state != nullptr) throw InternalError("a state of another device was given to the GPU");
  return mine;
}

}  // namespace

void Staging::FreePinned::operator()(void* memory) const { cudaFreeHost(memory); }
void Staging::DestroyEvent::operator()(CUevent_st* event) const { cudaEventDestroy(event); }
void Staging::DestroyStream::operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }

Staging::Staging() {
  cudaStream_t stream = nullptr;
  SLUICE_CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.reset(stream);
}

Staging::Event Staging::create_event() {
  cudaEvent_t event = nullptr;
  SLUICE_CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

void Staging::reserve(size_t bytes) {
  if (bytes <= halves_[0].device.bytes()) return;
  wait_for_device();  // copies may be on their way
  std::array<Half, 2> halves;
  for (Half& half : halves) {
    void* memory = nullptr;
    SLUICE_CHECK_CUDA(cudaMallocHost(&memory, bytes));
    half.memory.reset(memory);
    half.device = DeviceMemory(bytes);
    half.sent = create_event();
    half.used = create_event();
  }
  halves_ = std::move(halves);
  ++moves_;
}

std::byte* Staging::fill(size_t bytes) {
  reserve(bytes);
  half_ = 1 - half_;
  SLUICE_CHECK_CUDA(cudaEventSynchronize(halves_[half_].sent.get()));  // at once if it was never recorded
  return static_cast<std::byte*>(halves_[half_].memory.get());
}

void Staging::send(size_t bytes, Stream stream) {
  const Half& half = halves_[half_];
  SLUICE_CHECK_CUDA(cudaEventRecord(halves_[sent_half_].used.get(), stream));
  sent_half_ = half_;
  SLUICE_CHECK_CUDA(cudaStreamWaitEvent(stream_.get(), half.used.get()));  // at once if it was never recorded
  SLUICE_CHECK_CUDA(cudaMemcpyAsync(half.device.data(), half.memory.get(), bytes, cudaMemcpyHostToDevice, stream_.get()));
  SLUICE_CHECK_CUDA(cudaEventRecord(half.sent.get(), stream_.get()));
  SLUICE_CHECK_CUDA(cudaStreamWaitEvent(stream, half.sent.get()));
}

void Pass::reserve(const Device::Limits& limits) {
  staging_.reserve(
      bytes_of(limits.rows, limits.sequences, static_cast<size_t>(limits.sequences) * limits.pages_per_sequence, limits.rows));
}

size_t Pass::bytes() const { return bytes_of(batch_.rows(), batch_.lengths.size(), batch_.page_indptr.back(), touched_); }

int Pass::count_touched() const {
  const int page = pool_->layout().page;
  int count = 0;
  for (int s = 0; s < batch_.sequences(); ++s) {
    const int length = batch_.lengths[s];
    count += (length + page - 1) / page - (length - query_rows(s)) / page;
  }
  return count;
}

void Pass::fill() {
  touched_ = count_touched();
  host_ = staging_.fill(bytes());
  const PassArrays at = arrays_at(host_, batch_, touched_);
  const auto to = [](const auto* array) {
    return const_cast<std::remove_const_t<std::remove_pointer_t<decltype(array)>>*>(array);
  };
  const int page = pool_->layout().page;
  int touched = 0;
  for (int s = 0; s < batch_.sequences(); ++s) {
    const int rows = query_rows(s);
    const int length = batch_.lengths[s];
    const auto held = pages(s);
    for (int i = 0; i < rows; ++i) {
      const int row = batch_.query_indptr[s] + i;
      const int position = length - rows + i;
      to(at.positions)[row] = position;
      to(at.row_pages)[row] = held[position / page];
    }
    for (int index = (length - rows) / page; index < static_cast<int>(held.size()); ++index, ++touched) {
      to(at.touched_pages)[touched] = held[index];
      to(at.touched_tokens)[touched] = std::min(page, length - index * page);
    }
    to(at.seeds)[s] = batch_.seeds.empty() ? 0 : batch_.seeds[s];
    const CudaFlowState* const state = as_cuda(batch_.states.empty() ? nullptr : batch_.states[s]);
    to(at.states)[s] = state == nullptr ? StateBlock{} : state->block();
    to(at.hints)[s] = state == nullptr ? HintBlock{} : state->hints();
  }
  std::copy(batch_.lengths.begin(), batch_.lengths.end(), to(at.lengths));
  std::copy(batch_.query_indptr.begin(), batch_.query_indptr.end(), to(at.query_indptr));
  std::copy(batch_.page_indptr.begin(), batch_.page_indptr.end(), to(at.page_indptr));
  std::copy_n(batch_.page_indices.begin(), batch_.page_indptr.back(), to(at.page_indices));
}

void Pass::begin(const PassBatch& batch, CudaPool& pool) {
  if (active()) throw InternalError("begin_pass was called within a pass");
  batch_ = batch;
  pool_ = &pool;
  uploaded_ = false;
  try {
    require_batch(batch, pool);
    fill();
  } catch (...) {
    pool_ = nullptr;
    throw;
  }
}

void Pass::upload(std::span<const int32_t> tokens, Stream stream) {
  const PassArrays at = arrays_at(host_, batch_, touched_);
  std::copy(tokens.begin(), tokens.end(), const_cast<int32_t*>(at.tokens));
  staging_.send(bytes(), stream);
  tokens_ = tokens;
  uploaded_ = true;
}

PassArrays Pass::arrays(Stream stream) {
  if (!uploaded_) upload({}, stream);
  return arrays_at(staging_.device(), batch_, touched_);
}

}  // namespace sluice::cuda
