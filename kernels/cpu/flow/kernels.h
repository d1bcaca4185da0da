#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice::cpu::flows {

// SIMD kernels of flows, dispatched at run time to the best instructions that the machine has. All work on dense float32
// buffers in row-major order. Buffers are followed by at least kPadding floats that may be read (and written back unchanged).
inline constexpr int64_t kPadding = 16;

/// Loops over the elements of a result, slowest first, with the stride of every operand in each loop (0: broadcast). The
/// result is dense. If `paged`, the first extent counts elements of one page and is multiplied by the pages at run time.
struct LoopNest {
  static constexpr int kMaxRank = 8;
  static constexpr int kMaxOperands = 4;

  int rank = 1;
  bool paged = false;
  std::array<int64_t, kMaxRank> extent{1};
  std::array<std::array<int64_t, kMaxRank>, kMaxOperands> stride{};  // [operand][loop]
};

/// A tensor as [outer, extent, inner] around one axis, of which the first `used` entries exist.
struct AxisView {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;
  int64_t used = 1;
};

/// kAdd, kSub, kMul, kDiv, kMaximum or kMinimum.
void binary(Op op, const LoopNest& nest, int64_t pages, const float* a, const float* b, float* out);
/// kRelu, kSigmoid, kSilu, kExp, kLog, kAbs or kSqrt of `count` numbers.
void unary(Op op, const float* x, int64_t count, float* out);
/// inputs: a, b, x, y. out = compare(a, b) ? x : y.
void where(Compare compare, const LoopNest& nest, int64_t pages, const std::array<const float*, 4>& inputs, float* out);
/// out = x in the order of the nest.
void copy_strided(const LoopNest& nest, int64_t pages, const float* x, float* out);

enum class Reduction : uint8_t { kMean, kMax, kMin, kL2Norm, kSum };
/// x [outer, extent, inner] -> out [outer, inner], over the entries used.
void reduce(Reduction reduction, const AxisView& view, const float* x, float* out);

/// out[i] = sum over j < used of a[i, j] * b[i, j]; the nest holds the strides of a and b by i, `a_step` and `b_step` those by j.
void contract(const LoopNest& nest, int64_t pages, int64_t used, int64_t a_step, int64_t b_step, const float* a, const float* b,
              float* out);

/// A tree of elementwise operators, run a strip of numbers at a time. Operand i of a step is leaf i, or from kMostLeaves on the
/// result of step i - kMostLeaves. The last step is the root; without steps it is leaf 0.
struct Expression {
  static constexpr int kMostLeaves = 8;
  static constexpr int kMostSteps = 8;

  struct Step {
    Op op = Op::kMul;
    Compare compare = Compare::kEq;
    std::array<int, 4> operands{};
  };
  std::array<Step, kMostSteps> steps{};
  int count = 0;
};

/// An operand that a fused reduction reads.
struct Leaf {
  DataType type = DataType::kF32;
  bool in_page = false;       // read where the page stores it, else from a float32 buffer
  int64_t step = 1;           // along the reduced axis: 1, or 0 if it lacks the axis
  int64_t bytes = 0;          // in each page, if it is read there
  std::vector<int32_t> rows;  // its first element for each row of the result, in one page
};

/// Where a leaf lies: pages[i] * page_step bytes after `base` if there are `pages`, else i * page_step bytes, for page i of the
/// run.
struct LeafSource {
  const std::byte* base = nullptr;
  size_t page_step = 0;
  const int32_t* pages = nullptr;
};

/// `count` pages, and what is read next: `pages` in all.
struct PageRun {
  int count = 0;
  int pages = 0;
};

/// Forms with inner loops of their own: kDot is x * y, kUpper is maximum(x * y, x * z) and kLower the minimum, for x in a
/// buffer and y and z in pages, summed.
enum class FusedForm : uint8_t { kGeneral, kDot, kUpper, kLower };

/// A reduction along the innermost axis of an expression that is never stored.
struct FusedReduction {
  Reduction reduction = Reduction::kSum;
  FusedForm form = FusedForm::kGeneral;
  Expression expression;
  std::vector<Leaf> leaves;  // x, y and z come first, in this order, if the form is not general
  int rows = 1;              // of the result, for each page
  int shared_rows = 1;       // consecutive rows that read the same numbers of y and z
};

/// out [page, row], over the first `used` entries of the reduced axis.
void reduce_fused(const FusedReduction& fused, std::span<const LeafSource> sources, const PageRun& run, int64_t used, float* out);

/// Over the axis of the view: exp(x - max) / sum(exp(x - max)).
void softmax(const AxisView& view, const float* x, float* out);
/// Over the axis of the view: x / sum(x).
void normalize(const AxisView& view, const float* x, float* out);
/// out[i] = sum over j of kernel[j] * x[i + j - n / 2] along the axis of the view, zeros outside.
void convolve(const AxisView& view, std::span<const float> kernel, const float* x, float* out);

/// Numbers as pages store them, to float32.
void widen(DataType type, const std::byte* source, int64_t count, float* target);
/// float32 to storage: round to nearest, ties to even; NaN stays NaN; 8-bit types saturate at their largest number.
void narrow(DataType type, const float* source, int64_t count, std::byte* target);

}  // namespace sluice::cpu::flows
