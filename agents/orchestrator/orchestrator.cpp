#include "agents/orchestrator/orchestrator.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "agents/orchestrator/verdict.h"
#include "agents/orchestrator/worker_process.h"
#include "host/json_object.h"
#include "scripting/graph/error.h"
#include "store/error.h"
#include "store/store.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

store::Time microseconds(double seconds) { return static_cast<store::Time>(seconds * 1e6); }

/// What a submission's settings say about its evaluation.
struct Settings {
  std::string suite;
  double seconds = 0;
};

Settings settings_of(const store::Submission& submission, const OrchestratorOptions& options) {
  const nlohmann::json document = parse_json(submission.settings, "settings");
  const JsonObject object(document, "settings");
  Settings settings{options.suite, options.seconds};
  if (const std::string* suite = object.find_text("suite")) settings.suite = *suite;
  if (const auto seconds = object.find_number("seconds", 1, 1e6)) settings.seconds = std::min(*seconds, options.seconds);
  return settings;
}

}  // namespace

/// One thread's work: claims, judges, writes down.
class Orchestrator::Slot {
 public:
  Slot(int number, const std::string& database, const OrchestratorOptions& options, Signal& signal)
      : name_(fmt::format("{}-{}", ::getpid(), number)), database_(database), options_(options), signal_(signal) {}

  /// Until everything is to stop. What goes wrong with the store itself (a full disk, say) is tried again.
  void run() {
    while (true) {
      uint64_t seen = 0;
      {
        const std::lock_guard lock(signal_.mutex);
        if (signal_.stopping) return;
        seen = signal_.number;
      }
      if (work()) continue;
      std::unique_lock lock(signal_.mutex);
      signal_.changed.wait_for(lock, duration_of(options_.poll_seconds),
                               [&] { return signal_.stopping || signal_.number != seen; });
    }
  }

 private:
  /// Takes the next submission; false if there was none, or nothing can be judged for now.
  bool work() {
    try {
      if (!store_) store_.emplace(database_);
      store_->expire_leases();
      if (const auto lease = store_->claim(name_, microseconds(options_.lease_seconds))) return judge(*lease);
    } catch (const std::exception& error) {
      spdlog::error("worker {}: {}", name_, error.what());
    }
    return false;
  }

  bool stopping() {
    const std::lock_guard lock(signal_.mutex);
    return signal_.stopping;
  }

  bool judge(store::Lease lease) {
    try {
      const auto submission = store_->get(lease.submission);
      if (!submission) throw InternalError(fmt::format("submission {} is gone", lease.submission));
      if (refused(*submission, lease)) return true;
      if (!start_worker(lease)) return false;
      evaluate(*submission, lease);
    } catch (const store::StoreError& error) {
      if (error.kind() != store::ErrorKind::kConflict) throw;  // cancelled, or taken away: nobody wants what it finds
    } catch (const std::exception& error) {
      fail(lease, error.what());
    }
    return true;
  }

  /// What is wrong with the script alone is found before a worker sees it.
  bool refused(const store::Submission& submission, const store::Lease& lease) {
    found_.clear();
    if (!options_.check) return false;
    try {
      found_ = options_.check({submission.name + ".lua", submission.script});
      return false;
    } catch (const InputError& error) {
      complete(lease, rejected_verdict(error.what(), error.hint()));
      return true;
    }
  }

  void complete(const store::Lease& lease, store::Verdict verdict) {
    verdict.message = utf8_text(verdict.message);
    verdict.hint = utf8_text(verdict.hint);
    for (store::StageResult& stage : verdict.stages) stage.message = utf8_text(stage.message);
    verdict.artifacts.insert(verdict.artifacts.end(), found_.begin(), found_.end());
    store_->complete(lease, verdict);
  }

  void fail(const store::Lease& lease, const std::string& reason) {
    store_->fail(lease, utf8_text(reason), microseconds(kRetrySeconds), found_);
  }

  void evaluate(const store::Submission& submission, store::Lease& lease) {
    const Settings settings = settings_of(submission, options_);
    // Whatever ends this before the worker has answered, also ends the worker: its answer would be taken for the next one's.
    struct Unanswered {
      std::optional<WorkerProcess>& worker;
      bool answered = false;
      ~Unanswered() {
        if (!answered) worker.reset();
      }
    } guard{worker_};
    WorkerJob job;
    job.name = submission.name;
    job.script = submission.script;
    job.suite = settings.suite;
    job.seed = options_.seed;
    stage_ = "verify";
    const Clock::time_point deadline = Clock::now() + duration_of(settings.seconds);
    const bool sent = worker_->send(job, deadline);
    const Answer answer = sent ? wait_for_answer(lease, deadline) : Answer{Ending::kLost, {}};
    switch (answer.ending) {
      case Ending::kStopping:
        return store_->release(lease);
      case Ending::kDeadline:
        return complete(lease, timeout_verdict(settings.seconds, stage_));
      case Ending::kLost:
        return lost(lease);
      case Ending::kAnswered:
        break;
    }
    if (const auto* report = std::get_if<WorkerReport>(&answer.message)) {
      store::Verdict verdict = verdict_of(report->report);
      guard.answered = true;
      complete(lease, std::move(verdict));
    } else if (const auto* failure = std::get_if<WorkerFailure>(&answer.message)) {
      guard.answered = true;
      fail(lease, failure->hint.empty() ? failure->message : failure->message + " (" + failure->hint + ")");
    } else {
      lost(lease);
    }
  }

