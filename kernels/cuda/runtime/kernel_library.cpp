#include "kernels/cuda/runtime/kernel_library.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "kernels/cuda/runtime/nvrtc.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"

namespace sluice::cuda {

namespace fs = std::filesystem;

namespace {

/// To be raised when the file or what generated code may rely on changes.
constexpr int kFormatVersion = 1;
constexpr std::array<char, 8> kMagic = {'s', 'l', 'u', 'i', 'c', 'e', 'k', '1'};
constexpr uint64_t kLargestFile = uint64_t{64} << 20;  // bytes; kernels of a flow take a hundredth of it
constexpr std::string_view kSuffix = ".cubin";
constexpr size_t kHashDigits = 16;

std::atomic<bool> libraries_stay = false;

/// A file is this, the key, and the cubin.
struct Header {
  std::array<char, 8> magic = kMagic;
  uint64_t key_bytes = 0;
  uint64_t cubin_bytes = 0;
  uint64_t checksum = 0;  // of the cubin
};
static_assert(sizeof(Header) == 32);

/// FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv
uint64_t hash_bytes(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3U;
  return hash;
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }

  /// The size of a regular file. No other kind is read.
  std::optional<uint64_t> size() const {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < 0) return std::nullopt;
    return static_cast<uint64_t>(status.st_size);
  }
  bool read(void* to, size_t bytes) const {
    for (auto* at = static_cast<char*>(to); bytes > 0;) {
      const ssize_t done = ::read(descriptor_, at, bytes);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return false;
      at += done;
      bytes -= done;
    }
    return true;
  }
  bool write(const void* from, size_t bytes) const {
    for (const auto* at = static_cast<const char*>(from); bytes > 0;) {
      const ssize_t done = ::write(descriptor_, at, bytes);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return false;
      at += done;
      bytes -= done;
    }
    return true;
  }
  void touch() const { static_cast<void>(futimens(descriptor_, nullptr)); }
  bool close() { return descriptor_ < 0 || ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

/// Whether a name is one that the cache gives its files ("<hash>.cubin") or those it has not finished ("<hash>.cubin.a1B2c3").
bool is_cache_name(std::string_view name) {
  const size_t digits = std::min(name.find_first_not_of("0123456789abcdef"), name.size());
  return digits == kHashDigits && name.substr(digits).starts_with(kSuffix);
}

fs::path variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}

}  // namespace

KernelCache::KernelCache(fs::path folder, uint64_t limit_bytes) : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}

fs::path KernelCache::default_folder() {
  if (fs::path named = variable("SLUICE_CACHE_DIR"); !named.empty()) return named;
  // The XDG Base Directory Specification: paths must be absolute, others are ignored.
  if (fs::path caches = variable("XDG_CACHE_HOME"); caches.is_absolute()) return caches / "sluice" / "kernels";
  if (fs::path home = variable("HOME"); home.is_absolute()) return home / ".cache" / "sluice" / "kernels";
  return {};
}

fs::path KernelCache::file_of(const std::string& key) const {
  return folder_ / fmt::format("{:016x}{}", hash_bytes(std::as_bytes(std::span(key))), kSuffix);
}

