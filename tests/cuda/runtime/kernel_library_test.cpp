#include "kernels/cuda/runtime/kernel_library.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/runtime/nvrtc.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"
#include "tests/cuda/gpu.h"
#include "tests/support/temporary_directory.h"

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

const std::string kSource = R"(
// %3 reduce over dim (flow.lua:4)
extern "C" __global__ void add(float* sums, const float* a, const float* b) {
  sums[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}
)";

using CudaNvrtc = testing::NvrtcTest;

std::string compile_error(const std::string& source, const std::string& architecture = "sm_90a") {
  try {
    compile_to_cubin(source, architecture);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "compiled";
}

TEST_F(CudaNvrtc, CompilesToACubin) {
  const Bytes cubin = compile_to_cubin(kSource, "sm_90a");
  ASSERT_GT(cubin.size(), 64U);
  EXPECT_EQ(std::memcmp(cubin.data(), "\177ELF", 4), 0);
}

TEST_F(CudaNvrtc, TakesCpp20AndFunctionsWithoutAMark) {
  EXPECT_EQ(compile_error(R"(
template <typename T> concept Number = requires(T t) { t + t; };
float twice(Number auto x) { return x + x; }
extern "C" __global__ void k(float* x) { *x = twice(*x); })"),
            "compiled");
}

TEST_F(CudaNvrtc, VersionIsMajorAndMinor) {
  const std::string version = nvrtc_version();
  EXPECT_GE(std::stoi(version), 12) << version;
  EXPECT_NE(version.find('.'), std::string::npos) << version;
}

TEST_F(CudaNvrtc, ErrorsNameTheLineAndTheOperator) {
  const std::string text = compile_error(R"(extern "C" __global__ void k(float* x) {
  // %11 mul (flow.lua:6)
  x[0] *= 2;
  // %12 contract over dim (flow.lua:7)
  float sum = 0;
  sum += missing;
  // %13 relu (flow.lua:8)
  x[0] = sum;
})");
  EXPECT_NE(text.find("flow.cu(6): error: identifier \"missing\" is undefined"), std::string::npos) << text;
  EXPECT_NE(text.find("line 6: sum += missing;"), std::string::npos) << text;
  EXPECT_NE(text.find("operator: %12 contract over dim (flow.lua:7)"), std::string::npos) << text;
  EXPECT_EQ(text.find("%13"), std::string::npos) << text;
}

TEST_F(CudaNvrtc, ErrorsBeforeAnyOperatorNameTheLineAlone) {
  const std::string text = compile_error("int f() { return missing; }\n// %1 load (flow.lua:1)\n");
  EXPECT_NE(text.find("line 1: int f() { return missing; }"), std::string::npos) << text;
  EXPECT_EQ(text.find("operator"), std::string::npos) << text;
}

TEST_F(CudaNvrtc, ErrorsOfTheAssemblerAreNamed) {
  const std::string text = compile_error(R"(extern "C" __global__ void wide(int i) {
  __shared__ float x[100000];
  x[i] = i;
  __syncthreads();
  if (x[0] > 1) __trap();
})");
  EXPECT_NE(text.find("wide"), std::string::npos) << text;
  EXPECT_NE(text.find("error"), std::string::npos) << text;
}

TEST_F(CudaNvrtc, WrongArchitecturesAndZeroBytesAreErrors) {
  EXPECT_NE(compile_error(kSource, "sm_1").find("architecture"), std::string::npos);
  EXPECT_NE(compile_error(kSource + std::string(1, '\0') + "int x;").find("zero byte"), std::string::npos);
}

