#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sluice {

/// How many tasks each caller has, in the line or in an engine. Any number of threads may use it.
class TaskPlaces {
 public:
  int of(const std::string& caller) const {
    const std::lock_guard lock(counts_->mutex);
    const auto found = counts_->of.find(caller);
    return found == counts_->of.end() ? 0 : found->second;
  }
  /// Who has any.
  std::vector<std::string> callers() const {
    const std::lock_guard lock(counts_->mutex);
    std::vector<std::string> names;
    for (const auto& [name, count] : counts_->of) names.push_back(name);
    return names;
  }
  /// Counts one more, as long as the result lives.
  std::shared_ptr<void> take(const std::string& caller) {
    auto leave = [counts = counts_, caller](void*) {
      const std::lock_guard leaving(counts->mutex);
      const auto found = counts->of.find(caller);
      if (--found->second == 0) counts->of.erase(found);
    };
    {
      const std::lock_guard lock(counts_->mutex);
      ++counts_->of[caller];
    }
    // Without the lock: what cannot be made counts one less.
    return {counts_.get(), std::move(leave)};
  }

 private:
  struct Counts {
    std::mutex mutex;
    std::unordered_map<std::string, int> of;
  };
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace sluice
