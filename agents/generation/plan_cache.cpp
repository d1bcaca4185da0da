#include "agents/generation/plan_cache.h"

#include <algorithm>
#include <chrono>

namespace sluice {
namespace {

constexpr size_t kMostPlans = 32;
constexpr Turns::Limits kLimits{
    .most = 2, .line = 64, .patience = std::chrono::seconds(20), .leaves_room = false, .frees_much = true};

}  // namespace

PlanCache::PlanCache(std::function<Plan(const std::string& flow)> make)
    : make_(std::move(make)), turns_(kLimits, "too many flows are prepared at once; try again in a moment") {}

int PlanCache::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

std::shared_ptr<const Plan> PlanCache::find(const std::string& flow) {
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const Entry& entry) { return entry.first == flow; });
  if (found == plans_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, found);
  return found->second;
}

std::shared_ptr<const Plan> PlanCache::wait_for(const std::string& flow) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  made_.wait(lock, [&] { return !making_.contains(flow); });
  --waiting_;
  return find(flow);
}

bool PlanCache::begin(const std::string& flow) {
  const std::lock_guard lock(mutex_);
  return !find(flow) && making_.insert(flow).second;
}

void PlanCache::end(const std::string& flow, std::shared_ptr<const Plan> plan) {
  const std::lock_guard lock(mutex_);
  making_.erase(flow);
  made_.notify_all();
  if (!plan) return;
  plans_.emplace_front(flow, std::move(plan));
  if (plans_.size() > kMostPlans) plans_.pop_back();
}

std::shared_ptr<const Plan> PlanCache::get(const std::string& flow, const std::string& caller) {
  while (true) {
    if (auto known = wait_for(flow)) return known;
    const Turn turn(turns_, caller);
    if (!begin(flow)) continue;  // somebody was faster
    try {
      auto made = std::make_shared<const Plan>(make_(flow));
      end(flow, made);
      return made;
    } catch (...) {
      end(flow, nullptr);
      throw;
    }
  }
}

}  // namespace sluice