TEST(CudaNvrtcLog, OddLogsAreExplainedAsFarAsTheyGo) {
  const std::string source = "// %1 load (a.lua:1)\r\nint x = y;\r\n";
  EXPECT_EQ(explain_compile_log(source, ""), "NVRTC gave no reason");
  EXPECT_EQ(explain_compile_log(source, "\n \nflow.cu(2): note: x\nflow.cu(2): error: y\n"),
            "flow.cu(2): error: y\n  line 2: int x = y;\n  operator: %1 load (a.lua:1)");
  EXPECT_EQ(explain_compile_log(source, "ptxas fatal: lost"), "ptxas fatal: lost");
  EXPECT_EQ(explain_compile_log(source, "in\nnvrtc: error: invalid value"), "nvrtc: error: invalid value");
  for (const std::string place : {"(0)", "(3)", "(-1)", "()", "(", "", "(2", "(2x)", "(99999999999999999999999)"}) {
    EXPECT_EQ(explain_compile_log(source, "flow.cu" + place + ": error"), "flow.cu" + place + ": error");
  }
  EXPECT_LT(explain_compile_log("", std::string(1 << 20, 'e')).size(), 1000U);
}

TEST(CudaNvrtcLog, OperatorsAreNamedWithTheirPlaceInTheScript) {
  const std::string source = "// %1 load (a.lua:1)\n// %12 mul (a.lua:2)\n// %1 more of it\nx\n// %3 odd\ny\n";
  EXPECT_EQ(explain_compile_log(source, "flow.cu(4): error: e"),
            "flow.cu(4): error: e\n  line 4: x\n  operator: %1 load (a.lua:1)");
  EXPECT_EQ(explain_compile_log(source, "flow.cu(6): error: e"), "flow.cu(6): error: e\n  line 6: y\n  operator: %3 odd");
  EXPECT_EQ(explain_compile_log("// %\nx", "flow.cu(2): error: e"), "flow.cu(2): error: e\n  line 2: x\n  operator: %");
}

TEST(CudaNvrtcLog, AnyTextIsAccepted) {
  std::mt19937 random(7);
  const std::string parts[] = {"flow.cu(", "1", "2", ")", ": error", "\n", "// %", "\r", " ", std::string(1, '\0'), "\xff"};
  for (int round = 0; round < 20000; ++round) {
    std::string texts[2];
    for (std::string& text : texts) {
      for (int length = random() % 12; length > 0; --length) text += parts[random() % std::size(parts)];
    }
    EXPECT_FALSE(explain_compile_log(texts[0], texts[1]).empty());
  }
}

/// A folder of the test's own, deleted after it.
class CudaKernelCache : public ::testing::Test {
 protected:
  static Bytes bytes(size_t size, int seed) {
    std::mt19937 random(seed);
    Bytes made(size);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random());
    return made;
  }
  size_t files() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  const testing::TemporaryDirectory directory_;
  const fs::path root_ = directory_.path();
  const fs::path folder_ = root_ / "made" / "when needed";
};

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TEST_F(CudaKernelCache, KeepsWhatWasStored) {
  const KernelCache cache(folder_);
  EXPECT_EQ(cache.load("key"), std::nullopt);
  EXPECT_FALSE(fs::exists(folder_));
  cache.store("key", bytes(1000, 1));
  EXPECT_EQ(KernelCache(folder_).load("key"), bytes(1000, 1));
  EXPECT_EQ(cache.load("kez"), std::nullopt);
  cache.store("key", bytes(10, 2));
  EXPECT_EQ(cache.load("key"), bytes(10, 2));
  EXPECT_EQ(files(), 1U);
}

TEST_F(CudaKernelCache, EveryTruncationAndEveryDamagedByteIsAMiss) {
  const KernelCache cache(folder_);
  cache.store("some key", bytes(50, 1));
  const fs::path path = cache.file_of("some key");
  const std::string whole = read_text(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    write_text(path, whole.substr(0, size));
    EXPECT_EQ(cache.load("some key"), std::nullopt) << size;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] ^= 0x40;
    write_text(path, damaged);
    EXPECT_EQ(cache.load("some key"), std::nullopt) << at;
  }
  write_text(path, whole + "x");
  EXPECT_EQ(cache.load("some key"), std::nullopt);
  write_text(path, whole);
  EXPECT_EQ(cache.load("some key"), bytes(50, 1));
}

