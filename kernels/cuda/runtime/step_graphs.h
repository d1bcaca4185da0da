#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device.h"

struct CUgraphExec_st;

namespace sluice::cuda {

/// What decode steps of one engine did, as CUDA graphs: launching one costs as much as launching a kernel or two. Kernels find
/// lengths, page tables and seeds in the half that passes put them in by turns, and their grids are right for all lengths up to a
/// bound.
class StepGraphs final : public Device::Repetition {
 public:
  struct Shape {
    int sequences = 0;
    int pages = 0;                                   // most of any sequence, rounded up; 0 where nothing depends on it
    bool even = false;                               // sequences are about as long as each other, where that matters
    uint64_t masked = 0;                             // a bit for each group of layers: kernels with masks
    auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 takes it for a pointer
  };

  /// Runs `operations`, the first time a shape is seen as they are, later as a graph: one for each of the two halves that the
  /// pass's arrays may be in. `ground` gives numbers that differ once device memory which they use beyond what the caller owns
  /// has moved; graphs are made anew then. Where there is no memory for another graph, operations run as they are.
  void run(const Shape& shape, int half, const std::function<std::vector<uintptr_t>()>& ground, Stream stream,
           const std::function<void()>& operations);

 private:
  struct DestroyGraph {
    void operator()(CUgraphExec_st* graph) const;
  };
  using Executable = std::unique_ptr<CUgraphExec_st, DestroyGraph>;

  static Executable record(Stream stream, const std::function<void()>& operations);

  struct Entry {
    std::array<Executable, 2> graphs;  // null: not recorded yet
    uint64_t last_use = 0;
  };
  void drop_oldest();

  std::map<Shape, Entry> graphs_;
  std::vector<uintptr_t> ground_;  // what they were made on
  uint64_t uses_ = 0;
  bool out_of_memory_ = false;  // no more graphs are made
};

/// `pages` rounded up in steps of a sixteenth or less, but of 16 pages at least, so that few shapes cover the lengths that
/// sequences grow through.
int round_pages(int pages);

}  // namespace sluice::cuda
