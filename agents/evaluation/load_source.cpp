#include "agents/evaluation/load_source.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "scripting/base/control_groups.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

/// "" if it cannot be read.
std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<int> cores_of_this_process() {
  cpu_set_t mask;
  std::set<int> cores;
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.insert(core);
  }
  return cores;
}

/// The group with the lowest limit, if that is below `cores`.
std::optional<fs::path> limited_group(const fs::path& root, size_t cores) {
  std::optional<fs::path> found;
  auto least = static_cast<double>(cores);
  for (const ControlGroup& group : control_groups("cpu", root)) {
    const auto limit = group.version == 2 ? cores_of_group(text_of(group.folder / "cpu.max")) : std::nullopt;
    if (!limit || *limit >= least) continue;
    least = *limit;
    found = group.folder;
  }
  return found;
}

double seconds_of(const timeval& time) {
  constexpr double kMicrosecond = 1e-6;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * kMicrosecond;
}

/// Of all threads, those that have ended too.
double own_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

}  // namespace

LinuxLoad::LinuxLoad(fs::path root)
    : root_(std::move(root)), cores_(cores_of_this_process()), limited_(limited_group(root_, cores_.size())) {}

std::optional<ProcessorTime> LinuxLoad::read() {
  const auto on_cores = core_seconds(text_of(root_ / "proc/stat"), cores_, static_cast<double>(::sysconf(_SC_CLK_TCK)));
  if (!on_cores) return {};
  ProcessorTime time;
  time.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  time.own = own_seconds();
  time.cores = static_cast<int>(cores_.size());
  time.on_cores = *on_cores;
  if (!limited_) return time;
  const auto limit = cores_of_group(text_of(*limited_ / "cpu.max"));
  const auto used = seconds_of_group(text_of(*limited_ / "cpu.stat"));
  if (limit && used) time.group = {*limit, *used};
  return time;
}

void LinuxLoad::sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

double wait_for_quiet(LoadSource& source, double wanted, double patience) {
  double waited = 0;
  std::optional<ProcessorTime> before;
  if (patience >= kOneLook) before = source.read();
  while (before && waited + kOneLook <= patience) {
    source.sleep(kOneLook);
    const auto now = source.read();
    if (!now) break;
    const ProcessorTime look = between(*before, *now);
    waited += look.seconds;
    const auto others = load_of_others(look);
    if (!others || leave_idle(*others, wanted)) break;
    before = now;
  }
  return waited;
}

}  // namespace sluice
