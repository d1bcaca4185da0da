#include "kernels/cpu/runtime/pass.h"

#include <algorithm>

#include "kernels/device/checks.h"

namespace sluice::cpu {
void Pass::reserve(const Device::Limits& limits) {
  positions_.reserve(limits.rows);
  sequences_.reserve(limits.rows);
  // A sequence's rows touch one page each at most.
  touched_.reserve(limits.rows);
}

void Pass::begin(const PassBatch& batch, CpuPool& pool) {
  if (active()) throw InternalError("begin_pass was called within a pass");
  batch_ = batch;
  pool_ = &pool;
  try {
    require_batch(batch, pool);
  } catch (...) {
    pool_ = nullptr;
    throw;
  }
  ++number_;
  positions_.clear();
  sequences_.clear();
  touched_.clear();
  const int page = pool.layout().page;
  for (int s = 0; s < batch.sequences(); ++s) {
    const int length = batch.lengths[s];
    const int first = length - query_rows(s);
    for (int position = first; position < length; ++position) {
      positions_.push_back(position);
      sequences_.push_back(s);
    }
    const auto held = pages(s);
    for (int index = first / page; index < static_cast<int>(held.size()); ++index) {
      touched_.push_back({held[index], std::min(page, length - index * page)});
    }
  }
}

}  // namespace sluice::cpu
