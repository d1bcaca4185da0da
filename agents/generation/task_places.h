#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace sluice {

/// How many tasks each caller has running or waiting. Any number of threads may use it.
class TaskPlaces {
 public:
  int of(const std::string& caller) const {
    const std::lock_guard lock(counts_->mutex);
    const auto found = counts_->of.find(caller);
    return found == counts_->of.end() ? 0 : found->second;
  }
  /// Counts one more, as long as the result lives.
  std::shared_ptr<void> take(const std::string& caller) {
    const std::lock_guard lock(counts_->mutex);
    ++counts_->of[caller];
    return {counts_.get(), [counts = counts_, caller](void*) {
              const std::lock_guard leaving(counts->mutex);
              const auto found = counts->of.find(caller);
              if (--found->second == 0) counts->of.erase(found);
            }};
  }

 private:
  struct Counts {
    std::mutex mutex;
    std::unordered_map<std::string, int> of;
  };
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace sluice