  /// A worker that is ready. False if there is none, which is no fault of the submission: it goes back to the queue, and the slot
  /// waits ever longer before it tries again.
  bool start_worker(store::Lease& lease) {
    if (worker_) return true;
    stage_ = "its start";
    std::string why;
    try {
      worker_.emplace(options_.program, options_.worker_arguments);
      const Answer answer = wait_for_answer(lease, Clock::now() + duration_of(options_.ready_seconds));
      if (answer.ending == Ending::kAnswered && std::holds_alternative<WorkerReady>(answer.message)) {
        start_delay_ = kRetrySeconds;
        return true;
      }
      if (answer.ending == Ending::kDeadline) why = fmt::format("not ready after {:g} s", options_.ready_seconds);
      const std::string how = worker_->kill();
      if (why.empty()) why = how.empty() ? "it made no sense" : how;
      worker_.reset();
    } catch (const InternalError& error) {
      worker_.reset();
      why = error.what();
    } catch (...) {
      worker_.reset();
      throw;
    }
    store_->release(lease);
    if (stopping()) return false;
    spdlog::error("worker {} cannot start: {}; tried again in {:g} s", name_, why, start_delay_);
    std::unique_lock lock(signal_.mutex);
    signal_.changed.wait_for(lock, duration_of(start_delay_), [&] { return signal_.stopping; });
    start_delay_ = std::min(2 * start_delay_, kMostStartDelay);
    return false;
  }

  /// Why waiting has ended.
  enum class Ending { kAnswered, kLost, kDeadline, kStopping };
  struct Answer {
    Ending ending = Ending::kLost;
    WorkerMessage message;  // that is no progress
  };

  /// Keeps the lease meanwhile.
  Answer wait_for_answer(store::Lease& lease, Clock::time_point deadline) {
    Clock::time_point renewal = Clock::now();
    while (true) {
      const Clock::time_point time = Clock::now();
      if (stopping()) return {Ending::kStopping, {}};
      if (time >= deadline) return {Ending::kDeadline, {}};
      if (time >= renewal) {
        lease = store_->renew(lease, microseconds(options_.lease_seconds));
        renewal = time + duration_of(std::min(options_.lease_seconds / 3, kLookSeconds));
      }
      WorkerMessage message;
      switch (worker_->next(message, std::min(deadline, std::min(renewal, time + duration_of(kLookSeconds))))) {
        case WorkerProcess::Outcome::kEnded:
          return {Ending::kLost, {}};
        case WorkerProcess::Outcome::kDeadline:
          continue;
        case WorkerProcess::Outcome::kMessage:
          break;
      }
      const auto* progress = std::get_if<WorkerProgress>(&message);
      if (progress == nullptr) return {Ending::kAnswered, std::move(message)};
      tell(lease, *progress);
    }
  }

  void tell(const store::Lease& lease, const WorkerProgress& progress) {
    stage_ = progress.task.empty() ? progress.stage : progress.stage + ", " + progress.task;
    store_->append_event("progress", lease.submission,
                         nlohmann::json{{"stage", progress.stage}, {"task", progress.task}, {"share", progress.share}}.dump());
  }

  /// The worker has ended, or says what it should not.
  void lost(const store::Lease& lease) {
    const std::string how = worker_->kill();
    worker_.reset();
    fail(lease, fmt::format("the worker ended during {}: {}", stage_, how.empty() ? "it made no sense" : how));
  }

  static constexpr double kRetrySeconds = 1;
  static constexpr double kMostStartDelay = 60;
  static constexpr double kLookSeconds = 0.5;  // at whether it was cancelled, or everything is to stop

  std::string name_;
  const std::string& database_;
  const OrchestratorOptions& options_;
  Signal& signal_;
  std::optional<store::Store> store_;
  std::optional<WorkerProcess> worker_;
  std::string stage_;                   // what the worker is at
  double start_delay_ = kRetrySeconds;  // after a worker that did not start
  std::vector<store::Artifact> found_;  // of the script, before a worker saw it
};

Orchestrator::Orchestrator(std::string database, OrchestratorOptions options)
    : database_(std::move(database)), options_(std::move(options)) {
  for (int i = 0; i < options_.workers; ++i) {
    threads_.emplace_back([this, i] { Slot(i, database_, options_, signal_).run(); });
  }
}

Orchestrator::~Orchestrator() {
  {
    const std::lock_guard lock(signal_.mutex);
    signal_.stopping = true;
  }
  signal_.changed.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Orchestrator::wake() {
  {
    const std::lock_guard lock(signal_.mutex);
    ++signal_.number;
  }
  signal_.changed.notify_all();
}

}  // namespace sluice
