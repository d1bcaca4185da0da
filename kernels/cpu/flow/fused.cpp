#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/flow/fused.cpp"
#include "kernels/cpu/simd/targets.h"
// Before any other header of Highway:
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/cpu/flow/products-inl.h"
#include "kernels/cpu/flow/strips-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::flows::HWY_NAMESPACE {

/// Results in order: the lanes of kLanes rows are combined together.
template <class R>
struct RowSink {
  float* out;
  FloatVector lanes[kLanes + kMostShared];
  int64_t filled = 0;

  HWY_INLINE explicit RowSink(float* target) : out(target) {}

  /// Where the next rows, at most kMostShared, are to be written before `take`.
  HWY_INLINE FloatVector* next() { return lanes + filled; }
  HWY_INLINE void take(int64_t rows) {
    filled += rows;
    while (filled >= kLanes) {
      store(combine_lanes<R>(lanes), out);
      out += kLanes;
      filled -= kLanes;
      for (int64_t i = 0; i < filled; ++i) lanes[i] = lanes[kLanes + i];
    }
  }
  HWY_INLINE void flush() {
    if (filled == 0) return;
    for (int64_t i = filled; i < kLanes; ++i) lanes[i] = R::identity();
    store_up_to(combine_lanes<R>(lanes), filled, out);
  }
};

template <class R>  // NOLINTNEXTLINE(readability-non-const-parameter): the sink writes there
void reduce_general(const FusedRun& all, int64_t used, float* out) {
  RowSink<R> sink(out);
  StripLoop<R> loop;
  for (int page = 0; page < all.run.count; ++page) {
    all.prefetch(page);
    loop.enter_page(all, page);
    for (int row = 0; row < all.fused.rows; ++row) {
      *sink.next() = loop.reduce_row(all.fused, row, used);
      sink.take(1);
    }
  }
  sink.flush();
}

template <FusedForm kForm, class T>
void reduce_products(const FusedRun& all, int64_t used, float* out) {
  const FusedReduction& fused = all.fused;
  const int last = kForm == FusedForm::kDot ? 1 : 2;
  RowSink<SumOf> sink(out);
  StripLoop<SumOf> loop;
  for (int page = 0; page < all.run.count; ++page) {
    all.prefetch(page);
    const auto* x = reinterpret_cast<const float*>(all.page_of(0, page));
    const auto* y = reinterpret_cast<const T*>(all.page_of(1, page));
    const auto* z = reinterpret_cast<const T*>(all.page_of(last, page));
    for (int row = 0; row < fused.rows;) {
      const int count = std::min(kMostShared, fused.shared_rows - row % fused.shared_rows);
      const int32_t shared = fused.leaves[1].rows[row];
      FloatVector* sums = sink.next();
      if (!sum_block<kForm>(count, x, &fused.leaves[0].rows[row], y + shared, z + shared, used, sums)) {
        loop.enter_page(all, page);
        for (int i = 0; i < count; ++i) sums[i] = loop.reduce_row(fused, row + i, used);
      }
      sink.take(count);
      row += count;
    }
  }
  sink.flush();
}

bool is_finite(const float* x, const Leaf& leaf, int64_t used) {
  for (const int32_t row : leaf.rows) {
    for (int64_t i = 0; i < used; i += kLanes) {
      const FloatVector numbers = load_first(x + row + i, std::min(kLanes, used - i));
      if (!hn::AllTrue(Floats(), hn::IsFinite(numbers))) return false;
    }
  }
  return true;
}

template <FusedForm kForm>
void reduce_form(const FusedRun& all, int64_t used, float* out) {
  const auto* x = reinterpret_cast<const float*>(all.sources[0].base);
  if (kForm != FusedForm::kDot && !is_finite(x, all.fused.leaves[0], used)) return reduce_general<SumOf>(all, used, out);
  switch (all.fused.leaves[1].type) {
    case DataType::kF32:
      return reduce_products<kForm, float>(all, used, out);
    case DataType::kBF16:
      return reduce_products<kForm, uint16_t>(all, used, out);
    case DataType::kE4M3:
      return reduce_products<kForm, E4M3>(all, used, out);
    case DataType::kE5M2:
      return reduce_products<kForm, E5M2>(all, used, out);
  }
}

void reduce_by(const FusedRun& all, int64_t used, float* out) {
  switch (all.fused.form) {
    case FusedForm::kDot:
      return reduce_form<FusedForm::kDot>(all, used, out);
    case FusedForm::kUpper:
      return reduce_form<FusedForm::kUpper>(all, used, out);
    case FusedForm::kLower:
      return reduce_form<FusedForm::kLower>(all, used, out);
    case FusedForm::kGeneral:
      break;
  }
  switch (all.fused.reduction) {
    case Reduction::kMax:
      return reduce_general<MaxOf>(all, used, out);
    case Reduction::kMin:
      return reduce_general<MinOf>(all, used, out);
    case Reduction::kL2Norm:
      return reduce_general<SumOfSquares>(all, used, out);
    case Reduction::kMean:
    case Reduction::kSum:
      return reduce_general<SumOf>(all, used, out);
  }
}

void FusedKernel(const FusedReduction& fused, std::span<const LeafSource> sources, const PageRun& run, int64_t used, float* out) {
  reduce_by(FusedRun{fused, sources, run}, used, out);
  finish(fused.reduction, used, int64_t{run.count} * fused.rows, out);
}

}  // namespace sluice::cpu::flows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu::flows {

HWY_EXPORT(FusedKernel);

void reduce_fused(const FusedReduction& fused, std::span<const LeafSource> sources, const PageRun& run, int64_t used,
                  float* out) {
  HWY_DYNAMIC_DISPATCH(FusedKernel)(fused, sources, run, used, out);
}

}  // namespace sluice::cpu::flows
#endif
