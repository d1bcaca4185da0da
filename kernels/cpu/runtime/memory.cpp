#include "kernels/cpu/runtime/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>

#include "scripting/base/resource_error.h"

namespace sluice::cpu {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

MappedMemory::MappedMemory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    throw DeviceMemoryError(fmt::format("cannot reserve {} kB of memory", (bytes + 1023) >> 10),
                            "use a smaller page pool or a smaller model");
  }
  data_ = mapped;
  // Advice only: fewer misses of the TLB over scattered pages; without it everything still works.
  if (bytes >= kHugePage) madvise(mapped, bytes, MADV_HUGEPAGE);
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace sluice::cpu
