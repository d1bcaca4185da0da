#pragma once

#include <vector>

#include "kernels/cpu/products/weight.h"
#include "kernels/cpu/runtime/memory.h"
#include "kernels/cpu/runtime/thread_pool.h"

namespace sluice::cpu {

/// Products with weights: on AMX tiles (`tiles`) where the weight is bf16, else on vectors in float32.
/// Every output sums its inputs in an order of its own, so a row's result depends on neither the other rows nor the
/// number of threads.
class Matmul {
 public:
  Matmul(ThreadPool& pool, bool tiles) : pool_(pool), tiles_(tiles), scratch_(pool.threads()) {}

  /// Makes room for weights of `columns` inputs.
  void reserve(int64_t columns);
  /// out[rows, weight.rows] = x[rows, weight.columns] * weight^T.
  void run(const Matrix& x, const CpuWeight& weight, const Matrix& out);

 private:
  void run_tiles(const Matrix& x, const CpuWeight& weight, const Matrix& out);
  void run_vectors(const Matrix& x, const CpuWeight& weight, const Matrix& out);

  ThreadPool& pool_;
  bool tiles_;
  std::vector<MappedMemory> scratch_;  // of each thread, for tiles
};

}  // namespace sluice::cpu
