#include "kernels/cpu/products/matmul.h"

#include <algorithm>

#include "kernels/cpu/simd/amx.h"
#include "kernels/cpu/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products/matmul.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kPanel = CpuWeight::kPanel;
constexpr int kVectors = kPanel / kLanes;     // of one panel's outputs
constexpr int kTile = kLanes >= 16 ? 2 : 1;   // vectors of outputs that stay in registers
constexpr int kRows = kLanes >= 16 ? 12 : 6;  // rows that stay in registers

/// Rows x (kTile vectors) outputs, starting at vector `vector` of a panel.
template <int Rows>
HWY_INLINE void tile(const uint16_t* panel, const float* x, int64_t stride, int64_t inputs, int vector, float* out) {
  VecF32 sums[Rows][kTile];
  SLUICE_UNROLL for (int r = 0; r < Rows; ++r) { SLUICE_UNROLL for (int v = 0; v < kTile; ++v) sums[r][v] = hn::Zero(kF32); }
  const uint16_t* from = panel + vector * 2 * kLanes;
  int64_t i = 0;
  for (; i + 1 < inputs; i += 2, from += 2 * kPanel) {
    VecF32 even[kTile];
    VecF32 odd[kTile];
    SLUICE_UNROLL for (int v = 0; v < kTile; ++v) load_pair(from + v * 2 * kLanes, even[v], odd[v]);
    SLUICE_UNROLL for (int r = 0; r < Rows; ++r) {
      const VecF32 first = hn::Set(kF32, x[r * stride + i]);
      SLUICE_UNROLL for (int v = 0; v < kTile; ++v) sums[r][v] = hn::MulAdd(first, even[v], sums[r][v]);
    }
    SLUICE_UNROLL for (int r = 0; r < Rows; ++r) {
      const VecF32 second = hn::Set(kF32, x[r * stride + i + 1]);
      SLUICE_UNROLL for (int v = 0; v < kTile; ++v) sums[r][v] = hn::MulAdd(second, odd[v], sums[r][v]);
    }
  }
  if (i < inputs) {
    SLUICE_UNROLL for (int v = 0; v < kTile; ++v) {
      VecF32 even;
      VecF32 odd;
      load_pair(from + v * 2 * kLanes, even, odd);
      SLUICE_UNROLL for (int r = 0; r < Rows; ++r) {
        sums[r][v] = hn::MulAdd(hn::Set(kF32, x[r * stride + i]), even, sums[r][v]);
      }
    }
  }
  SLUICE_UNROLL for (int r = 0; r < Rows; ++r) {
    SLUICE_UNROLL for (int v = 0; v < kTile; ++v) hn::StoreU(sums[r][v], kF32, out + r * kPanel + (vector + v) * kLanes);
  }
}

template <int Rows>
HWY_INLINE void tile(const float* panel, const float* x, int64_t stride, int64_t inputs, int vector, float* out) {
  VecF32 sums[Rows][kTile];
  SLUICE_UNROLL for (int r = 0; r < Rows; ++r) { SLUICE_UNROLL for (int v = 0; v < kTile; ++v) sums[r][v] = hn::Zero(kF32); }
  const float* from = panel + vector * kLanes;
  for (int64_t i = 0; i < inputs; ++i, from += kPanel) {
    VecF32 weights[kTile];
    SLUICE_UNROLL for (int v = 0; v < kTile; ++v) weights[v] = hn::LoadU(kF32, from + v * kLanes);
    SLUICE_UNROLL for (int r = 0; r < Rows; ++r) {
      const VecF32 value = hn::Set(kF32, x[r * stride + i]);
      SLUICE_UNROLL for (int v = 0; v < kTile; ++v) sums[r][v] = hn::MulAdd(value, weights[v], sums[r][v]);
    }
  }
  SLUICE_UNROLL for (int r = 0; r < Rows; ++r) {
    SLUICE_UNROLL for (int v = 0; v < kTile; ++v) hn::StoreU(sums[r][v], kF32, out + r * kPanel + (vector + v) * kLanes);
  }
}

template <int Rows, typename T>
HWY_INLINE void panel_rows(const T* panel, const float* x, int64_t stride, int64_t inputs, float* out) {
  for (int vector = 0; vector < kVectors; vector += kTile) tile<Rows>(panel, x, stride, inputs, vector, out);
}

