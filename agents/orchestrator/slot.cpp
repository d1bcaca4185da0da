// What goes wrong falls into three kinds: the flow's fault is a verdict, the worker's counts as a try, and what the store cannot
// take or the machine has none left of is waited for.

#include "agents/orchestrator/slot.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "agents/evaluation/holdout.h"
#include "agents/evaluation/metric_table.h"
#include "agents/orchestrator/verdict.h"
#include "scripting/base/json_object.h"
#include "scripting/base/resource_error.h"
#include "store/error.h"

namespace sluice {
namespace {

constexpr double kRetrySeconds = 1;
constexpr double kMostDelay = 30;
constexpr double kLookSeconds = 0.5;  // at whether it was cancelled, or everything is to stop

std::chrono::steady_clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
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
  std::string model_digest = {};  // empty: it was handed in before there were any
};

Settings settings_of(const store::Submission& submission, const OrchestratorOptions& options) {
  const nlohmann::json document = parse_json(submission.settings, "settings");
  const JsonObject object(document, "settings");
  Settings settings{options.suite, options.seconds};
  if (const std::string* suite = object.find_text("suite")) settings.suite = *suite;
  if (const std::string* digest = object.find_text("model_digest")) settings.model_digest = *digest;
  if (const auto seconds = object.find_number("seconds", 1, 1e6)) settings.seconds = std::min(*seconds, options.seconds);
  return settings;
}

WorkerJob job_of(const store::Submission& submission, const Settings& settings, const store::Lease& lease,
                 const OrchestratorOptions& options) {
  WorkerJob job;
  job.name = submission.name;
  job.script = submission.script;
  job.suite = settings.suite;
  job.model_digest = settings.model_digest;
  job.seed = options.seed;
  if (lease.trial) job.seed = options.seed.derived(fmt::format("trial {}", lease.seed.value()));
  if (lease.confirmation) {
    job.seed = Seed::parse(lease.confirmation->seed);
    job.factor = static_cast<int>(lease.confirmation->factor);
    job.is_seed_kept = false;
  }
  return job;
}

/// The same flow, asked what nobody is told of. Kinds and questions are this confirmation's alone: what one learns of them helps
/// none. They do not follow from its seed, which is told, without the server's.
WorkerJob holdout_job(WorkerJob job, const OrchestratorOptions& options) {
  const std::string seed = job.seed.hex();
  job.kinds = options.seed.derived(fmt::format("{}, kinds {}", kHoldout, seed));
  job.seed = options.seed.derived(fmt::format("{}, questions {}", kHoldout, seed));
  return job;
}

/// A worker whose answer was not read must not live: it would be taken for the next one's. Nor one that met an error while it
/// ran a flow: a GPU that has failed once fails until its process ends.
struct WorkerGuard {
  std::unique_ptr<Executor>& worker;
  bool is_sound = false;
  ~WorkerGuard() {
    if (!is_sound) worker.reset();
  }
};

}  // namespace

Slot::Slot(int number, const std::string& database, const OrchestratorOptions& options, SlotSignal& signal,
           const std::string& part)
    : number_(number),
      process_(fmt::format("{}-", ::getpid())),
      name_(fmt::format("{}{}{}{}", process_, number, part.empty() ? "" : "-", part)),
      database_(database),
      options_(options),
      signal_(signal),
      delay_(kRetrySeconds) {}

void run_slots(const std::vector<Slot*>& slots, const SlotSignal& signal, double poll_seconds) {
  while (!signal.is_stopping()) {
    const uint64_t seen = signal.count();
    const bool has_worked = std::any_of(slots.begin(), slots.end(), [](Slot* slot) { return slot->work(); });
    if (!has_worked) signal.wait(duration_of(poll_seconds), seen);
  }
}

bool Slot::work() {
  try {
    if (!store_) store_.emplace(database_);
    pay();
    if (Clock::now() < rest_) return false;
    // Other slots of this process live and keep theirs; this one has none at the moment.
    store_->expire_leases([this](const std::string& worker) { return worker != name_ && worker.starts_with(process_); });
    if (const auto lease = store_->claim(name_, microseconds(options_.lease_seconds), options_.equipment)) {
      const bool has_worked = judge(*lease);
      ask_finals();
      return has_worked;
    }
  } catch (const std::exception& error) {
    spdlog::error("worker {}: {}", name_, error.what());
  }
  return false;
}

