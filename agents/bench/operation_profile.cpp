#include "agents/bench/operation_profile.h"

#include <utility>

namespace sluice {

void OperationProfile::start() {
  device_.synchronize();
  totals_.clear();
  device_.observe(this);
}

OperationProfile::Totals OperationProfile::stop() {
  device_.observe(nullptr);
  return std::exchange(totals_, {});
}

void OperationProfile::begin() { begun_ = std::chrono::steady_clock::now(); }

void OperationProfile::end(const std::string& name) {
  device_.synchronize();
  Total& total = totals_[name];
  ++total.calls;
  total.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
}

}  // namespace sluice