/// One panel for any number of rows.
template <typename T>
void panel_product(const T* panel, const Matrix& x, int64_t first_output, const Matrix& out) {
  HWY_ALIGN float result[kRows * kPanel];
  const int64_t outputs = HWY_MIN(kPanel, out.columns - first_output);
  for (int64_t row = 0; row < x.rows;) {
    const int64_t left = x.rows - row;
    int64_t rows = kRows;
    if (left >= kRows) {
      panel_rows<kRows>(panel, x.row(row), x.stride, x.columns, result);
    } else if (left >= 4) {
      rows = 4;
      panel_rows<4>(panel, x.row(row), x.stride, x.columns, result);
    } else if (left >= 2) {
      rows = 2;
      panel_rows<2>(panel, x.row(row), x.stride, x.columns, result);
    } else {
      rows = 1;
      panel_rows<1>(panel, x.row(row), x.stride, x.columns, result);
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* to = out.row(row + r) + first_output;
      for (int64_t i = 0; i < outputs; ++i) to[i] = result[r * kPanel + i];
    }
    row += rows;
  }
}

void panel_product_any(const CpuWeight& weight, int64_t panel, const Matrix& x, const Matrix& out) {
  if (weight.type() == DataType::kBF16) {
    panel_product(reinterpret_cast<const uint16_t*>(weight.panel(panel)), x, panel * kPanel, out);
  } else {
    panel_product(reinterpret_cast<const float*>(weight.panel(panel)), x, panel * kPanel, out);
  }
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(panel_product_any);

namespace {

/// A product cut into tasks of `row_block` rows times some panels, about `tasks_per_thread` for each thread if the rows
/// alone do not make as many. `rows` is at least 1.
template <typename Task>
void for_blocks(ThreadPool& pool, int64_t rows, int64_t panels, int64_t row_block, int64_t tasks_per_thread, Task&& task) {
  const int64_t row_blocks = (rows + row_block - 1) / row_block;
  const int64_t wanted_groups = std::max<int64_t>(1, tasks_per_thread * pool.threads() / row_blocks);
  const int64_t panel_group = std::max<int64_t>(1, panels / wanted_groups);
  const int64_t groups = (panels + panel_group - 1) / panel_group;
  pool.run(groups * row_blocks, [&](int64_t index, int thread) {
    const int64_t row = index / groups * row_block;
    const int64_t panel = index % groups * panel_group;
    task(row, std::min(row_block, rows - row), panel, std::min(panels, panel + panel_group), thread);
  });
}

}  // namespace

void Matmul::reserve(int64_t columns) {
  if (!tiles_) return;
  const size_t bytes = amx_matmul_scratch_bytes(columns);
  for (MappedMemory& scratch : scratch_) {
    if (scratch.bytes() < bytes) scratch = MappedMemory(bytes);
  }
}

void Matmul::run(const Matrix& x, const CpuWeight& weight, const Matrix& out) {
  if (x.rows == 0) return;
  if (weight.type() == DataType::kBF16 && tiles_) {
    run_tiles(x, weight, out);
  } else {
    run_vectors(x, weight, out);
  }
}

void Matmul::run_tiles(const Matrix& x, const CpuWeight& weight, const Matrix& out) {
  reserve(weight.columns());
  constexpr int64_t kTasks = 2;  // each splits its rows again
  for_blocks(pool_, x.rows, weight.panels(), kAmxRows, kTasks,
             [&](int64_t row, int64_t rows, int64_t first, int64_t last, int thread) {
               std::byte* scratch = scratch_[thread].at(0);
               amx_split_rows(x.slice_rows(row, rows), scratch);
               amx_panel_products(weight, first, last, scratch, out.slice_rows(row, rows));
             });
}

void Matmul::run_vectors(const Matrix& x, const CpuWeight& weight, const Matrix& out) {
  constexpr int64_t kRowBlock = 96;  // rows of x that stay in the second-level cache while panels pass
  constexpr int64_t kTasks = 8;
  for_blocks(pool_, x.rows, weight.panels(), kRowBlock, kTasks, [&](int64_t row, int64_t rows, int64_t first, int64_t last, int) {
    for (int64_t panel = first; panel < last; ++panel) {
      HWY_DYNAMIC_DISPATCH(panel_product_any)(weight, panel, x.slice_rows(row, rows), out.slice_rows(row, rows));
    }
  });
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
