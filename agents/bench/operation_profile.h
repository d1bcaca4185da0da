#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "kernels/device.h"

namespace sluice {

/// Where the time of a device goes, operation by operation. While a profile is taken each operation is waited for, so that times
/// include a synchronisation each, and nothing is replayed: a pass takes longer than without.
class OperationProfile final : public OperationObserver {
 public:
  struct Total {
    int64_t calls = 0;
    double seconds = 0;
  };
  using Totals = std::map<std::string, Total>;

  /// `device` must outlive the profile.
  explicit OperationProfile(Device& device) : device_(device) {}
  ~OperationProfile() override { device_.observe(nullptr); }
  OperationProfile(const OperationProfile&) = delete;
  OperationProfile& operator=(const OperationProfile&) = delete;

  Device& device() const { return device_; }
  void start();
  /// What `start` began, by the operations' names.
  Totals stop();

  void begin() override;
  void end(const std::string& name) override;

 private:
  Device& device_;
  Totals totals_;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace sluice