TEST_F(CudaKernelCache, AFileOfAnotherKeyIsAMiss) {
  const KernelCache cache(folder_);
  cache.store("key of one", bytes(50, 1));
  fs::rename(cache.file_of("key of one"), cache.file_of("key of two"));
  EXPECT_EQ(cache.load("key of two"), std::nullopt);
  cache.store("key of two", bytes(50, 2));
  EXPECT_EQ(cache.load("key of two"), bytes(50, 2));
}

TEST_F(CudaKernelCache, HostileFilesAreMisses) {
  const KernelCache cache(folder_);
  cache.store("key", bytes(50, 1));
  const fs::path path = cache.file_of("key");
  std::string claims = read_text(path);
  for (const size_t field : {8, 16}) {  // the sizes of the key and of the cubin
    for (const uint64_t size : {uint64_t{0}, uint64_t{1} << 40, std::numeric_limits<uint64_t>::max()}) {
      std::string hostile = claims;
      std::memcpy(hostile.data() + field, &size, sizeof size);
      write_text(path, hostile);
      EXPECT_EQ(cache.load("key"), std::nullopt);
    }
  }
  const uint64_t terabyte = uint64_t{1} << 40;  // a file with a hole, which agrees with its header
  const uint64_t cubin = terabyte - 32 - 3;
  std::memcpy(claims.data() + 16, &cubin, sizeof cubin);
  write_text(path, claims);
  const bool grown = truncate(path.c_str(), terabyte) == 0;  // not every file system can
  EXPECT_TRUE(!grown || !cache.load("key"));
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(cache.load("key"), std::nullopt);
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_EQ(cache.load("key"), std::nullopt);
  cache.store("key", bytes(50, 1));
  EXPECT_EQ(cache.load("key"), std::nullopt);
  EXPECT_EQ(files(), 1U) << "an unfinished file is left";
}

