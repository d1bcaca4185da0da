#include "agents/orchestrator/orchestrator.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
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

/// Whether the store may take later what it does not take now.
bool is_passing(store::ErrorKind kind) {
  return kind == store::ErrorKind::kFull || kind == store::ErrorKind::kBusy || kind == store::ErrorKind::kUnwritable;
}

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
      : process_(fmt::format("{}-", ::getpid())),
        name_(fmt::format("{}{}", process_, number)),
        database_(database),
        options_(options),
        signal_(signal) {}

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
      pay();
      store_->expire_leases(process_);  // those of this process are kept by threads that live
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
      if (error.kind() == store::ErrorKind::kConflict) return true;  // cancelled, or taken away: nobody wants what it finds
      if (owed_) throw;
      is_passing(error.kind()) ? release(lease) : fail(lease, error.what());  // a full disk is not the submission's fault
      throw;
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
    settle([this, lease, verdict = std::move(verdict)] {
      try {
        store_->complete(lease, verdict);
      } catch (const store::StoreError& error) {
        if (error.kind() != store::ErrorKind::kInvalid) throw;
        store_->fail(lease, error.what());  // a result that cannot be
      }
    });
  }

  void fail(const store::Lease& lease, const std::string& reason) {
    settle([this, lease, reason = utf8_text(reason), found = found_] {
      store_->fail(lease, reason, microseconds(kRetrySeconds), found);
    });
  }

  void release(const store::Lease& lease) {
    settle([this, lease] { store_->release(lease); });
  }

  /// Writes how an attempt ended. What the store cannot take for now is owed to it, and nothing else is judged before.
  void settle(std::function<void()> write) {
    owed_ = std::move(write);
    pay();
  }

  void pay() {
    if (!owed_) return;
    try {
      owed_();
    } catch (const store::StoreError& error) {
      if (is_passing(error.kind())) throw;
      owed_ = nullptr;
      if (error.kind() != store::ErrorKind::kConflict) throw;  // else nobody wants it any more
    }
    owed_ = nullptr;
  }

  /// A worker whose answer was not read must not live: it would be taken for the next one's. Nor one that met an error while it
  /// ran a flow: a GPU that has failed once fails until its process ends.
  struct WorkerGuard {
    std::optional<WorkerProcess>& worker;
    bool is_sound = false;
    ~WorkerGuard() {
      if (!is_sound) worker.reset();
    }
  };

  void evaluate(const store::Submission& submission, store::Lease& lease) {
    const Settings settings = settings_of(submission, options_);
    WorkerGuard guard{worker_};
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
        return release(lease);
      case Ending::kDeadline:
        return complete(lease, timeout_verdict(settings.seconds, stage_));
      case Ending::kLost:
        return lost(lease);
      case Ending::kAnswered:
        break;
    }
    if (const auto* report = std::get_if<WorkerReport>(&answer.message)) {
      store::Verdict verdict = verdict_of(report->report);
      guard.is_sound = verdict.status != store::Status::kRuntimeError;
      complete(lease, std::move(verdict));
    } else if (const auto* failure = std::get_if<WorkerFailure>(&answer.message)) {
      guard.is_sound = true;
      fail(lease, failure->hint.empty() ? failure->message : failure->message + " (" + failure->hint + ")");
    } else {
      lost(lease);
    }
  }

  /// A worker that is ready. False if there is none, which is no fault of the submission: it goes back to the queue, and the slot
  /// waits ever longer before it tries again. One that is half way when the submission is cancelled goes on for the next.
  bool start_worker(store::Lease& lease) {
    if (worker_ && is_ready_) return true;
    stage_ = "its start";
    std::string why;
    try {
      if (!worker_) worker_.emplace(options_.program, options_.worker_arguments);
      is_ready_ = false;
      const Answer answer = wait_for_answer(lease, Clock::now() + duration_of(options_.ready_seconds));
      if (answer.ending == Ending::kAnswered && std::holds_alternative<WorkerReady>(answer.message)) {
        is_ready_ = true;
        start_delay_ = kRetrySeconds;
        return true;
      }
      if (answer.ending == Ending::kDeadline) why = fmt::format("not ready after {:g} s", options_.ready_seconds);
      const std::string how = worker_->kill();
      if (why.empty()) why = how.empty() ? "it made no sense" : how;
    } catch (const InternalError& error) {
      why = error.what();
    }
    worker_.reset();
    release(lease);
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

  /// Keeps the lease meanwhile. Throws StoreError (kConflict) once it is lost.
  Answer wait_for_answer(store::Lease& lease, Clock::time_point deadline) {
    Clock::time_point renewal = Clock::now();
    Clock::time_point look = renewal;
    while (true) {
      const Clock::time_point time = Clock::now();
      if (stopping()) return {Ending::kStopping, {}};
      if (time >= deadline) return {Ending::kDeadline, {}};
      if (time >= look) {
        keep(lease, renewal);
        look = time + duration_of(kLookSeconds);
      }
      WorkerMessage message;
      switch (worker_->next(message, std::min(deadline, look))) {
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

  /// Looks whether the lease is still held, and renews it when it is time.
  void keep(store::Lease& lease, Clock::time_point& renewal) {
    while_held([&] {
      if (Clock::now() < renewal) return store_->confirm(lease);
      lease = store_->renew(lease, microseconds(options_.lease_seconds));
      renewal = Clock::now() + duration_of(options_.lease_seconds / 3);
    });
  }

  void tell(const store::Lease& lease, const WorkerProgress& progress) {
    stage_ = progress.task.empty() ? progress.stage : progress.stage + ", " + progress.task;
    const nlohmann::json data = {{"stage", progress.stage}, {"task", progress.task}, {"share", progress.share}};
    while_held([&] { store_->append_event("progress", lease, data.dump()); });
  }

  /// Does what an evaluation need not end for if the store is in trouble: only a lost lease ends it.
  template <typename Work>
  void while_held(const Work& work) {
    try {
      work();
    } catch (const store::StoreError& error) {
      if (error.kind() == store::ErrorKind::kConflict) throw;
      spdlog::warn("worker {}: {}", name_, error.what());
    }
  }

  /// The worker has ended, or says what it should not.
  void lost(const store::Lease& lease) {
    const std::string how = worker_->kill();
    fail(lease, fmt::format("the worker ended during {}: {}", stage_, how.empty() ? "it made no sense" : how));
  }

  static constexpr double kRetrySeconds = 1;
  static constexpr double kMostStartDelay = 60;
  static constexpr double kLookSeconds = 0.5;  // at whether it was cancelled, or everything is to stop

  const std::string process_;  // what the names of all slots of this process begin with
  const std::string name_;
  const std::string& database_;
  const OrchestratorOptions& options_;
  Signal& signal_;
  std::optional<store::Store> store_;
  std::function<void()> owed_;  // to the store: how the last attempt ended
  std::optional<WorkerProcess> worker_;
  bool is_ready_ = false;               // the worker
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
