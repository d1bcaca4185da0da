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
      : name_(fmt::format("{}-{}", ::getpid(), number)), options_(options), signal_(signal), store_(database) {}

  void run() {
    while (true) {
      uint64_t seen = 0;
      {
        const std::lock_guard lock(signal_.mutex);
        if (signal_.stopping) return;
        seen = signal_.number;
      }
      try {
        store_.expire_leases();
        if (const auto lease = store_.claim(name_, microseconds(options_.lease_seconds))) {
          judge(*lease);
          continue;
        }
      } catch (const std::exception& error) {
        spdlog::error("worker {}: {}", name_, error.what());
      }
      std::unique_lock lock(signal_.mutex);
      signal_.changed.wait_for(lock, duration_of(options_.poll_seconds),
                               [&] { return signal_.stopping || signal_.number != seen; });
    }
  }

 private:
  bool stopping() {
    const std::lock_guard lock(signal_.mutex);
    return signal_.stopping;
  }

  void judge(store::Lease lease) {
    try {
      const auto submission = store_.get(lease.submission);
      if (!submission) throw InternalError(fmt::format("submission {} is gone", lease.submission));
      if (!refused(*submission, lease)) evaluate(*submission, lease);
    } catch (const store::StoreError& error) {
      if (error.kind() != store::ErrorKind::kConflict) throw;
      worker_.reset();  // cancelled, or taken away: whatever it finds is of no use
    } catch (const std::exception& error) {
      worker_.reset();
      store_.fail(lease, error.what(), microseconds(kRetrySeconds));
    }
  }

  /// What is wrong with the script alone is found before a worker sees it.
  bool refused(const store::Submission& submission, const store::Lease& lease) {
    if (!options_.check) return false;
    try {
      options_.check({submission.name + ".lua", submission.script});
      return false;
    } catch (const InputError& error) {
      store_.complete(lease, rejected_verdict(error.what(), error.hint()));
      return true;
    }
  }

  void evaluate(const store::Submission& submission, store::Lease& lease) {
    const Settings settings = settings_of(submission, options_);
    if (!start_worker(lease)) return;
    WorkerJob job;
    job.name = submission.name;
    job.script = submission.script;
    job.suite = settings.suite;
    job.seed = options_.seed;
    stage_ = "verify";
    if (!worker_->send(job)) return lost(lease);
    const auto answer = wait_for_answer(lease, settings.seconds);
    if (!answer) return;
    if (const auto* report = std::get_if<WorkerReport>(&*answer)) {
      store_.complete(lease, verdict_of(report->report));
    } else if (const auto* failure = std::get_if<WorkerFailure>(&*answer)) {
      store_.fail(lease, failure->hint.empty() ? failure->message : failure->message + " (" + failure->hint + ")",
                  microseconds(kRetrySeconds));
    } else {
      lost(lease);
    }
  }

  /// A worker that is ready; false if there is none, and the attempt has ended.
  bool start_worker(store::Lease& lease) {
    if (worker_) return true;
    worker_.emplace(options_.program, options_.worker_arguments);
    stage_ = "the start of a worker";
    const auto answer = wait_for_answer(lease, options_.ready_seconds);
    if (!answer) return false;
    if (std::holds_alternative<WorkerReady>(*answer)) return true;
    lost(lease);
    return false;
  }

  /// The next message that is no progress. Nothing: the attempt has ended.
  std::optional<WorkerMessage> wait_for_answer(store::Lease& lease, double seconds) {
    const Clock::time_point deadline = Clock::now() + duration_of(seconds);
    Clock::time_point renewal = Clock::now();
    while (true) {
      if (stopping()) {  // the lease runs out, and another server goes on
        worker_.reset();
        return {};
      }
      if (Clock::now() >= renewal) {
        lease = store_.renew(lease, microseconds(options_.lease_seconds));
        renewal = Clock::now() + duration_of(std::min(options_.lease_seconds / 3, kLookSeconds));
      }
      WorkerMessage message;
      switch (worker_->next(message, std::min(deadline, std::min(renewal, Clock::now() + duration_of(kLookSeconds))))) {
        case WorkerProcess::Outcome::kEnded:
          lost(lease);
          return {};
        case WorkerProcess::Outcome::kDeadline:
          if (Clock::now() < deadline) continue;
          worker_.reset();
          store_.complete(lease, timeout_verdict(seconds, stage_));
          return {};
        case WorkerProcess::Outcome::kMessage:
          break;
      }
      const auto* progress = std::get_if<WorkerProgress>(&message);
      if (progress == nullptr) return message;
      tell(lease, *progress);
    }
  }

  void tell(const store::Lease& lease, const WorkerProgress& progress) {
    stage_ = progress.task.empty() ? progress.stage : progress.stage + ", " + progress.task;
    store_.append_event("progress", lease.submission,
                        nlohmann::json{{"stage", progress.stage}, {"task", progress.task}, {"share", progress.share}}.dump());
  }

  /// The worker has ended, or says what it should not.
  void lost(const store::Lease& lease) {
    const std::string how = worker_->kill();
    worker_.reset();
    store_.fail(lease, fmt::format("the worker ended during {}: {}", stage_, how.empty() ? "it made no sense" : how));
  }

  static constexpr double kRetrySeconds = 1;
  static constexpr double kLookSeconds = 0.5;  // at whether it was cancelled, or everything is to stop

  std::string name_;
  const OrchestratorOptions& options_;
  Signal& signal_;
  store::Store store_;
  std::optional<WorkerProcess> worker_;
  std::string stage_;  // what the worker is at
};

Orchestrator::Orchestrator(std::string database, OrchestratorOptions options)
    : database_(std::move(database)), options_(std::move(options)) {
  for (int i = 0; i < options_.workers; ++i) {
    threads_.emplace_back([this, i] {
      try {
        Slot(i, database_, options_, signal_).run();
      } catch (const std::exception& error) {
        spdlog::critical("worker {} has ended: {}", i, error.what());
      }
    });
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