std::optional<std::vector<std::byte>> KernelCache::load(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  const File file(::open(file_of(key).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe of this name must not block
  const std::optional<uint64_t> size = file.is_open() ? file.size() : std::nullopt;
  if (!size || *size > kLargestFile) return std::nullopt;
  // Only once the sizes agree with the file's and the key's is memory taken.
  Header header;
  if (!file.read(&header, sizeof header) || header.magic != kMagic || header.key_bytes != key.size()) return std::nullopt;
  const uint64_t before_cubin = sizeof header + header.key_bytes;
  if (*size <= before_cubin || header.cubin_bytes != *size - before_cubin) return std::nullopt;
  std::string stored_key(key.size(), '\0');
  if (!file.read(stored_key.data(), stored_key.size()) || stored_key != key) return std::nullopt;
  std::vector<std::byte> cubin(header.cubin_bytes);
  if (!file.read(cubin.data(), cubin.size()) || hash_bytes(cubin) != header.checksum) return std::nullopt;
  file.touch();
  return cubin;
}

void KernelCache::store(const std::string& key, std::span<const std::byte> cubin) const {
  if (folder_.empty() || cubin.empty() || sizeof(Header) + key.size() + cubin.size() > kLargestFile) return;
  std::error_code failed;
  fs::create_directories(folder_, failed);
  const fs::path path = file_of(key);
  std::string unfinished = path.string() + ".XXXXXX";
  File file(mkostemp(unfinished.data(), O_CLOEXEC));
  if (!file.is_open()) return;
  const Header header{.key_bytes = key.size(), .cubin_bytes = cubin.size(), .checksum = hash_bytes(cubin)};
  const bool written =
      file.write(&header, sizeof header) && file.write(key.data(), key.size()) && file.write(cubin.data(), cubin.size());
  if (!file.close() || !written || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    fs::remove(unfinished, failed);
    return;
  }
  delete_oldest();
}

void KernelCache::delete_oldest() const {
  struct Entry {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code failed;
  for (fs::directory_iterator at(folder_, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;  // another process may have deleted it
    if (!is_cache_name(at->path().filename().string()) || !fs::is_regular_file(at->symlink_status(gone))) continue;
    const fs::file_time_type used = at->last_write_time(gone);
    const uint64_t bytes = gone ? 0 : at->file_size(gone);
    if (gone) continue;
    entries.push_back({used, bytes, at->path()});
    total += bytes;
  }
  if (total <= limit_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= limit_bytes_) return;
    fs::remove(entry.path, failed);
    total -= entry.bytes;
  }
}

std::string kernel_key(const std::string& source, const std::string& architecture) {
  return fmt::format("sluice kernels {}\nNVRTC {} {}\n{}\n{}", kFormatVersion, nvrtc_version(), nvrtc_options(), architecture,
                     source);
}

std::vector<std::byte> cached_cubin(const std::string& source, const std::string& architecture, const KernelCache* cache) {
  if (cache == nullptr) return compile_to_cubin(source, architecture);
  const std::string key = kernel_key(source, architecture);
  if (std::optional<std::vector<std::byte>> cubin = cache->load(key)) return *std::move(cubin);
  std::vector<std::byte> cubin = compile_to_cubin(source, architecture);
  cache->store(key, cubin);
  return cubin;
}

std::string device_architecture() {
  int device = 0;
  int major = 0;
  int minor = 0;
  SLUICE_CHECK_CUDA(cudaGetDevice(&device));
  SLUICE_CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  SLUICE_CHECK_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

size_t shared_memory_limit() {
  int device = 0;
  int bytes = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "asking for shared memory");
  return static_cast<size_t>(bytes);
}

void set_shared_memory_limit(Kernel kernel, size_t bytes) {
  const int value = static_cast<int>(std::min<size_t>(bytes, INT_MAX));
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, value),
        fmt::format("raising the dynamic shared memory of a kernel to {} bytes", bytes).c_str());
}

void keep_libraries() { libraries_stay = true; }

KernelLibrary KernelLibrary::compile(const std::string& source, const KernelCache* cache) {
  return KernelLibrary(cached_cubin(source, device_architecture(), cache));
}

KernelLibrary::KernelLibrary(std::span<const std::byte> cubin) {
  SLUICE_CHECK_CUDA(cudaLibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
}

KernelLibrary::~KernelLibrary() {
  if (library_ != nullptr && !libraries_stay) cudaLibraryUnload(library_);
}

KernelLibrary::KernelLibrary(KernelLibrary&& other) noexcept : library_(std::exchange(other.library_, nullptr)) {}

KernelLibrary& KernelLibrary::operator=(KernelLibrary&& other) noexcept {
  std::swap(library_, other.library_);
  return *this;
}

Kernel KernelLibrary::kernel(const char* name) const {
  Kernel kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library_, name), fmt::format("finding the kernel {}", name).c_str());
  // The driver loads code when it is first used, which must not be in the middle of a capture; to ask for attributes is a use.
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), fmt::format("loading the kernel {}", name).c_str());
  return kernel;
}

}  // namespace sluice::cuda
