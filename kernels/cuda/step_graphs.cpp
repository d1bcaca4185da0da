#include "kernels/cuda/step_graphs.h"

#include <algorithm>
#include <bit>

namespace sluice::cuda {
namespace {

constexpr size_t kMostGraphs = 256;  // a few MiB each

/// A graph that is being captured on a stream; ended, whatever happens.
class Capture {
 public:
  explicit Capture(Stream stream) : stream_(stream) {
    SLUICE_CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {
    if (stream_ != nullptr) cudaStreamEndCapture(stream_, &graph_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t end() {
    SLUICE_CHECK_CUDA(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph_));
    return graph_;
  }

 private:
  Stream stream_;
  cudaGraph_t graph_ = nullptr;
};

}  // namespace

int round_pages(int pages) {
  constexpr int kLeastStep = 16;
  const int step = std::max(kLeastStep, static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(pages, 1)))) / 16);
  return (pages + step - 1) / step * step;
}

void StepGraphs::DestroyGraph::operator()(CUgraphExec_st* graph) const { cudaGraphExecDestroy(graph); }

StepGraphs::Executable StepGraphs::record(Stream stream, const std::function<void()>& operations) {
  Capture capture(stream);
  operations();
  cudaGraphExec_t graph = nullptr;
  SLUICE_CHECK_CUDA(cudaGraphInstantiate(&graph, capture.end(), 0));
  return Executable(graph);
}

void StepGraphs::run(const Shape& shape, const std::function<std::vector<uintptr_t>()>& ground, Stream stream,
                     const std::function<void()>& operations) {
  if (ground() != ground_ || graphs_.size() > kMostGraphs) graphs_.clear();
  const auto [place, is_new] = graphs_.try_emplace(shape);
  if (is_new) {
    operations();
    std::vector<uintptr_t> now = ground();
    if (now == ground_) return;
    // What the other graphs were made on is gone.
    graphs_.clear();
    graphs_.try_emplace(shape);
    ground_ = std::move(now);
    return;
  }
  if (place->second == nullptr) place->second = record(stream, operations);
  SLUICE_CHECK_CUDA(cudaGraphLaunch(place->second.get(), stream));
}

}  // namespace sluice::cuda
