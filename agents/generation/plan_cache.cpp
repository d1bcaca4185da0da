#include "agents/generation/plan_cache.h"

#include <algorithm>

#include "agents/http/http_problem.h"

namespace sluice {
namespace {

constexpr size_t kMostPlans = 32;
constexpr const char* kRefusal = "too many flows are prepared at once; try again in a moment";

Turns::Limits limits(std::chrono::milliseconds patience) {
  return {.most = 2, .line = 64, .patience = patience, .leaves_room = false, .frees_much = true};
}

}  // namespace

PlanCache::PlanCache(std::function<Plan(const std::string& flow)> make, std::chrono::milliseconds patience)
    : make_(std::move(make)), patience_(patience), turns_(limits(patience), kRefusal) {}

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

std::shared_ptr<const Plan> PlanCache::wait_for(const std::string& flow, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  const bool ended = made_.wait_until(lock, deadline, [&] { return !making_.contains(flow); });
  --waiting_;
  if (!ended) throw HttpProblem(503, kRefusal).with_header("Retry-After", "1");
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
  const Clock::time_point deadline = Clock::now() + patience_;
  while (true) {
    if (auto known = wait_for(flow, deadline)) return known;
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
