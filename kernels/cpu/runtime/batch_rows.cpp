#include "kernels/cpu/runtime/batch_rows.h"

#include <algorithm>

#include "kernels/device/checks.h"

namespace sluice::cpu {

void BatchRows::reserve(const Device::Limits& limits) {
  most_rows_ = std::max(most_rows_, static_cast<size_t>(limits.rows));
  sequences_.reserve(most_rows_);
  touched_.resize(std::max<size_t>(touched_.size(), 1));
  // A row touches one page.
  for (std::vector<TouchedPage>& touched : touched_) touched.reserve(most_rows_);
}

void BatchRows::begin(const PassBatch& batch, CpuPool& pool) {
  if (active()) throw InternalError("begin_pass was called within a pass");
  require_batch(batch, pool);
  batch_ = batch;
  pool_ = &pool;
  ++number_;
  sequences_.clear();
  for (int s = 0; s < batch.sequences(); ++s) sequences_.insert(sequences_.end(), static_cast<size_t>(query_rows(s)), s);
  if (touched_.size() < batch.groups.size()) {
    touched_.resize(batch.groups.size());
    for (std::vector<TouchedPage>& touched : touched_) touched.reserve(most_rows_);
  }
  for (size_t g = 0; g < batch.groups.size(); ++g) {
    if (batch.groups[g].is_used()) touch(static_cast<int>(g));
  }
}

void BatchRows::touch(int group) {
  std::vector<TouchedPage>& touched = touched_[static_cast<size_t>(group)];
  touched.clear();
  const GroupPages& kept = this->group(group);
  const int page = pool_->layout(group).page;
  for (int s = 0; s < batch_.sequences(); ++s) {
    int last = -1;
    for (int row = batch_.query_indptr[s]; row < batch_.query_indptr[s + 1]; ++row) {
      const int index = kept.slots[row] / page;
      if (index == last) continue;
      last = index;
      touched.push_back({kept.page_indices[kept.page_indptr[s] + index], std::min(page, kept.lengths[s] - index * page)});
    }
  }
}

}  // namespace sluice::cpu
