#include "agents/evaluation/cascade.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <numeric>
#include <utility>

#include "agents/evaluation/documents.h"
#include "agents/evaluation/memory_limit.h"
#include "agents/evaluation/speed.h"
#include "agents/tasks/rng.h"
#include "agents/tasks/scoring.h"
#include "scripting/base/resource_error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Scores of one answerer, by document.
using Scores = std::vector<std::vector<Score>>;

struct Entrant {
  FlowReport report;
  std::optional<Candidate> candidate;  // empty: out before it ran, or by an error
  bool alive = false;                  // takes part in the next stage
  bool judged = false;                 // by a stage at least
  bool timing = true;                  // its speed is measured, as far as there is a candidate
  std::vector<TaskSpeed> timed;        // by task
  std::vector<TaskSpeed> timed_parts;  // by batch, of the task that runs
  double timing_seconds = 0;

  void came_to(const std::string& stage, double seconds) { report.stages.push_back({stage, seconds}); }
  void stop(FlowStatus status, const std::string& stage, const std::string& message, const std::string& hint = {}) {
    report.status = status;
    report.stage = stage;
    report.message = message;
    report.hint = hint;
    alive = false;
  }
  /// A speed that could not be measured, which says nothing about the flow's answers: its status stays.
  void leave_untimed(const InputError& error) {
    timing = false;
    report.untimed = error.what();
    if (!report.message.empty()) return;
    report.stage = "speed";
    report.message = error.what();
    report.hint = error.hint();
  }
  /// After an error at run time, not even the speed is of interest.
  void fail(const std::string& stage, const std::string& message) {
    stop(FlowStatus::kRuntimeError, stage, message);
    candidate.reset();
  }
};

std::vector<Cluster> clusters_of(const Scores& scores) {
  std::vector<Cluster> clusters;
  for (const auto& document : scores) {
    Cluster cluster{0, static_cast<int>(document.size())};
    for (const Score& score : document) cluster.successes += score.correct;
    clusters.push_back(cluster);
  }
  return clusters;
}

double accuracy_of(const std::vector<Cluster>& clusters) {
  double successes = 0;
  double samples = 0;
  for (const Cluster& cluster : clusters) {
    successes += cluster.successes;
    samples += cluster.samples;
  }
  return samples > 0 ? successes / samples : 0;
}

/// Mean accuracy of the results from `first` on, at least one.
double mean_accuracy(const std::vector<TaskResult>& results, size_t first) {
  double sum = 0;
  for (size_t i = first; i < results.size(); ++i) sum += results[i].accuracy;
  return sum / static_cast<double>(results.size() - first);
}

double mean_pass_at_k(const std::vector<Cluster>& clusters, int k) {
  double sum = 0;
  for (const Cluster& cluster : clusters) sum += pass_at_k(cluster.samples, cluster.successes, k);
  return clusters.empty() ? 0 : sum / static_cast<double>(clusters.size());
}

TaskResult summarise(const SuiteStage& stage, const SuiteTask& task, const Scores& flow, const Scores& dense) {
  TaskResult result;
  result.stage = stage.name;
  result.task = task.task;
  result.group = task.is_problem_set() ? task.task : find_task(task.task).group;
  result.tokens = task.is_problem_set() ? 0 : task.tokens;
  result.documents = static_cast<int>(flow.size());
  result.clusters = clusters_of(flow);
  result.dense_clusters = clusters_of(dense);
  result.accuracy = accuracy_of(result.clusters);
  result.interval = clustered_wilson(result.clusters);
  result.dense_accuracy = accuracy_of(result.dense_clusters);
  result.dense_interval = clustered_wilson(result.dense_clusters);
  std::vector<int> differences;
  for (size_t i = 0; i < flow.size(); ++i) {
    for (size_t j = 0; j < flow[i].size(); ++j) {
      ++result.samples;
      result.matched += flow[i][j].matched;
      result.lost += dense[i][j].correct && !flow[i][j].correct;
      result.gained += !dense[i][j].correct && flow[i][j].correct;
    }
    // Questions about one document share their luck, so documents are what the test counts.
    differences.push_back(result.dense_clusters[i].successes - result.clusters[i].successes);
  }
  result.matched /= std::max(1, result.samples);
  result.p_value = sign_flip(differences);
  if (task.is_problem_set()) {
    result.generations = task.generations;
    result.k = task.k;
    result.pass_at_k = mean_pass_at_k(result.clusters, task.k);
    result.dense_pass_at_k = mean_pass_at_k(result.dense_clusters, task.k);
  }
  return result;
}

