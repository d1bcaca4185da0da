#pragma once

#include <filesystem>
#include <optional>
#include <set>

#include "agents/evaluation/processor_load.h"

namespace sluice {

/// Tells what processors have done so far, and lets time pass.
class LoadSource {
 public:
  virtual ~LoadSource() = default;
  /// Nothing where it is not known.
  virtual std::optional<ProcessorTime> read() = 0;
  virtual void sleep(double seconds) = 0;
};

/// By what Linux counts. The cores are those that this process may run on, as whoever is on others disturbs nobody. Where a
/// control group (version 2) allows less than these, who else is in it counts as well: others use up what the group may, while
/// the cores themselves are idle.
class LinuxLoad final : public LoadSource {
 public:
  /// `root` is where proc and sys/fs/cgroup are looked for.
  explicit LinuxLoad(std::filesystem::path root = "/");

  std::optional<ProcessorTime> read() override;
  void sleep(double seconds) override;

 private:
  std::filesystem::path root_;
  std::set<int> cores_;                           // empty: unknown
  std::optional<std::filesystem::path> limited_;  // the folder of the group that allows least
};

/// Waits until others leave `wanted` cores idle (leave_idle) in a tenth of a second, at most `patience` seconds. Returns how many
/// it waited: where all is quiet, that tenth; where nobody knows, or there is no patience for a look, none.
double wait_for_quiet(LoadSource& source, double wanted, double patience);
/// The least patience for which anything is looked at.
inline constexpr double kOneLook = 0.1;

}  // namespace sluice
