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

std::shared_ptr<const Plan> PlanCache::find(const std::string& flow) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const Entry& entry) { return entry.first == flow; });
  if (found == plans_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, found);
  return found->second;
}

std::shared_ptr<const Plan> PlanCache::get(const std::string& flow, const std::string& caller) {
  if (auto known = find(flow)) return known;
  const Turn turn(turns_, caller);
  if (auto known = find(flow)) return known;  // somebody made it meanwhile
  auto made = std::make_shared<const Plan>(make_(flow));
  const std::lock_guard lock(mutex_);
  plans_.emplace_front(flow, made);
  if (plans_.size() > kMostPlans) plans_.pop_back();
  return made;
}

}  // namespace sluice
