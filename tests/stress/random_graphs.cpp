// Sends random graphs through all that happens to a flow before it runs (tests/evaluation/graph_trial.h), and names the seeds of
// those that take too long or bring about what no flow may. `./dev test` does the same with 200. From the root of the repository:
//   ninja -C build stress_graphs && build/tests/stress_graphs --count 10000
//   build/tests/stress_graphs --first 4711 --count 1 --print
// With --scripts it writes them as Lua instead, for a model's heads, which tests/stress/flows.py sends through the program.

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "scripting/graph/text.h"
#include "tests/evaluation/graph_trial.h"
#include "tests/support/flow_script.h"
#include "tests/support/hostile_flow.h"
#include "tests/support/random_flow.h"

namespace {

using namespace sluice;

constexpr const char* kUsage =
    "usage: stress_graphs [--first SEED] [--count N] [--seconds S] [--judged NUMBERS] [--plain] [--print]\n"
    "  --seconds S       most that a stage may take (2); the program ends where one takes thirty times as long\n"
    "  --judged NUMBERS  compare those with the reference for which that takes about so many numbers (2e7)\n"
    "  --plain           graphs of tests/support/random_flow.h in place of hostile ones\n"
    "  --print           the graphs\n"
    "  --scripts FOLDER  write hostile ones as SEED.lua, and do nothing else\n";

struct Options {
  uint64_t first = 0;
  uint64_t count = 1000;
  double seconds = 2;
  double judged = 2e7;
  bool plain = false;
  bool print = false;
  std::filesystem::path scripts;
};

[[noreturn]] void refuse(const std::string& what) {
  fmt::print(stderr, "{}\n{}", what, kUsage);
  std::exit(1);
}

Options options_from(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) refuse(name + " wants a number");
      return std::strtod(argv[++i], nullptr);
    };
    if (name == "--first") {
      options.first = static_cast<uint64_t>(value());
    } else if (name == "--count") {
      options.count = static_cast<uint64_t>(value());
    } else if (name == "--seconds") {
      options.seconds = value();
    } else if (name == "--judged") {
      options.judged = value();
    } else if (name == "--plain") {
      options.plain = true;
    } else if (name == "--scripts" && i + 1 < argc) {
      options.scripts = argv[++i];
    } else if (name == "--print") {
      options.print = true;
    } else {
      refuse("no option is called " + name);
    }
  }
  return options;
}

/// Ends the program, with the seed, where a stage does not end.
class Watchdog {
 public:
  explicit Watchdog(double seconds) : seconds_(seconds), thread_([this] { run(); }) {}
  ~Watchdog() {
    done_ = true;
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void begin(uint64_t seed, const std::string& stage) {
    const std::lock_guard lock(mutex_);
    what_ = fmt::format("seed {}: {}", seed, stage);
    start_ = std::chrono::steady_clock::now();
  }

 private:
  void run() {
    while (!done_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      const std::lock_guard lock(mutex_);
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() < seconds_) continue;
      fmt::print("{}: does not end\n", what_);
      std::fflush(stdout);
      std::_Exit(1);
    }
  }

  double seconds_;
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  std::string what_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::thread thread_;
};

/// The dearest of each stage.
struct Dearest {
  double seconds = 0;
  uint64_t slow_seed = 0;
  size_t bytes = 0;
  uint64_t large_seed = 0;
  uint64_t runs = 0;
};

constexpr Geometry kMini = {.head_dim = 64, .group = 4, .page = 16, .kv = DataType::kBF16};  // host/models/mini

/// As many as are asked for; graphs whose script is longer than a script may be are left out.
int write_scripts(const Options& options) {
  constexpr size_t kMostBytes = 65536;
  std::filesystem::create_directories(options.scripts);
  uint64_t seed = options.first;
  for (uint64_t written = 0; written < options.count; ++seed) {
    const std::string script = testing::script_of(testing::hostile_flow(seed, &kMini));
    if (script.size() > kMostBytes) continue;
    ++written;
    std::ofstream file(options.scripts / fmt::format("{}.lua", seed));
    file << script;
    if (!file.flush()) refuse("cannot write to " + options.scripts.string());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = options_from(argc, argv);
  if (!options.scripts.empty()) return write_scripts(options);
  Watchdog watchdog(30 * options.seconds);
  std::map<std::string, Dearest> stages;
  uint64_t refused = 0;
  uint64_t faults = 0;
  for (uint64_t seed = options.first; seed < options.first + options.count; ++seed) {
    watchdog.begin(seed, "generator");
    const FlowGraph graph = options.plain ? testing::random_flow(seed) : testing::hostile_flow(seed);
    if (options.print) fmt::print("{}", to_text(graph));
    const test::Trial trial = test::try_graph(
        graph, {.most_judged = options.judged, .begin = [&](const std::string& stage) { watchdog.begin(seed, stage); }});
    if (!trial.fault.empty()) fmt::print("seed {}: {}\n", seed, trial.fault);
    if (!trial.refused.empty() && options.print) fmt::print("refused: {}\n", trial.refused);
    faults += trial.fault.empty() ? 0 : 1;
    refused += trial.refused.empty() ? 0 : 1;
    for (const test::TrialStage& stage : trial.stages) {
      Dearest& dearest = stages[stage.name];
      ++dearest.runs;
      if (stage.seconds > dearest.seconds) std::tie(dearest.seconds, dearest.slow_seed) = std::pair(stage.seconds, seed);
      if (stage.bytes > dearest.bytes) std::tie(dearest.bytes, dearest.large_seed) = std::pair(stage.bytes, seed);
      if (stage.seconds <= options.seconds) continue;
      fmt::print("seed {}: {} took {:.1f} s\n", seed, stage.name, stage.seconds);
      ++faults;
    }
    std::fflush(stdout);
  }
  fmt::print("{} graphs, {} refused, {} faults\n", options.count, refused, faults);
  for (const auto& [name, dearest] : stages) {
    fmt::print("  {:<10} {:>6} times, at most {:.3f} s (seed {}) and {} bytes (seed {})\n", name, dearest.runs, dearest.seconds,
               dearest.slow_seed, dearest.bytes, dearest.large_seed);
  }
  return faults == 0 ? 0 : 1;
}
