#include "agents/client/verdict_wait.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "agents/evaluation/terminal_progress.h"

namespace sluice {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

/// Tells a Progress what events say.
class EventProgress {
 public:
  EventProgress(Progress* progress, std::string flow) : progress_(progress), flow_(std::move(flow)) {
    if (progress_ != nullptr) progress_->start(1);
  }

  void show(const std::string& stage, const std::string& task = {}) {
    if (progress_ != nullptr) progress_->show(stage, task, flow_);
  }

  void take(const json& event) {
    const std::string kind = event.value("kind", std::string());
    if (kind == "running" || kind == "retried") show(kind);
    if (kind != "progress" || !event["data"].is_object() || progress_ == nullptr) return;
    const json& data = event["data"];
    const double share = data.value("share", 0.0);
    progress_->advance(share - done_);
    done_ = share;
    show(data.value("stage", std::string()), data.value("task", std::string()));
  }

  void finish() {
    if (progress_ != nullptr) progress_->finish();
  }

 private:
  Progress* progress_;
  std::string flow_;
  double done_ = 0;
};

}  // namespace

bool is_final_status(const std::string& status) { return status != "queued" && status != "running"; }

json wait_for_verdict(HarnessClient& client, int64_t id, const Waiting& waiting) {
  constexpr std::chrono::seconds kSilence{20};  // longer than the time between the server's signs of life
  const Clock::time_point deadline = Clock::now() + waiting.most;
  json submission = client.submission(id);
  const auto over = [&] {
    return is_final_status(submission.at("status")) || Clock::now() >= deadline || (waiting.interrupted && waiting.interrupted());
  };
  EventProgress progress(waiting.progress, submission.at("name"));
  const auto look = [&] {
    submission = client.submission(id);
    return !is_final_status(submission.at("status"));
  };
  const auto take = [&](const json& event) {
    if (event.value("submission", json()) != id) return true;
    progress.take(event);
    return event.value("kind", std::string()) == "progress" || look();
  };
  bool ended = over();
  const auto wanted = [&] {
    ended = over();
    return !ended;
  };
  if (!ended) progress.show(submission.at("status"));
  while (!ended) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now());
    const auto silence = waiting.interrupted ? std::chrono::seconds(1) : kSilence;
    client.follow_events(std::clamp(left, std::chrono::seconds(1), silence), {look, take, wanted});
    ended = ended || over();
  }
  progress.finish();
  return submission;
}

json wait_on_terminal(HarnessClient& client, int64_t id, std::chrono::seconds most, const std::function<bool()>& interrupted) {
  std::optional<TerminalProgress> progress;
  if (::isatty(STDERR_FILENO) == 1) progress.emplace();
  return wait_for_verdict(client, id, {most, interrupted, progress ? &*progress : nullptr});
}

}  // namespace sluice
