#include "agents/bench/cuda/timing.h"

#include <algorithm>
#include <vector>

#include "agents/bench/bench.h"

namespace sluice {
namespace {

/// Seconds of the device between construction and `stop`.
class DeviceTimer {
 public:
  explicit DeviceTimer(cudaStream_t stream) : stream_(stream) {
    SLUICE_CHECK_CUDA(cudaEventCreate(&start_));
    SLUICE_CHECK_CUDA(cudaEventCreate(&stop_));
    SLUICE_CHECK_CUDA(cudaEventRecord(start_, stream));
  }
  ~DeviceTimer() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  double stop() {
    float milliseconds = 0;
    SLUICE_CHECK_CUDA(cudaEventRecord(stop_, stream_));
    SLUICE_CHECK_CUDA(cudaEventSynchronize(stop_));
    SLUICE_CHECK_CUDA(cudaEventElapsedTime(&milliseconds, start_, stop_));
    return milliseconds / 1e3;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

}  // namespace

double measure_device_copy() {
  constexpr size_t kBytes = size_t{2} << 30;
  const cuda::DeviceMemory source(kBytes);
  const cuda::DeviceMemory target(kBytes);
  SLUICE_CHECK_CUDA(cudaMemset(source.data(), 1, kBytes));
  double best = 0;
  for (int repeat = 0; repeat < 8; ++repeat) {
    DeviceTimer timer(nullptr);
    SLUICE_CHECK_CUDA(cudaMemcpyAsync(target.data(), source.data(), kBytes, cudaMemcpyDeviceToDevice));
    best = std::max(best, 2.0 * kBytes / timer.stop() / 1e12);
  }
  return best;
}

double tensor_gflop_per_s() {
  int device = 0;
  int kilohertz = 0;
  SLUICE_CHECK_CUDA(cudaGetDevice(&device));
  SLUICE_CHECK_CUDA(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device));
  return cuda::multiprocessors() * 4.0 * 512 * 2 * kilohertz / 1e6;
}

double time_device_call(double seconds, const std::function<void(int64_t, CUstream_st*)>& call) {
  constexpr int kCalls = 20;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  SLUICE_CHECK_CUDA(cudaStreamCreate(&stream));
  SLUICE_CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kCalls; ++i) call(i, stream);
  SLUICE_CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  SLUICE_CHECK_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  std::vector<double> times;
  double spent = 0;
  for (int repeat = 0; repeat < 12 || spent < seconds; ++repeat) {
    DeviceTimer timer(stream);
    SLUICE_CHECK_CUDA(cudaGraphLaunch(replay, stream));
    const double time = timer.stop();
    spent += time;
    if (repeat >= 2) times.push_back(time / kCalls * 1e6);
  }
  SLUICE_CHECK_CUDA(cudaGraphExecDestroy(replay));
  SLUICE_CHECK_CUDA(cudaGraphDestroy(graph));
  SLUICE_CHECK_CUDA(cudaStreamDestroy(stream));
  return median(std::move(times));
}

}  // namespace sluice