TEST_F(CudaKernelCache, WritersAtOnceLeaveOneWholeFile) {
  const KernelCache cache(folder_);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        cache.store("key", bytes(1000 + 10 * t, t));
        const std::optional<Bytes> found = cache.load("key");
        if (!found || *found != bytes(found->size(), static_cast<int>(found->size() - 1000) / 10)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(files(), 1U);
}

TEST_F(CudaKernelCache, DeletesTheFilesUsedLongestAgo) {
  const KernelCache cache(folder_, 3500);
  const fs::file_time_type now = fs::file_time_type::clock::now();
  for (int i = 0; i < 3; ++i) {
    const std::string key = "key " + std::to_string(i);
    cache.store(key, bytes(1000, i));
    fs::last_write_time(cache.file_of(key), now - std::chrono::hours(10 - i));
  }
  write_text(folder_ / "not ours.txt", std::string(10000, 'x'));
  const fs::path unfinished = folder_ / "0123456789abcdef.cubin.a1B2c3";  // its writer died
  write_text(unfinished, "x");
  fs::last_write_time(unfinished, now - std::chrono::hours(20));
  EXPECT_EQ(cache.load("key 0"), bytes(1000, 0));  // used now, so that key 1 is the oldest
  cache.store("key 3", bytes(1000, 3));
  EXPECT_NE(cache.load("key 0"), std::nullopt);
  EXPECT_EQ(cache.load("key 1"), std::nullopt);
  EXPECT_NE(cache.load("key 2"), std::nullopt);
  EXPECT_NE(cache.load("key 3"), std::nullopt);
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_TRUE(fs::exists(folder_ / "not ours.txt"));
}

TEST_F(CudaKernelCache, AFolderThatCannotBeMadeHoldsNothing) {
  write_text(root_ / "file", "");
  for (const fs::path& folder : {root_ / "file" / "folder", fs::path("/proc/nothing/here"), fs::path()}) {
    const KernelCache cache(folder);
    cache.store("key", bytes(50, 1));
    EXPECT_EQ(cache.load("key"), std::nullopt) << folder;
  }
}

/// Environment variables as the test wants them, for as long as it runs.
class Environment {
 public:
  explicit Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Environment() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(CudaKernelCacheFolder, ComesFromTheEnvironment) {
  const Environment home("HOME", "/h");
  const Environment xdg("XDG_CACHE_HOME", "/x");
  const Environment named("SLUICE_CACHE_DIR", "/s");
  EXPECT_EQ(KernelCache::default_folder(), "/s");
  const Environment unnamed("SLUICE_CACHE_DIR", "");
  EXPECT_EQ(KernelCache::default_folder(), "/x/sluice/kernels");
  const Environment relative("XDG_CACHE_HOME", "x");
  EXPECT_EQ(KernelCache::default_folder(), "/h/.cache/sluice/kernels");
  const Environment homeless("HOME", nullptr);
  EXPECT_EQ(KernelCache::default_folder(), "");
}

class CudaKernelCacheCompile : public CudaKernelCache {
 protected:
  void SetUp() override {
    CudaKernelCache::SetUp();
    testing::need(nvrtc_version);
  }
};

TEST_F(CudaKernelCacheCompile, TakesAHitAndCompilesAMissAndADamagedFile) {
  const KernelCache cache(folder_);
  const std::string key = kernel_key(kSource, "sm_90a");
  const Bytes compiled = cached_cubin(kSource, "sm_90a", &cache);
  EXPECT_EQ(cache.load(key), compiled);
  const Bytes mark = bytes(100, 1);
  cache.store(key, mark);
  EXPECT_EQ(cached_cubin(kSource, "sm_90a", &cache), mark);
  EXPECT_NE(cached_cubin(kSource, "sm_90a", nullptr), mark);
  EXPECT_NE(cached_cubin(kSource + " ", "sm_90a", &cache), mark);
  EXPECT_NE(cached_cubin(kSource, "sm_90", &cache), mark);
  EXPECT_EQ(files(), 3U);
  write_text(cache.file_of(key), "damaged");
  EXPECT_NE(cached_cubin(kSource, "sm_90a", &cache), mark);
  EXPECT_NE(cache.load(key), std::nullopt);
}

TEST_F(CudaKernelCacheCompile, NothingIsKeptOfAFailure) {
  const KernelCache cache(folder_);
  EXPECT_THROW(cached_cubin("int f() { return missing; }", "sm_90a", &cache), InternalError);
  EXPECT_FALSE(fs::exists(folder_));
}

class CudaKernelLibrary : public CudaKernelCacheCompile {
 protected:
  void SetUp() override {
    CudaKernelCacheCompile::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) testing::need(require_device);
  }

  static void launch(Kernel kernel, unsigned threads, size_t shared_bytes, std::vector<void*> arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    SLUICE_CHECK_CUDA(cudaLaunchKernelExC(&config, kernel, arguments.data()));
    SLUICE_CHECK_CUDA(cudaDeviceSynchronize());
  }
};

TEST_F(CudaKernelLibrary, RunsWhatItCompiledAndWhatTheCacheKept) {
  const KernelCache cache(folder_);
  EXPECT_EQ(device_architecture(), "sm_90a");
  std::vector<float> a(64);
  for (size_t i = 0; i < a.size(); ++i) a[i] = 0.5F * i;
  DeviceMemory numbers(a.size() * sizeof(float));
  numbers.upload(a.data(), numbers.bytes());
  for (int round = 0; round < 2; ++round) {
    DeviceMemory sums(numbers.bytes());
    KernelLibrary library = KernelLibrary::compile("int unused;", nullptr);
    library = KernelLibrary::compile(kSource, &cache);
    void* to = sums.data();
    void* from = numbers.data();
    launch(library.kernel("add"), a.size(), 0, {&to, &from, &from});
    std::vector<float> got(a.size());
    sums.download(got.data(), sums.bytes());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(got[i], 2 * a[i]) << i;
  }
  EXPECT_EQ(files(), 1U);
}

TEST_F(CudaKernelLibrary, ArithmeticFollowsIeee) {
  const KernelLibrary library = KernelLibrary::compile(R"(
extern "C" __global__ void k(float* x) {
  const float a = x[2 * threadIdx.x], b = x[2 * threadIdx.x + 1];
  x[2 * threadIdx.x] = a / b;
  x[2 * threadIdx.x + 1] = sqrtf(a);
})",
                                                       nullptr);
  std::mt19937 random(3);
  std::vector<float> x(2048);
  for (float& value : x) {
    const uint32_t bits = random() & 0x7fffffffU;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) value = 1e-40F;
  }
  x[0] = 3e-41F;  // denormal
  x[1] = 0.5F;
  DeviceMemory memory(x.size() * sizeof(float));
  memory.upload(x.data(), memory.bytes());
  void* at = memory.data();
  launch(library.kernel("k"), x.size() / 2, 0, {&at});
  std::vector<float> got(x.size());
  memory.download(got.data(), memory.bytes());
  for (size_t i = 0; i < x.size(); i += 2) {
    EXPECT_EQ(got[i], x[i] / x[i + 1]) << x[i] << " / " << x[i + 1];
    EXPECT_EQ(got[i + 1], std::sqrt(x[i])) << x[i];
  }
}

