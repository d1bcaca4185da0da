#include "kernels/cuda/runtime/cupti_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/runtime/kernel_library.h"
#include "tests/cuda/gpu.h"

namespace sluice {
namespace {

constexpr int kLaunches = 3;  // of a graph

class CudaKernelRecorder : public testing::GpuTest {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    if (!runs()) return;
    SLUICE_CHECK_CUDA(cudaStreamCreate(&stream_));
    capture();  // before there is a recorder
    testing::need([&] {
      recorder_ = create_kernel_recorder("cuda");
      recorder_->start();  // which is refused under another profiler
      recorder_->stop();
    });
  }
  void TearDown() override {
    if (replay_ != nullptr) cudaGraphExecDestroy(replay_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  void capture() {
    memory_ = cuda::DeviceMemory(2 * 64 * sizeof(float));
    const Matrix x{memory_.data(), DataType::kF32, 1, 64, 64};
    const Matrix out{memory_.as<float>() + 64, DataType::kF32, 1, 64, 64};
    cudaGraph_t graph = nullptr;
    SLUICE_CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < kLaunches; ++i) cuda::gather_rows(x, nullptr, out, stream_);
    SLUICE_CHECK_CUDA(cudaStreamEndCapture(stream_, &graph));
    SLUICE_CHECK_CUDA(cudaGraphInstantiate(&replay_, graph, 0));
    SLUICE_CHECK_CUDA(cudaGraphDestroy(graph));
  }

  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t replay_ = nullptr;
  cuda::DeviceMemory memory_;
  std::unique_ptr<KernelRecorder> recorder_;
};

TEST_F(CudaKernelRecorder, SeesTheKernelsOfGraphsThatWereThereBefore) {
  for (const int launches : {1, 2}) {
    recorder_->start();
    for (int i = 0; i < launches; ++i) SLUICE_CHECK_CUDA(cudaGraphLaunch(replay_, stream_));
    memory_.clear();
    const DeviceRecording recording = recorder_->stop();
    const auto kernels = std::count_if(recording.activities.begin(), recording.activities.end(), [](const auto& activity) {
      return activity.kernel && short_kernel_name(activity.name, "").starts_with("gather_kernel");
    });
    EXPECT_EQ(kernels, launches * kLaunches);
    EXPECT_EQ(recording.activities.size(), static_cast<size_t>(kernels) + 1) << "and a fill";
    for (const DeviceActivity& activity : recording.activities) {
      EXPECT_GE(activity.start, recording.start);
      EXPECT_LE(activity.end, recording.end);
    }
  }
}

TEST_F(CudaKernelRecorder, TellsKernelsOfALibraryFromThoseOfOthersThatWereThereBefore) {
  const auto name = [](int i) { return "kernel_" + std::to_string(i % 3); };
  for (int i = 0; i < 100; ++i) {
    std::string source;
    for (int kernel = 0; kernel <= i % 3; ++kernel) {
      source +=
          "extern \"C\" __global__ void " + name(i + kernel) + "(float* x) { x[threadIdx.x] += " + std::to_string(i) + "; }\n";
    }
    const auto library = cuda::KernelLibrary::compile(source, nullptr);
    for (int kernel = 0; kernel <= i % 3; ++kernel) {
      const cuda::Kernel added = library.kernel(name(i + kernel).c_str());
      auto* x = memory_.as<float>();
      void* arguments[] = {static_cast<void*>(&x)};
      recorder_->start();
      SLUICE_CHECK_CUDA(cudaLaunchKernel(added, 1, 32, arguments, 0, stream_));
      const DeviceRecording recording = recorder_->stop();
      ASSERT_EQ(recording.activities.size(), 1U) << i;
      ASSERT_EQ(recording.activities[0].name, name(i + kernel)) << i;
    }
  }
}

}  // namespace
}  // namespace sluice
