#include "agents/evaluation/cascade.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <optional>
#include <utility>

#include "agents/evaluation/asked_questions.h"
#include "agents/evaluation/documents.h"
#include "agents/evaluation/entrant.h"
#include "agents/evaluation/flow_differences.h"
#include "agents/evaluation/lengths.h"
#include "agents/evaluation/load_source.h"
#include "agents/evaluation/memory_limit.h"
#include "agents/evaluation/score.h"
#include "agents/evaluation/speed_pairs.h"
#include "agents/evaluation/suite_work.h"
#include "agents/evaluation/task_scores.h"
#include "scripting/base/error.h"
#include "scripting/base/resource_error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Cascade {
 public:
  Cascade(const Suite& suite, Runner& runner, const TaskContext* context, const Seed& seed, Progress& progress)
      : suite_(suite), runner_(runner), context_(context), seed_(seed), progress_(progress), speed_pairs_(suite) {}

  Report run(const std::vector<Contestant>& contestants) {
    progress_.start(planned_work(suite_, contestants.size()));
    std::vector<FlowScript> scripts;
    for (const Contestant& contestant : contestants) scripts.push_back(contestant.script);
    progress_.show("verify", "", "");
    runner_.announce(scripts);
    for (const Contestant& contestant : contestants) admit(contestant);
    for (const SuiteStage& stage : suite_.stages) {
      if (!contestants.empty() && alive() == 0 && timed() == 0) break;
      run_stage(stage);
    }
    for (Entrant& entrant : entrants_) {
      if (entrant.alive && !entrant.judged && !suite_.stages.empty())
        entrant.stop(FlowStatus::kRuntimeError, kUnjudged, why_not_judged());
    }
    for (Entrant& entrant : entrants_) {
      if (entrant.timing_seconds > 0) entrant.came_to("speed", entrant.timing_seconds);
      entrant.conclude_speed();
    }
    progress_.finish();
    report_.suite = suite_.name;
    report_.times_first_token = suite_.reuse.has_value();
    if (suite_.reuse) {
      report_.notes.push_back(fmt::format(
          "documents are copied, in segments of up to about {} tokens, from where they stood in another order; pages are "
          "rows of prompts that are computed",
          suite_.reuse->segment));
    }
    if (context_ != nullptr) report_.dialect = context_->english() ? "english" : "mini";
    report_.seed = seed_.hex();
    leave_out_alike();
    report_.dense_mean = mean_of_tasks(report_.dense);
    for (Entrant& entrant : entrants_) {
      entrant.report.mean = mean_of_tasks(entrant.report.tasks);
      entrant.report.lengths =
          results_by_length(entrant.report.tasks, entrant.report.speed ? entrant.report.speed->tasks : std::vector<TaskSpeed>());
      entrant.report.score = suite_.reuse ? accuracy_score(entrant.report) : score_of(entrant.report, report_.dialect);
      report_.flows.push_back(std::move(entrant.report));
    }
    report_.differences = differences_between(report_.flows);
    report_.seconds = seconds_since(started_);
    return std::move(report_);
  }

 private:
  size_t alive() const {
    return std::count_if(entrants_.begin(), entrants_.end(), [](const Entrant& entrant) { return entrant.alive; });
  }

  /// Flows whose speed is measured, judged or not: the table shows what was bought with the accuracy.
  size_t timed() const {
    if (suite_.speed_pairs == 0) return 0;
    return std::count_if(entrants_.begin(), entrants_.end(), [](const Entrant& entrant) { return entrant.is_timed(); });
  }

  static std::string title_of(const SuiteTask& task) {
    return task.is_problem_set() ? task.task : fmt::format("{} {}", task.task, task.tokens);
  }

  void admit(const Contestant& contestant) {
    Entrant entrant;
    entrant.report.name = contestant.name;
    entrant.report.path = contestant.script.file;
    const auto started = Clock::now();
    const auto reject = [&](const InputError& error) {
      entrant.report = rejected(contestant, error);
      entrant.alive = false;
    };
    entrant.attempt("verify", [&] {
      try {
        progress_.show("verify", "", contestant.name);
        entrant.candidate = runner_.prepare(contestant.script);
        const Plan& plan = entrant.candidate->plan;
        const std::vector<const Plan*> programs = plan.programs();
        const bool has_pattern =
            std::any_of(programs.begin(), programs.end(), [](const Plan* each) { return !each->graph.patterns.empty(); });
        if (has_pattern) entrant.report.prefill = plan.bounds_prompts() ? "pattern" : "dense";
      } catch (const InputError& error) {
        reject(error);
      } catch (const std::bad_alloc&) {
        reject(InputError(memory_ran_out()));
      }
    });
    entrant.came_to("verify", seconds_since(started));
    if (entrant.alive && !suite_.only_asks) check_numerically(entrant);
    if (entrant.alive && !suite_.only_asks) judge_on_traces(entrant, contestant.script);
    entrants_.push_back(std::move(entrant));
  }

  void check_numerically(Entrant& entrant) {
    progress_.show("numerical", "", entrant.report.name);
    const auto started = Clock::now();
    entrant.attempt("numerical", [&] {
      if (const auto difference = runner_.check_numerically(*entrant.candidate)) {
        entrant.stop(FlowStatus::kIncorrectNumerical, "numerical", *difference);
        entrant.candidate.reset();
      }
    });
    entrant.came_to("numerical", seconds_since(started));
  }

  /// The attention of another model, which may have a shape that the flow was not written for: that is no fault of the flow.
  void judge_on_traces(Entrant& entrant, const FlowScript& script) {
    progress_.show("traces", "", entrant.report.name);
    const auto started = Clock::now();
    entrant.attempt("traces", [&] {
      try {
        entrant.report.traces = runner_.judge_on_traces(script, *entrant.candidate);
      } catch (const DeviceMemoryError& error) {
        throw ResourceError(fmt::format("no memory is left for traces: {}", error.what()));
      } catch (const InputError& error) {
        // Where a model is asked, too, it is judged by that.
        if (context_ == nullptr) {
          entrant.stop(FlowStatus::kRejectedStatic, "traces", error.what());
          entrant.report.hint = error.hint();
          return;
        }
        entrant.report.untraced = error.what();
        entrant.report.untraced_hint = error.hint();
      }
    });
    if (entrant.report.traces || !entrant.report.untraced.empty()) entrant.came_to("traces", seconds_since(started));
  }

  void run_stage(const SuiteStage& stage) {
    const size_t first = report_.dense.size();
    const auto started = Clock::now();
    std::vector<Entrant*> taking_part;
    for (Entrant& entrant : entrants_) {
      if (entrant.alive) taking_part.push_back(&entrant);
    }
    for (const SuiteTask& task : stage.tasks) {
      try {
        run_task(stage, task);
      } catch (const std::exception& error) {
        if (is_lack(error)) throw;
        keep_error(fmt::format("{}, {}: {}", stage.name, title_of(task), error.what()));
      }
    }
    for (Entrant* entrant : taking_part) entrant->came_to(stage.name, seconds_since(started));
    if (report_.dense.size() > first) judge(stage, first);
  }

  /// Leaves tasks out of means that all flows answer alike, document by document, as long as others are left: they tell nothing
  /// of which flow is better. Two flows may well be alike.
  void leave_out_alike() {
    constexpr size_t kLeastFlows = 3;
    std::vector<std::vector<TaskResult*>> alike;
    bool others = false;
    for (TaskResult& by_dense : report_.dense) {
      if (!by_dense.counted) continue;
      std::vector<TaskResult*> results = {&by_dense};
      for (Entrant& entrant : entrants_) {
        for (TaskResult& result : entrant.report.tasks) {
          if (result.is_of_same(by_dense)) results.push_back(&result);
        }
      }
      const auto as_first = [&](const TaskResult* result) { return result->clusters == results.at(1)->clusters; };
      const bool tells = by_dense.loss || by_dense.is_problem_set() || results.size() <= kLeastFlows ||
                         !std::all_of(results.begin() + 1, results.end(), as_first);
      others = others || tells;
      if (!tells) alike.push_back(std::move(results));
    }
    if (!others) return;
    for (const std::vector<TaskResult*>& results : alike) {
      for (TaskResult* result : results) result->counted = false;
      report_.notes.push_back(
          fmt::format("{} {}: all flows answer alike; left out of means", results.front()->task, results.front()->tokens));
    }
  }

  std::string why_not_judged() const {
    const std::vector<std::string>& reasons = report_.errors.empty() ? report_.notes : report_.errors;
    return reasons.empty() ? "no stage judged it" : fmt::format("no stage judged it: {}", reasons.front());
  }

  /// To be called while the exception is handled.
  void keep_error(std::string message) {
    report_.errors.push_back(std::move(message));
    if (!report_.failure) report_.failure = std::current_exception();
  }

  /// `first` is the stage's first result, of dense attention and of every flow that is still in.
  void judge(const SuiteStage& stage, size_t first) {
    constexpr double kRounding = 1e-9;
    const std::optional<double> dense = mean_share(report_.dense, first);
    if (dense.value_or(0) == 0 && alive() > 0) {
      report_.notes.push_back(
          fmt::format("{}: dense attention answers {} here; not judged", stage.name, dense ? "nothing" : "too little"));
      return;
    }
    for (Entrant& entrant : entrants_) {
      if (!entrant.alive) continue;
      entrant.judged = true;
      const double mean = mean_share(entrant.report.tasks, first).value_or(0);
      if (mean < stage.threshold * *dense - kRounding) {
        entrant.stop(
            FlowStatus::kBelowThreshold, stage.name,
            fmt::format("a share of {:.2f} right where dense attention has {:.2f}; at least {:.0f}% of that is needed to go on",
                        mean, *dense, 100 * stage.threshold));
      }
    }
  }

  /// Where nobody is left to be judged, questions are asked only to time them.
  bool only_times() const { return alive() == 0 && !entrants_.empty(); }

  void run_task(const SuiteStage& stage, const SuiteTask& task) {
    const bool only_times = this->only_times();
    for (Entrant& entrant : entrants_) entrant.timed_parts.clear();  // of a task that came to no end
    pending_questions_.clear();
    const bool is_timed = task.is_timed && timed() > 0;
    if (const TaskResult* const shorter = is_timed ? nullptr : failed_shorter(task)) {
      report_.notes.push_back(fmt::format("{}: not asked, since dense attention answers {:.0f}% at {} tokens", title_of(task),
                                          100 * shorter->accuracy, shorter->tokens));
      return progress_.shrink(prefill_work(task) + static_cast<double>(entrants_.size() + 1) * decode_work(task));
    }
    Scores dense;
    std::vector<Scores> flows(entrants_.size());
    DocumentBatches batches(task, *context_, seed_, runner_.batch_size(task.tokens));
    for (const int of_batch : pairs_of_batches(task, batches.count())) {
      const std::vector<JobDocument> documents = batches.next();
      if (!only_times || of_batch > 0) answer(stage, task, documents, dense, flows, of_batch);
    }
    for (Entrant& entrant : entrants_) entrant.conclude_timing(stage, task);
    progress_.advance(static_cast<double>(timed()) * speed_work(suite_, task));
    if (only_times) return progress_.shrink(prefill_work(task) + static_cast<double>(entrants_.size() + 1) * decode_work(task));
    std::move(pending_questions_.begin(), pending_questions_.end(), std::back_inserter(report_.questions));
    report_.dense.push_back(summarise(stage, task, dense, dense));
    TaskResult& by_dense = report_.dense.back();
    by_dense.counted = task.is_problem_set() || by_dense.accuracy >= suite_.least_dense;
    if (!by_dense.counted) {
      report_.notes.push_back(
          fmt::format("{}: dense attention answers {:.0f}%; left out of means", title_of(task), 100 * by_dense.accuracy));
    }
    for (size_t i = 0; i < entrants_.size(); ++i) {
      if (!entrants_[i].alive) continue;
      entrants_[i].report.tasks.push_back(summarise(stage, task, flows[i], dense));
      entrants_[i].report.tasks.back().counted = by_dense.counted;
    }
    progress_.advance(prefill_work(task) + static_cast<double>(alive() + 1) * decode_work(task));
    progress_.shrink(static_cast<double>(entrants_.size() - alive()) * decode_work(task));
  }

  /// Where dense attention has answered too little of the same task at fewer tokens: more would only cost time.
  const TaskResult* failed_shorter(const SuiteTask& task) const {
    const auto found = std::find_if(report_.dense.begin(), report_.dense.end(), [&](const TaskResult& result) {
      return result.task == task.task && result.tokens < task.tokens && !result.counted;
    });
    return found == report_.dense.end() ? nullptr : &*found;
  }

  void answer(const SuiteStage& stage, const SuiteTask& task, const std::vector<JobDocument>& documents, Scores& dense,
              std::vector<Scores>& flows, int pairs) {
    const std::string title = title_of(task);
    progress_.show(stage.name, title, "prefill");
    const auto batch = runner_.prefill(documents);
    progress_.show(stage.name, title, "dense");
    const std::vector<Generation> by_dense = runner_.decode(*batch, nullptr);
    append_scores(dense, documents, by_dense);
    std::vector<std::optional<std::vector<Generation>>> by_flow(entrants_.size());
    for (size_t i = 0; i < entrants_.size(); ++i) {
      Entrant& entrant = entrants_[i];
      if (!entrant.alive) continue;
      progress_.show(stage.name, title, entrant.report.name);
      entrant.attempt(stage.name, [&] {
        by_flow[i] = runner_.decode(*batch, &entrant.candidate->plan);
        append_scores(flows[i], documents, *by_flow[i]);
      });
    }
    if (suite_.keeps_answers) keep_answers(task, documents, by_dense, by_flow);
    for (size_t i = 0; i < entrants_.size() && pairs > 0; ++i) {
      Entrant& entrant = entrants_[i];
      if (entrant.is_timed()) time(entrant, task, *batch, {by_dense, by_flow[i] ? &*by_flow[i] : nullptr}, pairs);
    }
  }

  void keep_answers(const SuiteTask& task, const std::vector<JobDocument>& documents, const std::vector<Generation>& by_dense,
                    const std::vector<std::optional<std::vector<Generation>>>& by_flow) {
    std::vector<Answerer> answerers = {{"", &by_dense}};
    for (size_t i = 0; i < entrants_.size(); ++i) {
      if (by_flow[i]) answerers.push_back({entrants_[i].report.name, &*by_flow[i]});
    }
    append_questions(pending_questions_, task, documents, answerers);
  }

  /// How many pairs are timed of each batch of a task.
  std::vector<int> pairs_of_batches(const SuiteTask& task, size_t count) {
    return timed() == 0 || !task.is_timed ? std::vector<int>(count, 0) : speed_pairs_.of_batches(count, only_times());
  }

  /// Seconds that a flow may wait for quiet before it is timed. One that had it where it was timed last does not look again. One
  /// look is free; beyond that all flows together wait for half the time that the run has worked, at most.
  double patience_for(const Entrant& entrant) const {
    if (entrant.had_quiet) return 0;
    const double worked = seconds_since(started_) - waited_;
    const double allowed = std::max(worked / 2 - waited_, entrant.waited == 0 ? kOneLook : 0);
    return std::min(suite_.speed_patience - entrant.waited, allowed);
  }

  void time(Entrant& entrant, const SuiteTask& task, const PrefilledBatch& batch, const Answers& answers, int pairs) {
    const auto started = Clock::now();
    progress_.show("speed", title_of(task), entrant.report.name);
    const bool is_first = entrant.timed.empty() && entrant.timed_parts.empty();
    entrant.attempt("speed", [&] {
      try {
        const SpeedOptions options{suite_.speed_batch, pairs, is_first ? 2 : 1, patience_for(entrant)};
        entrant.timed_parts.push_back(runner_.measure(batch, entrant.candidate->plan, answers, options));
        const TimingConditions& conditions = entrant.timed_parts.back().conditions;
        entrant.had_quiet = conditions.had_quiet().value_or(true);
        entrant.waited += conditions.waited;
        waited_ += conditions.waited;
      } catch (const InputError& error) {
        entrant.leave_untimed(error);
      }
    });
    entrant.timing_seconds += seconds_since(started);
  }

  const Suite& suite_;
  Runner& runner_;
  const TaskContext* context_;  // null: there are no tasks
  const Seed& seed_;
  Progress& progress_;
  SpeedPairs speed_pairs_;
  const Clock::time_point started_ = Clock::now();
  double waited_ = 0;                             // seconds, for quiet
  std::vector<AskedQuestion> pending_questions_;  // of a task that has not come to its end
  std::vector<Entrant> entrants_;
  Report report_;
};

}  // namespace

FlowReport rejected(const Contestant& contestant, const InputError& error) {
  FlowReport report;
  report.name = contestant.name;
  report.path = contestant.script.file;
  report.status = FlowStatus::kRejectedStatic;
  report.stage = "verify";
  report.message = error.what();
  report.hint = error.hint();
  return report;
}

Report run_cascade(const Suite& suite, const std::vector<Contestant>& contestants, Runner& runner, const TaskContext& context,
                   const Seed& seed, Progress& progress) {
  return Cascade(suite, runner, &context, seed, progress).run(contestants);
}

Report run_cascade_on_traces(const std::vector<Contestant>& contestants, Runner& runner, const Seed& seed, Progress& progress) {
  Suite suite;
  suite.name = kTracesAlone;
  suite.speed_pairs = 0;
  return Cascade(suite, runner, nullptr, seed, progress).run(contestants);
}

}  // namespace sluice
