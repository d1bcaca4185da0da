#include "kernels/cuda/runtime/runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "kernels/cuda/runtime/shared_library.h"
#include "tests/cuda/gpu.h"

namespace sluice {
namespace {

/// The message of the InputError that `call` throws, and its hint.
template <typename Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const InputError& error) {
    return std::string(error.what()) + "\n" + error.hint();
  }
  return "nothing was thrown";
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

TEST(CudaRuntime, SaysWhyThereIsNoGpu) {
  EXPECT_EQ(cuda::explain_absence(cudaErrorInsufficientDriver, 0), "there is no NVIDIA driver");
  EXPECT_EQ(cuda::explain_absence(cudaErrorInsufficientDriver, 12040),
            "the NVIDIA driver is made for CUDA 12.4, and this program needs one for CUDA 13.0 or later");
  expect_part(cuda::explain_absence(cudaErrorNoDevice, 13000), "CUDA_VISIBLE_DEVICES");
  expect_part(cuda::explain_absence(cudaErrorSystemNotReady, 13000), "initialized");
}

TEST(CudaRuntime, NamesGpusAsTheProcessWasShownThem) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(cuda::names_of_gpus(nullptr, 3), (Names{"0", "1", "2"}));
  EXPECT_EQ(cuda::names_of_gpus("5", 1), Names{"5"});
  EXPECT_EQ(cuda::names_of_gpus("3, 1 ,GPU-8f3c", 3), (Names{"3", "1", "GPU-8f3c"}));
  EXPECT_EQ(cuda::names_of_gpus("3,1,-1,2", 2), (Names{"3", "1"})) << "CUDA stops at the first that is none";
  EXPECT_EQ(cuda::names_of_gpus("", 0), Names{});
}

TEST(CudaRuntime, RefusesGpusThatTheKernelsAreNotBuiltFor) {
  EXPECT_NO_THROW(cuda::require_capability("NVIDIA H200", 9, 0));
  for (const int major : {8, 10, 12}) {
    const std::string said = refusal_of([&] { cuda::require_capability("NVIDIA B300", major, 3); });
    expect_part(said, "NVIDIA B300 has " + std::to_string(major) + ".3");
    expect_part(said, "--device cpu");
  }
  EXPECT_THROW(cuda::require_capability("", 9, 1), InputError);
}

TEST(CudaRuntime, RecordsWhileNobodyNeedsThatNoneDoes) {
  std::atomic<bool> recorded = false;
  std::future<void> recorder;
  {
    const cuda::NoRecording outside;
    std::async(std::launch::async, [] { const cuda::NoRecording beside; }).get();  // several may
    recorder = std::async(std::launch::async, [&] {
      const cuda::Recording recording;
      EXPECT_THROW(cuda::NoRecording(), InternalError);
      recorded = true;
    });
    EXPECT_EQ(recorder.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
    EXPECT_FALSE(recorded);
  }
  recorder.get();
  EXPECT_TRUE(recorded);
  std::future<void> waiting;
  {
    const cuda::Recording recording;
    waiting = std::async(std::launch::async, [] { const cuda::NoRecording outside; });
    EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  }
  waiting.get();
}

TEST(CudaSharedLibrary, NamesWhatIsMissing) {
  const auto load = [](const char* name) { return cuda::SharedLibrary("The library", {name}, "install it"); };
  const std::string absent = refusal_of([&] { load("libno-such-library.so.7"); });
  expect_part(absent, "The library cannot be loaded: tried libno-such-library.so.7");
  expect_part(absent, "install it");
  int (*function)() = nullptr;
  expect_part(refusal_of([&] { load("libm.so.6").find("no_such_function", function); }), "it lacks no_such_function");
}

class CudaMemoryTest : public testing::GpuTest {};

TEST_F(CudaMemoryTest, MoreThanThereIsIsRefusedWithWhatIsFree) {
  const std::string said = refusal_of([] { cuda::DeviceMemory(size_t{1} << 45); });
  expect_part(said, "32768.0 GiB are wanted in one piece");
  expect_part(said, "are free");
  EXPECT_NO_THROW(cuda::DeviceMemory(1 << 20).clear()) << "what follows must not report it again";
}

}  // namespace
}  // namespace sluice
