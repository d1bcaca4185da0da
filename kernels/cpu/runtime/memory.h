#pragma once

#include <cstddef>
#include <span>

#include "kernels/device.h"

namespace sluice::cpu {

/// Zeroed memory from the system, page-aligned, touched lazily, on huge pages where it is large enough. Empty if default-made.
class MappedMemory final : public Memory {
 public:
  MappedMemory() = default;
  /// Throws InputError if the system has no such amount of memory.
  explicit MappedMemory(size_t bytes);
  ~MappedMemory() override;
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;

  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }
  std::byte* at(size_t offset) const { return static_cast<std::byte*>(data_) + offset; }
  /// The memory as an array of `T`.
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace sluice::cpu
