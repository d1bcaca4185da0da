#include "kernels/profile/kernel_profile.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <utility>

namespace sluice {
namespace {

struct Sums {
  int64_t calls = 0;
  uint64_t duration = 0;
  uint64_t exclusive = 0;
  uint64_t idle = 0;
};

/// Goes through a recording in the order of time.
class Sweep {
 public:
  explicit Sweep(uint64_t start) : now_(start) {}

  void begin(const DeviceActivity& activity) {
    advance(activity.start);
    Sums& sums = by_name_[activity.name];
    ++sums.calls;
    sums.duration += activity.end - activity.start;
    if (activity.start > now_) sums.idle += activity.start - now_;
    now_ = std::max(now_, activity.start);
    running_.push({activity.end, &sums});
  }
  /// Ends what ends before `time`.
  void advance(uint64_t time) {
    while (!running_.empty() && now_ < time) {
      const auto [end, sums] = running_.top();
      const uint64_t until = std::clamp(end, now_, time);
      sums->exclusive += until - now_;
      if (running_.size() > 1) overlap_ += until - now_;
      now_ = until;
      if (end <= time) running_.pop();
    }
  }
  uint64_t overlap() const { return overlap_; }
  const std::map<std::string, Sums>& by_name() const { return by_name_; }

 private:
  using Running = std::pair<uint64_t, Sums*>;  // until when, and whose

  uint64_t now_;
  uint64_t overlap_ = 0;
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
  std::map<std::string, Sums> by_name_;
};

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : symbol;
}

void replace_all(std::string& text, std::string_view part, std::string_view by) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + by.size())) {
    text.replace(at, part.size(), by);
  }
}

/// "void sluice::cuda::(anonymous namespace)::rms_norm<(int)4, __nv_bfloat16>(Arguments)" to "rms_norm<4, bf16>".
std::string without_noise(std::string name) {
  for (const char* part : {"(anonymous namespace)::", "sluice::cuda::", "sluice::", "(int)", "(bool)"}) {
    replace_all(name, part, "");
  }
  replace_all(name, "__nv_bfloat16", "bf16");
  name.resize(std::min(name.find('('), name.size()));
  const size_t result = name.find(' ');  // templates say what they return
  if (result < name.find('<')) name.erase(0, result + 1);
  return name;
}

/// The name of one of cuBLASLt's kernels without what all of them share; nothing for others.
std::string name_of_product(const std::string& symbol, std::string name) {
  constexpr std::array<std::string_view, 4> kBeginnings = {"nvjet_sm90_", "nvjet_", "sm90_xmma_gemm_", "cutlass_"};
  for (const std::string_view beginning : kBeginnings) {
    if (symbol.starts_with(beginning)) return symbol.substr(beginning.size());
  }
  constexpr std::string_view kNamespace = "cublasLt::";
  if (!name.starts_with(kNamespace)) return {};
  name.resize(std::min(name.find('<'), name.size()));
  return name.substr(kNamespace.size());
}

std::string cut(const std::string& text) {
  constexpr size_t kMost = 52;
  return text.size() <= kMost ? text : text.substr(0, kMost - 3) + "...";
}

}  // namespace

KernelProfile summarize(const DeviceRecording& recording, int steps) {
  std::vector<DeviceActivity> activities = recording.activities;
  std::sort(activities.begin(), activities.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  Sweep sweep(recording.start);
  for (const DeviceActivity& activity : activities) sweep.begin(activity);
  sweep.advance(std::max(recording.end, recording.start));

  const double us = 1e-3 / steps;
  KernelProfile profile;
  profile.step_us = static_cast<double>(recording.end - recording.start) * us;
  profile.overlap_us = static_cast<double>(sweep.overlap()) * us;
  for (const auto& [name, sums] : sweep.by_name()) {
    const auto calls = static_cast<double>(sums.calls);
    profile.rows.push_back({.name = name,
                            .calls = calls / steps,
                            .mean_us = static_cast<double>(sums.duration) / calls * 1e-3,
                            .exclusive_us = static_cast<double>(sums.exclusive) * us,
                            .idle_us = static_cast<double>(sums.idle) * us});
    profile.busy_us += profile.rows.back().exclusive_us;
  }
  profile.idle_us = profile.step_us - profile.busy_us;
  std::stable_sort(profile.rows.begin(), profile.rows.end(),
                   [](const auto& a, const auto& b) { return a.exclusive_us > b.exclusive_us; });
  return profile;
}

std::string short_kernel_name(const std::string& symbol, std::string_view flow) {
  const std::string name = without_noise(demangled(symbol));
  const std::string product = name_of_product(symbol, name);
  if (!product.empty()) return cut("cuBLASLt " + product);
  const bool generated = name == symbol && !flow.empty();
  return cut(generated ? fmt::format("{}: {}", flow, name) : name);
}

}  // namespace sluice