bool Slot::judge(store::Lease lease) {
  try {
    const auto submission = store_->get(lease.submission);
    if (!submission) throw InternalError(fmt::format("submission {} is gone", lease.submission));
    if (refuse(*submission, lease) || share(lease)) return true;
    if (!start_worker(lease)) return false;
    evaluate(*submission, lease);
  } catch (const store::StoreError& error) {
    if (error.kind() == store::ErrorKind::kConflict) return true;  // cancelled, or taken away: nobody wants what it finds
    if (owed_) throw;
    is_passing(error.kind()) ? release(lease) : fail(lease, error.what());  // a full disk is not the submission's fault
    throw;
  } catch (const std::exception& error) {
    is_lack(error) ? put_back(lease, error.what()) : fail(lease, error.what());
  }
  return true;
}

bool Slot::refuse(const store::Submission& submission, const store::Lease& lease) {
  found_ = {};
  if (!options_.check) return false;
  try {
    found_ = options_.check({submission.name + ".lua", submission.script});
    return false;
  } catch (const InputError& error) {
    complete(lease, rejected_verdict(error.what(), error.hint()));
    return true;
  }
}

bool Slot::share(const store::Lease& lease) {
  if (found_.fingerprint.empty() || lease.trial || lease.confirmation) return false;
  return store_->share_verdict(lease, found_.fingerprint, found_.artifacts) != store::Sharing::kNone;
}

void Slot::evaluate(const store::Submission& submission, store::Lease& lease) {
  const Settings settings = settings_of(submission, options_);
  const WorkerJob job = job_of(submission, settings, lease, options_);
  const double seconds = settings.seconds * job.factor;
  WorkerGuard guard{worker_};
  std::optional<std::string> report = report_of(job, lease, seconds, guard.is_sound);
  if (!report) return;
  store::Verdict verdict = verdict_of(*report);
  if (lease.confirmation && options_.holds_out && verdict.status == store::Status::kPassed) {
    tell(lease, {kHoldout, "", 0});  // and no more: how far it is would tell what it asks
    report = report_of(holdout_job(job, options_), lease, seconds, guard.is_sound);
    if (!report) return;
    add_holdout(verdict, *report);
  }
  guard.is_sound = verdict.status != store::Status::kRuntimeError;
  if (lease.confirmation) verdict = confirmed_verdict(std::move(verdict), *lease.confirmation);
  complete(lease, std::move(verdict));
}

std::optional<std::string> Slot::report_of(const WorkerJob& job, store::Lease& lease, double seconds, bool& is_sound) {
  is_sound = false;
  stage_ = job.kinds ? kHoldout : "verify";
  const Clock::time_point deadline = Clock::now() + duration_of(seconds);
  const bool sent = worker_->send(job, deadline);
  Answer answer = sent ? wait_for_answer(lease, deadline, job.kinds.has_value()) : Answer{Ending::kLost, {}};
  switch (answer.ending) {
    case Ending::kStopping:
      release(lease);
      return std::nullopt;
    case Ending::kDeadline:
      complete(lease, timeout_verdict(seconds, stage_));
      return std::nullopt;
    case Ending::kLost:
      lose_worker(lease);
      return std::nullopt;
    case Ending::kAnswered:
      break;
  }
  if (auto* report = std::get_if<WorkerReport>(&answer.message)) return std::move(report->report);
  if (const auto* failure = std::get_if<WorkerFailure>(&answer.message)) {
    is_sound = !failure->is_lack;
    const std::string why = failure->hint.empty() ? failure->message : failure->message + " (" + failure->hint + ")";
    if (!failure->is_lack) {
      fail(lease, why);
      return std::nullopt;
    }
    worker_.reset();  // a new one may need less, and what this one has may be what is lacking
    put_back(lease, why);
    return std::nullopt;
  }
  lose_worker(lease);
  return std::nullopt;
}

void Slot::complete(const store::Lease& lease, store::Verdict verdict) {
  delay_ = kRetrySeconds;
  verdict.message = utf8_text(verdict.message);
  verdict.hint = utf8_text(verdict.hint);
  for (store::StageResult& stage : verdict.stages) stage.message = utf8_text(stage.message);
  verdict.artifacts.insert(verdict.artifacts.end(), found_.artifacts.begin(), found_.artifacts.end());
  settle([this, lease, verdict = std::move(verdict)] {
    try {
      store_->complete(lease, verdict);
    } catch (const store::StoreError& error) {
      if (error.kind() != store::ErrorKind::kInvalid) throw;
      return static_cast<void>(store_->fail(lease, error.what()));  // a result that cannot be
    }
    if (verdict.status == store::Status::kPassed && !lease.trial && !lease.confirmation) confirm(lease.submission);
  });
}

void Slot::confirm(store::SubmissionId submission) {
  if (!options_.confirms) return;
  try {
    if (store_->confirm_if_on_front(submission, metrics::kScore.name, metrics::kSpeedup.name)) signal_.wake();
  } catch (const store::StoreError& error) {  // the verdict is there: it may be asked for
    spdlog::warn("worker {}: no confirmation of submission {}: {}", name_, submission, error.what());
  }
}

