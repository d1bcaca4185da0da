#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice::cuda {

/// Compiled kernels in a folder, one file each, kept from one run of the program to the next. Its files are only trusted as far
/// as they can be checked: what is damaged, or was made of anything else, is as good as absent. It never fails: a folder that
/// cannot be made, read or written is a cache that holds nothing. Threads and processes may share a folder.
class KernelCache {
 public:
  /// Bytes that the files of a folder may take together.
  static constexpr uint64_t kDefaultLimit = uint64_t{512} << 20;

  /// An empty folder name is a cache that holds nothing. Nothing is made before the first store.
  explicit KernelCache(std::filesystem::path folder = default_folder(), uint64_t limit_bytes = kDefaultLimit);

  /// $SLUICE_CACHE_DIR, else $XDG_CACHE_HOME/sluice/kernels, else $HOME/.cache/sluice/kernels, else nothing.
  static std::filesystem::path default_folder();

  /// The cubin that was stored under this very key; counts as its last use.
  std::optional<std::vector<std::byte>> load(const std::string& key) const;

  /// Keeps a cubin under a key, in place of what was there, and deletes the files used longest ago while all of them together
  /// are over the limit.
  void store(const std::string& key, std::span<const std::byte> cubin) const;

  /// The file for a key, whether there is one or not.
  std::filesystem::path file_of(const std::string& key) const;

 private:
  void delete_oldest() const;

  std::filesystem::path folder_;
  uint64_t limit_bytes_;
};

/// All that a cubin depends on, as text: the source, the architecture, the version and options of NVRTC.
/// Throws InputError where NVRTC is missing.
std::string kernel_key(const std::string& source, const std::string& architecture);

/// The cubin of a source for an architecture ("sm_90a"): from the cache (null: none) if it is there, else compiled and stored.
/// Throws what compile_to_cubin throws.
std::vector<std::byte> cached_cubin(const std::string& source, const std::string& architecture, const KernelCache* cache);

/// The current device's architecture with all that is special to it: "sm_90a" for compute capability 9.0.
std::string device_architecture();

/// A kernel of a loaded library: what cudaLaunchKernelExC and cudaFuncGetAttributes take as their function.
using Kernel = cudaKernel_t;

/// Shared memory that a block of the current device can have, static and dynamic.
size_t shared_memory_limit();
/// Lets launches of a kernel on the current device ask for this many bytes of dynamic shared memory (48 KB without).
/// Throws InternalError where the device has less.
void set_shared_memory_limit(Kernel kernel, size_t bytes);

/// From here on this process unloads no library. CUPTI knows kernels by handles, which the driver gives again to kernels of later
/// libraries, and would report those by the names of the ones before.
void keep_libraries();

/// Kernels compiled from source and loaded. They are unloaded with this object (but see `keep_libraries`), which must outlive
/// every launch of them and every graph that launches them.
class KernelLibrary {
 public:
  /// Compiles for the current device, or takes the cubin from the cache (null: none), and loads it.
  /// Throws what compile_to_cubin throws, and InternalError where the driver refuses the cubin.
  static KernelLibrary compile(const std::string& source, const KernelCache* cache);
  ~KernelLibrary();
  KernelLibrary(KernelLibrary&& other) noexcept;
  KernelLibrary& operator=(KernelLibrary&& other) noexcept;

  /// The kernel of this name (extern "C"), ready to be launched and captured on the current device.
  /// Throws InternalError where there is none.
  Kernel kernel(const char* name) const;

 private:
  explicit KernelLibrary(std::span<const std::byte> cubin);

  cudaLibrary_t library_ = nullptr;
};

}  // namespace sluice::cuda
