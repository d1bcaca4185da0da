#include "agents/client/verdict_wait.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "agents/client/metric_text.h"
#include "agents/evaluation/terminal_progress.h"

namespace sluice {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

/// Tells a Progress what a server says.
class EventProgress {
 public:
  EventProgress(Progress* progress, WaitedFor what) : progress_(progress), what_(what) {
    if (progress_ != nullptr) progress_->start(1);
  }

  void set_flow(const std::string& flow) { flow_ = flow; }

  void show(const std::string& stage, const std::string& task = {}) {
    if (progress_ != nullptr) progress_->show(stage, task, flow_);
  }

  void take(const json& event) {
    const json& kind = member_of(event, "kind");
    const json& data = member_of(event, "data");
    const bool of_confirmation = kind == "confirmation" || member_of(data, "of") == "confirmation";
    if (of_confirmation != (what_ == WaitedFor::kConfirmation)) return;
    if (kind == "running" || kind == "retried") show(text_of(event, "kind"));
    if (kind == "confirmation") show(text_of(data, "state"));
    const json& share = member_of(data, "share");
    if (kind != "progress" || !share.is_number() || progress_ == nullptr) return;
    const double done = std::clamp(share.get<double>(), 0.0, 1.0);
    progress_->advance(done - done_);
    done_ = done;
    show(text_of(data, "stage"), text_of(data, "task"));
  }

  void finish() {
    if (progress_ != nullptr) progress_->finish();
  }

 private:
  Progress* progress_;
  WaitedFor what_;
  std::string flow_;
  double done_ = 0;
};

/// Follows the server's events, and looks after the submission whenever they are not to be had.
class VerdictWait {
 public:
  VerdictWait(HarnessClient& client, int64_t id, const Waiting& waiting)
      : client_(client),
        id_(id),
        waiting_(waiting),
        deadline_(Clock::now() + waiting.most),
        progress_(waiting.progress, waiting.what) {}

  json run() {
    constexpr std::chrono::milliseconds kShortest{250};
    constexpr std::chrono::milliseconds kLongest{5000};
    std::chrono::milliseconds between = kShortest;
    look();
    while (wanted()) {
      const Clock::time_point begun = Clock::now();
      follow();
      if (Clock::now() - begun > kLongest) between = kShortest;  // it was a stream, if not for ever
      if (wanted()) look();
      pause(between);
      between = std::min(2 * between, kLongest);
    }
    progress_.finish();
    const bool is_late = Clock::now() >= deadline_;
    if (trouble_ && (is_late || submission_.is_null())) throw ServerError(*trouble_);
    return submission_;
  }

 private:
  /// Whether the waiting goes on. Asked by this thread or the one that watches the stream, never by both.
  bool wanted() {
    if (!over_ && (Clock::now() >= deadline_ || (waiting_.interrupted && waiting_.interrupted()))) over_ = true;
    return !over_;
  }

  /// Asks for the submission. False if there is no use in listening: it is final, or the server has trouble that may pass, of
  /// which only a server that was never there at all is told at once.
  bool look() try {
    const bool is_news = submission_.is_null() || trouble_;
    submission_ = client_.submission(id_);
    trouble_.reset();
    const std::string status = waited_for();
    if (is_final_status(status)) over_ = true;
    progress_.set_flow(text_of(submission_, "name"));
    if (is_news && !over_ && Clock::now() < deadline_) progress_.show(status);
    return !over_;
  } catch (const ServerError& error) {
    if (!error.may_pass() || (error.status() == 0 && submission_.is_null())) throw;
    trouble_ = error;
    progress_.show("trying again");
    return false;
  }

  /// The status of the submission, or the state of its confirmation: "" of none, which is the end as well.
  std::string waited_for() const {
    if (waiting_.what == WaitedFor::kVerdict) return submission_.at("status");
    const json& state = member_of(member_of(submission_, "confirmation"), "state");
    return state.is_string() ? state.get<std::string>() : std::string();
  }

  bool take(const json& event) {
    if (member_of(event, "submission") != id_) return true;
    progress_.take(event);
    return member_of(event, "kind") == "progress" || look();
  }

  void follow() try {
    client_.follow_events({.begun = [this] { return look(); },
                           .event = [this](const json& event) { return take(event); },
                           .wanted = [this] { return wanted(); }});
  } catch (const ServerError&) {  // no stream for now: whether that matters, looking tells
  }

  void pause(std::chrono::milliseconds time) {
    constexpr std::chrono::milliseconds kStep{50};
    for (const Clock::time_point end = Clock::now() + time; Clock::now() < end && wanted();) std::this_thread::sleep_for(kStep);
  }

  HarnessClient& client_;
  int64_t id_;
  const Waiting& waiting_;
  Clock::time_point deadline_;
  EventProgress progress_;
  json submission_;
  std::optional<ServerError> trouble_;  // of the last look
  std::atomic<bool> over_ = false;
};

}  // namespace

bool is_final_status(const std::string& status) { return status != "queued" && status != "running"; }

json wait_for_verdict(HarnessClient& client, int64_t id, const Waiting& waiting) {
  return VerdictWait(client, id, waiting).run();
}

json wait_on_terminal(HarnessClient& client, int64_t id, std::chrono::seconds most, const std::function<bool()>& interrupted,
                      WaitedFor what) {
  std::optional<TerminalProgress> progress;
  if (::isatty(STDERR_FILENO) == 1) progress.emplace();
  return wait_for_verdict(client, id, {most, interrupted, progress ? &*progress : nullptr, what});
}

}  // namespace sluice
