#include "kernels/cuda/cupti_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "kernels/cuda/rows.h"
#include "tests/cuda/gpu.h"

namespace sluice {
namespace {

constexpr int kLaunches = 3;  // of a graph

class CudaKernelRecorder : public testing::GpuTest {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    if (IsSkipped()) return;
    SLUICE_CHECK_CUDA(cudaStreamCreate(&stream_));
    capture();  // before there is a recorder
    try {
      recorder_ = create_kernel_recorder("cuda");
      recorder_->start();  // which is refused under another profiler
      recorder_->stop();
    } catch (const InputError& error) {
      GTEST_SKIP() << error.what();
    }
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

}  // namespace
}  // namespace sluice