void append_scores(Scores& scores, const std::vector<JobDocument>& documents, const std::vector<Generation>& generations) {
  size_t next = 0;
  for (const JobDocument& document : documents) {
    scores.emplace_back();
    for (const Job& job : document) {
      const Generation& generation = generations.at(next++);
      scores.back().push_back(score(job.sample, generation.text, generation.ended));
    }
  }
}

/// To be called while `error` is handled: what the machine lacks says nothing about a flow, and is thrown on.
void require_machine(const std::exception& error) {
  if (is_lack(error)) throw;
}

class Cascade {
 public:
  Cascade(const Suite& suite, Runner& runner, const TaskContext& context, const Seed& seed, Progress& progress)
      : suite_(suite), runner_(runner), context_(context), seed_(seed), progress_(progress) {}

  Report run(const std::vector<Contestant>& contestants) {
    const auto started = Clock::now();
    progress_.start(planned_work(contestants.size()));
    for (const Contestant& contestant : contestants) admit(contestant);
    for (const SuiteStage& stage : suite_.stages) {
      if (!contestants.empty() && alive() == 0 && timed() == 0) break;
      run_stage(stage);
    }
    for (Entrant& entrant : entrants_) {
      if (entrant.alive && !entrant.judged && !suite_.stages.empty())
        entrant.stop(FlowStatus::kRuntimeError, "suite", why_not_judged());
    }
    for (Entrant& entrant : entrants_) conclude_speed(entrant);
    progress_.finish();
    report_.suite = suite_.name;
    report_.dialect = context_.english() ? "english" : "mini";
    report_.seed = seed_.hex();
    for (Entrant& entrant : entrants_) report_.flows.push_back(std::move(entrant.report));
    report_.seconds = seconds_since(started);
    return std::move(report_);
  }

 private:
  size_t alive() const {
    return std::count_if(entrants_.begin(), entrants_.end(), [](const Entrant& entrant) { return entrant.alive; });
  }

  /// Flows whose speed is measured, judged or not: the table shows what was bought with the accuracy.
  size_t timed() const {
    if (suite_.speed_pairs == 0) return 0;
    return std::count_if(entrants_.begin(), entrants_.end(),
                         [](const Entrant& entrant) { return entrant.candidate && entrant.timing; });
  }

  static std::string title_of(const SuiteTask& task) {
    return task.is_problem_set() ? task.task : fmt::format("{} {}", task.task, task.tokens);
  }

  /// One unit: the tokens of a prompt prefilled, or decoded against by one answerer (about an eighth of that work).
  static double prefill_work(const SuiteTask& task) { return static_cast<double>(task.tokens) * task.samples / task.questions; }
  static double decode_work(const SuiteTask& task) { return static_cast<double>(task.tokens) * task.samples / 8; }
  double speed_work(const SuiteTask& task) const {
    return suite_.speed_pairs == 0 ? 0 : static_cast<double>(task.tokens) * suite_.speed_batch / 8;
  }

  double planned_work(size_t flows) const {
    double work = 0;
    for (const SuiteStage& stage : suite_.stages) {
      for (const SuiteTask& task : stage.tasks) {
        work += prefill_work(task) + static_cast<double>(flows + 1) * decode_work(task) +
                static_cast<double>(flows) * speed_work(task);
      }
    }
    return work;
  }

  void admit(const Contestant& contestant) {
    Entrant entrant;
    entrant.report.name = contestant.name;
    entrant.report.path = contestant.script.file;
    entrant.alive = true;
    const auto started = Clock::now();
    try {
      progress_.show("verify", "", contestant.name);
      entrant.candidate = runner_.prepare(contestant.script);
    } catch (const InputError& error) {
      entrant.report = rejected(contestant, error);
      entrant.alive = false;
    } catch (const std::bad_alloc&) {
      entrant.report = rejected(contestant, InputError(memory_ran_out()));
      entrant.alive = false;
    } catch (const std::exception& error) {
      require_machine(error);
      entrant.fail("verify", error.what());
    }
    entrant.came_to("verify", seconds_since(started));
    if (entrant.alive) check_numerically(entrant);
    entrants_.push_back(std::move(entrant));
  }