void Slot::ask_finals() {
  if (!options_.finals) return;
  try {
    if (!store_->ask_finals(*options_.finals).empty()) signal_.wake();
  } catch (const store::StoreError& error) {  // the next one asks again
    spdlog::warn("worker {}: no finals: {}", name_, error.what());
  }
}

void Slot::fail(const store::Lease& lease, const std::string& reason) {
  settle([this, lease, reason = utf8_text(reason), found = found_.artifacts] {
    store_->fail(lease, reason, microseconds(kRetrySeconds), found);
  });
}

void Slot::release(const store::Lease& lease) {
  settle([this, lease] { store_->release(lease); });
}

void Slot::put_back(const store::Lease& lease, const std::string& why) {
  const double delay = 2 * delay_;  // longer than this slot waits: who is behind it may be in want of less
  settle([this, lease, delay] { store_->release(lease, microseconds(delay)); });
  if (signal_.is_stopping()) return;
  spdlog::error("worker {}: {}; tried again in {:g} s", name_, why, delay);
  rest_ = Clock::now() + duration_of(delay_);
  delay_ = std::min(2 * delay_, kMostDelay);
}

void Slot::lose_worker(const store::Lease& lease) {
  const std::string how = worker_->kill();
  const char* guess = how.starts_with("signal 9 ") ? "; memory may have run out" : "";
  fail(lease, fmt::format("the worker ended during {}: {}{}", stage_, how.empty() ? "it made no sense" : how, guess));
}

void Slot::settle(std::function<void()> write) {
  owed_ = std::move(write);
  pay();
}

void Slot::pay() {
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

bool Slot::start_worker(store::Lease& lease) {
  if (worker_ && !worker_->is_running()) worker_.reset();  // it was ended while it had nothing to do
  if (worker_ && is_ready_) return true;
  stage_ = "its start";
  std::string why;
  try {
    if (!worker_) worker_ = options_.start_worker(number_);
    is_ready_ = false;
    const Answer answer = wait_for_answer(lease, Clock::now() + duration_of(options_.ready_seconds));
    if (answer.ending == Ending::kAnswered && std::holds_alternative<WorkerReady>(answer.message)) {
      is_ready_ = true;
      return true;
    }
    if (answer.ending == Ending::kDeadline) why = fmt::format("not ready after {:g} s", options_.ready_seconds);
    const std::string how = worker_->kill();
    if (why.empty()) why = how.empty() ? "it made no sense" : how;
  } catch (const InternalError& error) {
    why = error.what();
  }
  worker_.reset();
  put_back(lease, "it cannot start: " + why);
  return false;
}

Slot::Answer Slot::wait_for_answer(store::Lease& lease, Clock::time_point deadline, bool is_secret) {
  Clock::time_point renewal = Clock::now();
  Clock::time_point look = renewal;
  while (true) {
    const Clock::time_point time = Clock::now();
    if (signal_.is_stopping()) return {Ending::kStopping, {}};
    if (time >= deadline) return {Ending::kDeadline, {}};
    if (time >= look) {
      keep(lease, renewal);
      look = time + duration_of(kLookSeconds);
    }
    WorkerMessage message;
    switch (worker_->next(message, std::min(deadline, look))) {
      case Executor::Outcome::kEnded:
        return {Ending::kLost, {}};
      case Executor::Outcome::kDeadline:
        continue;
      case Executor::Outcome::kMessage:
        break;
    }
    const auto* progress = std::get_if<WorkerProgress>(&message);
    if (progress == nullptr) return {Ending::kAnswered, std::move(message)};
    if (!is_secret) tell(lease, *progress);
  }
}

void Slot::keep(store::Lease& lease, Clock::time_point& renewal) {
  while_held([&] {
    if (Clock::now() < renewal) return store_->check_lease(lease);
    lease = store_->renew(lease, microseconds(options_.lease_seconds));
    renewal = Clock::now() + duration_of(options_.lease_seconds / 3);
  });
}

void Slot::tell(const store::Lease& lease, const WorkerProgress& progress) {
  stage_ = progress.task.empty() ? progress.stage : progress.stage + ", " + progress.task;
  nlohmann::json data = {{"stage", progress.stage}, {"task", progress.task}, {"share", progress.share}};
  if (lease.confirmation) data["of"] = "confirmation";
  while_held([&] { store_->append_event("progress", lease, data.dump()); });
}

void Slot::while_held(const std::function<void()>& work) {
  try {
    work();
  } catch (const store::StoreError& error) {
    if (error.kind() == store::ErrorKind::kConflict) throw;
    spdlog::warn("worker {}: {}", name_, error.what());
  }
}

}  // namespace sluice
