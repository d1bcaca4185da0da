#include "sandbox/sandboxed_solve.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sandbox/process/closed_run.h"
#include "sandbox/wire/pattern_wire.h"
#include "scripting/base/resource_error.h"

namespace sluice {
namespace {

using Solution = std::shared_ptr<const PatternSolution>;

/// Solutions of the last patterns that were asked for, by the request for one.
class SolutionMemory {
 public:
  std::optional<Solution> find(const std::string& request) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(request);
    if (found == places_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->solution;
  }
  /// `bytes`: of the encoded solution.
  void keep(const std::string& request, const Solution& solution, size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (places_.contains(request)) return;
    constexpr size_t kEntry = 512;  // about what an entry takes itself, and a solution several times what it is encoded in
    entries_.push_front({request, solution, kEntry + 4 * bytes + 2 * request.size()});
    places_[request] = entries_.begin();
    bytes_ += entries_.front().bytes;
    while (bytes_ > kMostBytes && entries_.size() > 1) {
      bytes_ -= entries_.back().bytes;
      places_.erase(entries_.back().request);
      entries_.pop_back();
    }
  }

 private:
  static constexpr size_t kMostBytes = size_t{64} << 20;
  struct Entry {
    std::string request;
    Solution solution;
    size_t bytes;
  };

  std::mutex mutex_;
  std::list<Entry> entries_;  // the last one that was asked for first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
  size_t bytes_ = 0;
};

SolutionMemory& memory() {
  static SolutionMemory memory;
  return memory;
}

/// Throws unless the library is to blame: it may crash, and take all the time and memory that it has.
void check_end(const ChildOutcome& outcome) {
  if (outcome.end == ChildOutcome::End::kOutOfTime) throw ResourceError("the machine is too busy to analyse a pattern");
  if (outcome.end == ChildOutcome::End::kTooMuchOutput || !WIFSIGNALED(outcome.status)) {
    if (WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) != 0)
      throw InternalError("sandbox: the process that analysed a pattern ended without an answer");
    return;
  }
  switch (WTERMSIG(outcome.status)) {
    case SIGSYS:
      throw InternalError("sandbox: the analysis of a pattern tried what it may not do");
    case SIGKILL:
      throw InternalError("sandbox: the process that analysed a pattern was killed from outside; is the machine out of memory?");
    default:
      return;
  }
}

/// What a process says of patterns from the first one on: of all, or up to one that it crashes on.
void ask(const SolveRequest& asked, Solutions& solutions, std::vector<size_t>& bytes) {
  constexpr size_t kMostAnswer = size_t{8} << 20;
  const ClosedRun run = run_closed(encode(asked), {.seconds = 30,  // of a machine so busy that a second of work takes as long
                                                   .cpu_seconds = 1,
                                                   .memory = size_t{256} << 20,
                                                   .most_answer = kMostAnswer,
                                                   .command = {"/proc/self/exe"}});
  check_end(run.outcome);
  WireReader reader(run.answer());
  for (size_t i = 0; i < asked.patterns.size(); ++i) {
    try {
      const std::string text = reader.text("a solution", kMostAnswer);
      solutions.push_back(decode_solution(text));
      bytes.push_back(text.size());
    } catch (const InputError& error) {
      if (run.outcome.end == ChildOutcome::End::kByItself && WIFEXITED(run.outcome.status))
        throw InternalError(std::string("sandbox: the process that analysed a pattern answered nonsense: ") + error.what());
      // A second is over for all of them, a crash for this one.
      const bool has_crashed = WIFSIGNALED(run.outcome.status) && WTERMSIG(run.outcome.status) != SIGXCPU;
      solutions.push_back(nullptr);
      bytes.push_back(0);
      if (has_crashed) return;
      solutions.resize(asked.patterns.size());
      bytes.resize(asked.patterns.size());
      return;
    }
  }
}

}  // namespace

Solutions solve_sandboxed(std::span<const Pattern> patterns, unsigned long operations) {
  Solutions solutions(patterns.size());
  std::vector<std::string> requests;
  std::vector<size_t> unknown;  // places
  for (const Pattern& each : patterns) {
    requests.push_back(encode(SolveRequest{{each}, operations}));
    if (std::optional<Solution> known = memory().find(requests.back())) {
      solutions[requests.size() - 1] = std::move(*known);
    } else {
      unknown.push_back(requests.size() - 1);
    }
  }
  constexpr int kMostProcesses = 4;  // those who crash it again and again get no more
  for (int process = 0; process < kMostProcesses && !unknown.empty(); ++process) {
    SolveRequest asked{{}, operations};
    for (const size_t place : std::span(unknown).first(std::min(unknown.size(), SolveRequest::kMostPatterns)))
      asked.patterns.push_back(patterns[place]);
    Solutions found;
    std::vector<size_t> bytes;
    ask(asked, found, bytes);
    for (size_t i = 0; i < found.size(); ++i) {
      solutions[unknown[i]] = found[i];
      memory().keep(requests[unknown[i]], found[i], bytes[i]);
    }
    unknown.erase(unknown.begin(), unknown.begin() + static_cast<std::ptrdiff_t>(found.size()));
  }
  return solutions;
}

}  // namespace sluice
