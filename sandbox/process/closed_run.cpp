#include "sandbox/process/closed_run.h"

#include <fmt/format.h>

#include "sandbox/process/child.h"
#include "scripting/base/resource_error.h"

namespace sluice {

ClosedRun run_closed(std::string_view request, const ClosedRunLimits& limits) {
  constexpr double kStartSeconds =
      20;  // starting takes milliseconds; on a machine so busy that it takes seconds nobody is at fault
  std::vector<std::string> words = limits.command;
  for (std::string& word : child_arguments({limits.memory, limits.cpu_seconds})) words.push_back(std::move(word));
  ClosedRun run;
  run.outcome = run_child({words, request, kStartSeconds, limits.seconds, limits.most_answer});
  // Nothing of the request has been read before the greeting: what goes wrong until then is not its fault.
  std::string_view rest = run.outcome.output;
  try {
    run.greeting = take_greeting(rest);
  } catch (const InputError&) {
    throw ResourceError(fmt::format("sandbox: the child {} did not start{}", limits.command.front(),
                                    run.outcome.end == ChildOutcome::End::kOutOfTime ? " in time" : ""));
  }
  if (!run.greeting.problem.empty()) throw InternalError("sandbox: it cannot be entered: " + run.greeting.problem);
  if (!run.greeting.layers.seccomp) throw InternalError("sandbox: the child runs without seccomp");
  run.answer_at = run.outcome.output.size() - rest.size();
  return run;
}

}  // namespace sluice
