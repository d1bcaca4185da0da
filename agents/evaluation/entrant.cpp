#include "agents/evaluation/entrant.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "agents/evaluation/memory_limit.h"
#include "agents/evaluation/speed.h"
#include "scripting/base/resource_error.h"

namespace sluice {

void Entrant::attempt(const std::string& stage, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    fail(stage, memory_ran_out());
  } catch (const std::exception& error) {
    if (is_lack(error)) throw;
    fail(stage, error.what());
  }
}

void Entrant::stop(FlowStatus status, const std::string& stage, const std::string& message) {
  report.status = status;
  report.stage = stage;
  report.message = message;
  report.hint.clear();
  alive = false;
}

void Entrant::leave_untimed(const InputError& error) {
  timing = false;
  report.untimed = error.what();
  if (!report.message.empty()) return;
  report.stage = "speed";
  report.message = error.what();
  report.hint = error.hint();
}

void Entrant::fail(const std::string& stage, const std::string& message) {
  stop(FlowStatus::kRuntimeError, stage, message);
  candidate.reset();
}

void Entrant::conclude_timing(const SuiteStage& stage, const SuiteTask& task) {
  if (timed_parts.empty()) return;
  TaskSpeed speed = united(std::exchange(timed_parts, {}));
  speed.stage = stage.name;
  speed.task = task.task;
  if (!task.is_problem_set()) speed.tokens = speed.length = task.tokens;
  timed.push_back(std::move(speed));
}

void Entrant::conclude_speed() {
  constexpr double kSlack = 1.05;  // the rest of a step is not quite the same for both
  // On a GPU other companions in a batch may lead to another rounding, and that to another token.
  constexpr double kStrayed = 0.25;
  if (!is_timed() || timed.empty()) return;
  int strayed = 0;
  int compared = 0;
  for (const TaskSpeed& task : timed) {
    strayed += task.strayed;
    compared += task.compared;
  }
  if (strayed > kStrayed * compared) {
    return stop(FlowStatus::kIncorrectNumerical, "speed",
                fmt::format("{} of {} questions were answered otherwise where the clock looked than where answers were "
                            "scored: what is timed must be what is scored",
                            strayed, compared));
  }
  SpeedResult speed = speed_of(std::move(timed));
  if (speed.speedup.low <= kSlack * speed.limit) {
    report.speed = std::move(speed);
    return;
  }
  leave_untimed(
      InputError(fmt::format("{:.2f}x was measured, but no flow that reads {:.1f}% of the pages is more than {:.2f}x as "
                             "fast as dense attention: an error of measurement",
                             speed.speedup.ratio, 100 * speed.pages_read, speed.limit),
                 "evaluate it again on a machine that does nothing else"));
}

}  // namespace sluice
