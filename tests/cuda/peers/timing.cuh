// Timing as agents/bench/cuda/timing.cpp has it: the same graphs, as many calls, as many replays.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "device.cuh"

namespace peers {

using Call = std::function<void(int64_t, cudaStream_t)>;

constexpr int kCalls = 20;                     // of a graph
constexpr size_t kCaches = size_t{256} << 20;  // bytes: more than a second-level cache holds

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Median time in microseconds of one `call(number, stream)` in graphs of 20 that are replayed for about `seconds`.
inline double time_calls(double seconds, const Call& call) {
  constexpr int kWarmUps = 2;
  constexpr int kLeast = 12;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  PEERS_CHECK(cudaStreamCreate(&stream));
  PEERS_CHECK(cudaEventCreate(&start));
  PEERS_CHECK(cudaEventCreate(&stop));
  call(0, stream);  // a first call may set things up, which a captured one must not
  PEERS_CHECK(cudaStreamSynchronize(stream));
  PEERS_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kCalls; ++i) call(i, stream);
  PEERS_CHECK(cudaStreamEndCapture(stream, &graph));
  PEERS_CHECK(cudaGraphInstantiate(&replay, graph, 0));
  std::vector<double> times;
  double spent = 0;
  for (int repeat = 0; repeat < kLeast || spent < seconds; ++repeat) {
    float milliseconds = 0;
    PEERS_CHECK(cudaEventRecord(start, stream));
    PEERS_CHECK(cudaGraphLaunch(replay, stream));
    PEERS_CHECK(cudaEventRecord(stop, stream));
    PEERS_CHECK(cudaEventSynchronize(stop));
    PEERS_CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    spent += milliseconds / 1e3;
    if (repeat >= kWarmUps) times.push_back(milliseconds * 1e3 / kCalls);
  }
  PEERS_CHECK(cudaGraphExecDestroy(replay));
  PEERS_CHECK(cudaGraphDestroy(graph));
  PEERS_CHECK(cudaEventDestroy(start));
  PEERS_CHECK(cudaEventDestroy(stop));
  PEERS_CHECK(cudaStreamDestroy(stream));
  return median(std::move(times));
}

/// A row for measure.py. `error`: relative, of the worst row; the table leaves out what is above its limit.
inline void report(const char* peer, const char* bench, const std::string& name, double us, double error, const char* variant) {
  std::printf(R"({"peer":"%s","bench":"%s","case":"%s","us":%.3f,"error":%.3e,"variant":"%s"})"
              "\n",
              peer, bench, name.c_str(), us, error, variant);
  std::fflush(stdout);
}

}  // namespace peers