TEST_F(CudaKernelLibrary, SharedMemoryCanBeRaisedToWhatTheDeviceHas) {
  const KernelLibrary library = KernelLibrary::compile(R"(
extern "C" __global__ void k(int* x, int n) {
  extern __shared__ int shared[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) shared[i] = i;
  __syncthreads();
  x[threadIdx.x] = shared[n - 1 - threadIdx.x];
})",
                                                       nullptr);
  const Kernel kernel = library.kernel("k");
  const size_t bytes = 200 << 10;
  set_shared_memory_limit(kernel, bytes);
  DeviceMemory memory(32 * sizeof(int));
  void* at = memory.data();
  int count = bytes / sizeof(int);
  launch(kernel, 32, bytes, {&at, &count});
  std::vector<int> got(32);
  memory.download(got.data(), memory.bytes());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(got[i], count - 1 - i);
  EXPECT_THROW(set_shared_memory_limit(kernel, 1 << 20), InternalError);
  EXPECT_THROW(set_shared_memory_limit(kernel, size_t{1} << 40), InternalError);
  cudaGetLastError();  // the errors that were asked for
}

TEST_F(CudaKernelLibrary, AKernelCanBeFirstLaunchedInACapture) {
  const KernelLibrary library = KernelLibrary::compile(R"(extern "C" __global__ void k(int* x) { *x = 7; })", nullptr);
  const Kernel kernel = library.kernel("k");
  DeviceMemory memory(sizeof(int));
  memory.clear();
  void* at = memory.data();
  void* arguments[] = {&at};
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  SLUICE_CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  SLUICE_CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  SLUICE_CHECK_CUDA(cudaLaunchKernelExC(&config, kernel, arguments));
  SLUICE_CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  SLUICE_CHECK_CUDA(cudaGraphInstantiate(&ready, graph, 0));
  SLUICE_CHECK_CUDA(cudaGraphLaunch(ready, stream));
  SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream));
  int got = 0;
  memory.download(&got, sizeof got);
  EXPECT_EQ(got, 7);
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_F(CudaKernelLibrary, KernelsThatAreNotThereAreErrors) {
  const KernelCache cache(folder_);
  const KernelLibrary library = KernelLibrary::compile(kSource, &cache);
  EXPECT_THROW(library.kernel("subtract"), InternalError);
  cache.store(kernel_key(kSource, "sm_90a"), bytes(100, 1));  // whole, but no cubin
  EXPECT_THROW(KernelLibrary::compile(kSource, &cache).kernel("add"), InternalError);
  cudaGetLastError();  // the errors that were asked for
}

}  // namespace
}  // namespace sluice::cuda