  void check_numerically(Entrant& entrant) {
    progress_.show("numerical", "", entrant.report.name);
    const auto started = Clock::now();
    try {
      if (const auto difference = runner_.check_numerically(*entrant.candidate)) {
        entrant.stop(FlowStatus::kIncorrectNumerical, "numerical", *difference);
        entrant.candidate.reset();
      }
    } catch (const std::bad_alloc&) {
      entrant.fail("numerical", memory_ran_out());
    } catch (const std::exception& error) {
      require_machine(error);
      entrant.fail("numerical", error.what());
    }
    entrant.came_to("numerical", seconds_since(started));
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
        require_machine(error);
        keep_error(fmt::format("{}, {}: {}", stage.name, title_of(task), error.what()));
      }
    }
    for (Entrant* entrant : taking_part) entrant->came_to(stage.name, seconds_since(started));
    if (report_.dense.size() > first) judge(stage, first);
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
    const double dense = mean_accuracy(report_.dense, first);
    if (dense == 0 && alive() > 0) {
      report_.notes.push_back(fmt::format("{}: dense attention answers nothing here; not judged", stage.name));
      return;
    }
    for (Entrant& entrant : entrants_) {
      if (!entrant.alive) continue;
      entrant.judged = true;
      const double mean = mean_accuracy(entrant.report.tasks, first);
      if (mean < stage.threshold * dense - kRounding) {
        entrant.stop(FlowStatus::kBelowThreshold, stage.name,
                     fmt::format("accuracy {:.2f} where dense attention has {:.2f}; at least {:.0f}% of that is needed to go on",
                                 mean, dense, 100 * stage.threshold));
      }
    }
  }

  /// Where nobody is left to be judged, questions are asked only to time them.
  bool only_times() const { return alive() == 0 && !entrants_.empty(); }

  void run_task(const SuiteStage& stage, const SuiteTask& task) {
    const bool only_times = this->only_times();
    for (Entrant& entrant : entrants_) entrant.timed_parts.clear();  // of a task that came to no end
    Scores dense;
    std::vector<Scores> flows(entrants_.size());
    DocumentBatches batches(task, context_, seed_, runner_.batch_size(task.tokens));
    const std::vector<int> pairs = pairs_of_batches(batches.count());
    for (const int of_batch : pairs) {
      const std::vector<JobDocument> documents = batches.next();
      if (!only_times || of_batch > 0) answer(stage, task, documents, dense, flows, of_batch);
    }
    conclude_timing(stage, task);
    progress_.advance(static_cast<double>(timed()) * speed_work(task));
    if (only_times) return progress_.shrink(prefill_work(task) + static_cast<double>(entrants_.size() + 1) * decode_work(task));
    report_.dense.push_back(summarise(stage, task, dense, dense));
    for (size_t i = 0; i < entrants_.size(); ++i) {
      if (entrants_[i].alive) entrants_[i].report.tasks.push_back(summarise(stage, task, flows[i], dense));
    }
    progress_.advance(prefill_work(task) + static_cast<double>(alive() + 1) * decode_work(task));
    progress_.shrink(static_cast<double>(entrants_.size() - alive()) * decode_work(task));
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
      try {
        by_flow[i] = runner_.decode(*batch, &entrant.candidate->plan);
        append_scores(flows[i], documents, *by_flow[i]);
      } catch (const std::bad_alloc&) {
        entrant.fail(stage.name, memory_ran_out());
      } catch (const std::exception& error) {
        require_machine(error);
        entrant.fail(stage.name, error.what());
      }
    }
    for (size_t i = 0; i < entrants_.size() && pairs > 0; ++i) {
      Entrant& entrant = entrants_[i];
      if (entrant.candidate && entrant.timing)
        time(entrant, task, *batch, {by_dense, by_flow[i] ? &*by_flow[i] : nullptr}, pairs);
    }
  }

  /// How many pairs are timed of each batch of a task. Which batches those are is chosen by chance, anew for every evaluation: a
  /// flow that knew the first documents of a problem set, or of a server's seed, could be fast in those alone.
  std::vector<int> pairs_of_batches(size_t count) {
    constexpr size_t kTimedBatches = 4;  // each costs engines of its own
    std::vector<int> pairs(count, 0);
    if (timed() == 0 || count == 0) return pairs;
    const size_t most = only_times() ? 1 : kTimedBatches;
    const auto all = static_cast<size_t>(pairs_of_a_task());
    std::vector<size_t> places(count);
    std::iota(places.begin(), places.end(), size_t{0});
    const std::vector<size_t> chosen = chance_.distinct(std::move(places), std::min({most, all, count}));
    for (size_t i = 0; i < all; ++i) ++pairs[chosen[i % chosen.size()]];
    return pairs;
  }

  int pairs_of_a_task() const {
    size_t tasks = 0;
    for (const SuiteStage& stage : suite_.stages) tasks += stage.tasks.size();
    const auto share = (static_cast<size_t>(suite_.speed_pairs) + tasks - 1) / std::max<size_t>(1, tasks);
    return static_cast<int>(std::max<size_t>(2, share));
  }

  void time(Entrant& entrant, const SuiteTask& task, const PrefilledBatch& batch, const Answers& answers, int pairs) {
    const auto started = Clock::now();
    progress_.show("speed", title_of(task), entrant.report.name);
    const bool is_first = entrant.timed.empty() && entrant.timed_parts.empty();
    try {
      entrant.timed_parts.push_back(
          runner_.measure(batch, entrant.candidate->plan, answers, {suite_.speed_batch, pairs, is_first ? 2 : 1}));
    } catch (const InputError& error) {
      entrant.leave_untimed(error);
    } catch (const std::bad_alloc&) {
      entrant.fail("speed", memory_ran_out());
    } catch (const std::exception& error) {
      require_machine(error);
      entrant.fail("speed", error.what());
    }
    entrant.timing_seconds += seconds_since(started);
  }

  void conclude_timing(const SuiteStage& stage, const SuiteTask& task) {
    for (Entrant& entrant : entrants_) {
      if (entrant.timed_parts.empty()) continue;
      TaskSpeed speed = united(std::exchange(entrant.timed_parts, {}));
      speed.stage = stage.name;
      speed.task = task.task;
      if (!task.is_problem_set()) speed.tokens = task.tokens;
      entrant.timed.push_back(std::move(speed));
    }
  }

  /// What is faster than the pages read allow was not measured rightly. What is answered otherwise where the clock looks was not
  /// scored.
  void conclude_speed(Entrant& entrant) {
    constexpr double kSlack = 1.05;  // the rest of a step is not quite the same for both
    constexpr double kStrayed =
        0.25;  // on a GPU other companions in a batch may lead to another rounding, and that to another token
    if (entrant.timing_seconds > 0) entrant.came_to("speed", entrant.timing_seconds);
    if (!entrant.candidate || !entrant.timing || entrant.timed.empty()) return;
    int strayed = 0;
    int compared = 0;
    for (const TaskSpeed& task : entrant.timed) {
      strayed += task.strayed;
      compared += task.compared;
    }
    if (strayed > kStrayed * compared) {
      return entrant.stop(FlowStatus::kIncorrectNumerical, "speed",
                          fmt::format("{} of {} questions were answered otherwise where the clock looked than where answers were "
                                      "scored: what is timed must be what is scored",
                                      strayed, compared));
    }
    SpeedResult speed = speed_of(std::move(entrant.timed));
    if (speed.speedup.low <= kSlack * speed.limit) {
      entrant.report.speed = std::move(speed);
      return;
    }
    entrant.leave_untimed(
        InputError(fmt::format("{:.2f}x was measured, but no flow that reads {:.1f}% of the pages is more than {:.2f}x as "
                               "fast as dense attention: an error of measurement",
                               speed.speedup.ratio, 100 * speed.pages_read, speed.limit),
                   "evaluate it again on a machine that does nothing else"));
  }

  const Suite& suite_;
  Runner& runner_;
  const TaskContext& context_;
  const Seed& seed_;
  Progress& progress_;
  Rng chance_ = Rng(Seed::secret(), "timed batches");
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
  return Cascade(suite, runner, context, seed, progress).run(contestants);
}

}  // namespace sluice
