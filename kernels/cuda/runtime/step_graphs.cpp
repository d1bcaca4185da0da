#include "kernels/cuda/runtime/step_graphs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

constexpr size_t kMostShapes = 64;  // two graphs of a MiB or two each; an engine has two of these, for greedy steps and others

/// A graph that is being captured on a stream; ended, whatever happens.
class Capture {
 public:
  explicit Capture(Stream stream) : stream_(stream) {
    SLUICE_CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {
    if (stream_ != nullptr && cudaStreamEndCapture(stream_, &graph_) != cudaSuccess) cudaGetLastError();
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t end() {
    SLUICE_CHECK_CUDA(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph_));
    return graph_;
  }

 private:
  Recording recording_;
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

void StepGraphs::drop_oldest() {
  graphs_.erase(std::min_element(graphs_.begin(), graphs_.end(),
                                 [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; }));
}

void StepGraphs::run(const Shape& shape, int half, const std::function<std::vector<uintptr_t>()>& ground, Stream stream,
                     const std::function<void()>& operations) {
  if (ground() != ground_) graphs_.clear();
  const auto place = graphs_.find(shape);
  if (place == graphs_.end()) {
    operations();
    std::vector<uintptr_t> now = ground();
    if (now != ground_) graphs_.clear();  // they were made on something else
    ground_ = std::move(now);
    if (graphs_.size() >= kMostShapes) drop_oldest();
    graphs_[shape].last_use = ++uses_;
    return;
  }
  Entry& entry = place->second;
  entry.last_use = ++uses_;
  Executable& graph = entry.graphs.at(static_cast<size_t>(half));
  if (graph == nullptr && !out_of_memory_) {
    try {
      graph = record(stream, operations);
    } catch (const InputError&) {
      out_of_memory_ = true;
    }
  }
  if (graph == nullptr) {
    operations();
  } else {
    SLUICE_CHECK_CUDA(cudaGraphLaunch(graph.get(), stream));
  }
}

}  // namespace sluice::cuda
