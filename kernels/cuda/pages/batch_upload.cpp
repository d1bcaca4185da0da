#include "kernels/cuda/pages/batch_upload.h"

#include <algorithm>

#include "kernels/cuda/flow/state.h"
#include "kernels/device/checks.h"
#include "scripting/graph/verify.h"

namespace sluice::cuda {
namespace {

/// Bytes of what is there for each sequence, and once for all groups: 8-byte numbers come first.
size_t wide_bytes(size_t sequences, size_t programs) {
  return sequences * (programs * (sizeof(StateBlock) + sizeof(HintBlock)) + sizeof(uint64_t));
}
size_t shared_numbers(size_t rows, size_t sequences) { return 2 * rows + sequences + 1; }
size_t group_numbers(size_t rows, size_t slot_heads, size_t sequences, size_t touched) {
  return (1 + slot_heads + (slot_heads > 1 ? slot_heads : 0)) * rows + 4 * sequences + 3 + 2 * touched;
}

/// Those of a group that tokens leave, besides.
size_t leaving_numbers(const GroupPages& group, size_t sequences) { return group.held.empty() ? 0 : 4 * sequences; }

/// Slots that a row has.
size_t slot_heads_of(const GroupPages& group) { return group.head_slots.empty() ? 1 : static_cast<size_t>(group.mask_heads); }

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

void BatchUpload::reserve(const Device::Limits& limits) {
  const auto rows = static_cast<size_t>(limits.rows);
  const auto sequences = static_cast<size_t>(limits.sequences);
  const size_t of_group =
      group_numbers(rows, limits.slot_heads, sequences, rows) + sequences * (4 + limits.pages_per_sequence) + limits.mask_words;
  const size_t numbers = shared_numbers(rows, sequences) + limits.groups * of_group;
  staging_.reserve(wide_bytes(sequences, 1 + GraphLimits::kVariants) + numbers * sizeof(int32_t));
}

int BatchUpload::count_touched(int index) const {
  const GroupPages& kept = group(index);
  const int page = pool_->layout(index).page;
  int count = 0;
  for (int s = 0; s < batch_.sequences(); ++s) {
    int last = -1;
    for (int row = batch_.query_indptr[s]; row < batch_.query_indptr[s + 1]; ++row) {
      count += kept.slots[row] / page != last ? 1 : 0;
      last = kept.slots[row] / page;
    }
  }
  return count;
}

bool BatchUpload::finds_regular(int index) const {
  const GroupPages& kept = group(index);
  for (int s = 0; s < batch_.sequences(); ++s) {
    if (batch_.decoding[s] != 0) continue;
    if (kept.is_masked(s)) return false;
    // They ascend: there are gaps only if the last is further from the first.
    const int first = batch_.query_indptr[s];
    if (kept.slots[first] + query_rows(s) != batch_.seen(index, s)) return false;
  }
  return true;
}

void BatchUpload::place() {
  const auto rows = static_cast<size_t>(batch_.rows());
  const auto sequences = static_cast<size_t>(batch_.sequences());
  group_pages_.assign(batch_.groups.size(), {});
  size_t fixed = shared_numbers(rows, sequences);
  size_t varying = 0;
  for (size_t g = 0; g < group_pages_.size(); ++g) {
    GroupPlace& at = group_pages_[g];
    if (!batch_.groups[g].is_used()) continue;
    at.regular = finds_regular(static_cast<int>(g));
    at.touched = count_touched(static_cast<int>(g));
    at.fixed = static_cast<int>(fixed);
    fixed += group_numbers(rows, slot_heads_of(batch_.groups[g]), sequences, at.touched);
    fixed += leaving_numbers(batch_.groups[g], sequences);
    at.indices = static_cast<int>(varying);
    varying += batch_.groups[g].page_indptr.back();
  }
  fixed_ = fixed;
  for (size_t g = 0; g < group_pages_.size(); ++g) {
    group_pages_[g].masks = static_cast<int>(varying);
    if (batch_.groups[g].has_masks()) varying += batch_.groups[g].mask_indptr.back();
    group_pages_[g].beside = static_cast<int>(varying);
    const BesideTokens& beside = batch_.groups[g].beside;
    varying += beside.pages.size() + beside.words.size();
  }
  programs_ = 1;
  for (const RequestState* const state : batch_.states) programs_ = std::max(programs_, state == nullptr ? 1 : state->programs());
  bytes_ = wide_bytes(sequences, static_cast<size_t>(programs_)) + (fixed + varying) * sizeof(int32_t);
}

PassArrays BatchUpload::arrays_at(const std::byte* data, int group) const {
  const auto rows = static_cast<size_t>(batch_.rows());
  const auto sequences = static_cast<size_t>(batch_.sequences());
  const GroupPlace& at = group_pages_[group];
  PassArrays arrays;
  const size_t parts = sequences * static_cast<size_t>(programs_);
  arrays.sequences = batch_.sequences();
  arrays.states = reinterpret_cast<const StateBlock*>(data);
  arrays.hints = reinterpret_cast<const HintBlock*>(arrays.states + parts);
  arrays.seeds = reinterpret_cast<const uint64_t*>(arrays.hints + parts);
  const auto* const numbers = reinterpret_cast<const int32_t*>(arrays.seeds + sequences);
  arrays.tokens = numbers;
  arrays.positions = arrays.tokens + rows;
  arrays.query_indptr = arrays.positions + rows;
  arrays.slots = numbers + at.fixed;
  const size_t heads = slot_heads_of(batch_.groups[group]);
  arrays.slot_heads = static_cast<int>(heads);
  arrays.row_slots = heads == 1 ? arrays.slots : arrays.slots + rows;
  arrays.row_pages = arrays.row_slots + rows * heads;
  arrays.seen = arrays.row_pages + rows * heads;
  arrays.page_indptr = arrays.seen + sequences;
  arrays.mask_indptr = arrays.page_indptr + sequences + 1;
  arrays.beside_indptr = arrays.mask_indptr + sequences + 1;
  arrays.touched_pages = arrays.beside_indptr + sequences + 1;
  arrays.touched_tokens = arrays.touched_pages + at.touched;
  arrays.touched = at.touched;
  if (!batch_.groups[group].held.empty()) {
    arrays.held = arrays.touched_tokens + at.touched;
    arrays.staying = arrays.held + sequences;
    arrays.newest = arrays.staying + sequences;
    arrays.dense_pages = arrays.newest + sequences;
  }
  arrays.page_indices = numbers + fixed_;
  arrays.masks = reinterpret_cast<const uint32_t*>(arrays.page_indices);
  return arrays;
}

namespace {

/// What is filled in is what is sent.
template <typename T>
T* to(const T* array) {
  return const_cast<T*>(array);
}

}  // namespace

void BatchUpload::fill_group(int index) {
  const GroupPages& kept = group(index);
  const GroupPlace& place = group_pages_[index];
  const PassArrays at = arrays_at(host_, index);
  const int page = pool_->layout(index).page;
  int touched = 0;
  for (int s = 0; s < batch_.sequences(); ++s) {
    const int32_t* const pages = kept.page_indices.data() + kept.page_indptr[s];
    int last = -1;
    for (int row = batch_.query_indptr[s]; row < batch_.query_indptr[s + 1]; ++row) {
      const int number = kept.slots[row] / page;
      for (int head = 0; head < at.slot_heads; ++head) {
        const int slot = kept.slot(row, head);
        to(at.row_slots)[row * at.slot_heads + head] = slot;
        to(at.row_pages)[row * at.slot_heads + head] = pages[slot / page];
      }
      if (number == last) continue;
      last = number;
      to(at.touched_pages)[touched] = pages[number];
      to(at.touched_tokens)[touched++] = std::min(page, kept.lengths[s] - number * page);
    }
    to(at.seen)[s] = seen(index, s);
    if (at.held == nullptr) continue;
    const int newest = batch_.positions[batch_.query_indptr[s + 1] - 1];
    const bool decodes = batch_.decoding[s] != 0;
    to(at.held)[s] = kept.held[s];
    to(at.staying)[s] = kept.staying(s, query_rows(s));
    to(at.newest)[s] = decodes ? newest : kept.chunk_ends[s] - 1;
    to(at.dense_pages)[s] = decodes ? newest / page + 1 : 0;
  }
  std::copy(kept.slots.begin(), kept.slots.end(), to(at.slots));
  for (int s = 0; s <= batch_.sequences(); ++s) {
    to(at.page_indptr)[s] = place.indices + kept.page_indptr[s];
    to(at.mask_indptr)[s] = place.masks + (kept.has_masks() ? kept.mask_indptr[s] : 0);
  }
  std::copy_n(kept.page_indices.begin(), kept.page_indptr.back(), to(at.page_indices) + place.indices);
  if (kept.has_masks()) std::copy_n(kept.masks.begin(), kept.mask_indptr.back(), to(at.masks) + place.masks);
  fill_beside(kept.beside, page_words(page), place.beside, at);
}

void BatchUpload::fill_beside(const BesideTokens& beside, int words, int first, const PassArrays& at) {
  for (int s = 0; s <= batch_.sequences(); ++s) {
    to(at.beside_indptr)[s] = first + (beside.empty() ? 0 : beside.indptr[s] * (1 + words));
  }
  int32_t* entry = to(at.page_indices) + first;
  for (size_t i = 0; i < beside.pages.size(); ++i) {
    *entry++ = beside.pages[i];
    for (int word = 0; word < words; ++word) *entry++ = static_cast<int32_t>(beside.words[i * words + word]);
  }
}

void BatchUpload::fill() {
  place();
  host_ = staging_.fill(bytes_);
  const PassArrays at = arrays_at(host_, 0);
  for (int s = 0; s < batch_.sequences(); ++s) {
    to(at.seeds)[s] = batch_.seeds.empty() ? 0 : batch_.seeds[s];
    RequestState* const kept = batch_.states.empty() ? nullptr : batch_.states[s];
    for (int program = 0; program < programs_; ++program) {
      const CudaFlowState* const state = as_cuda(kept == nullptr ? nullptr : kept->find_program(program));
      to(at.states_of(program, s))[0] = state == nullptr ? StateBlock{} : state->block();
      to(at.hints_of(program, s))[0] = state == nullptr ? HintBlock{} : state->hints();
    }
  }
  std::copy(batch_.positions.begin(), batch_.positions.end(), to(at.positions));
  std::copy(batch_.query_indptr.begin(), batch_.query_indptr.end(), to(at.query_indptr));
  for (int group = 0; group < static_cast<int>(batch_.groups.size()); ++group) {
    if (batch_.groups[group].is_used()) fill_group(group);
  }
}

void BatchUpload::begin(const PassBatch& batch, CudaPool& pool) {
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

void BatchUpload::upload(std::span<const int32_t> tokens, Stream stream) {
  const PassArrays at = arrays_at(host_, 0);
  std::copy(tokens.begin(), tokens.end(), to(at.tokens));
  staging_.send(bytes_, stream);
  tokens_ = tokens;
  uploaded_ = true;
}

PassArrays BatchUpload::arrays(Stream stream, int group) {
  if (!uploaded_) upload({}, stream);
  return arrays_at(staging_.device(), group);
}

}  // namespace sluice::cuda
