#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/harness/flow_check.h"
#include "agents/harness/store_pool.h"
#include "agents/harness/store_watch.h"
#include "agents/harness/submission_diff.h"
#include "agents/harness/submission_draft.h"
#include "agents/http/http_message.h"
#include "agents/http/http_problem.h"
#include "agents/http/turns.h"

namespace sluice {

struct HarnessServiceOptions {
  std::string suite = "quick";                           // of submissions that name none
  store::Equipment equipment;                            // that flows are judged with; no model: submissions may name any
  std::optional<store::Equipment> final_equipment = {};  // that what passed is judged with once more
  double seconds = 900;                                  // that an evaluation may take
  bool is_mini = false;                                  // the model speaks the mini dialect
  int positions = 0;                                     // of the model; 0: any number
  /// Traces a script in the sandbox and compiles it: {"name", "page", "graph", "plan"}. Throws FlowError, InputError. Null:
  /// scripts cannot be checked. Called by several threads.
  std::function<nlohmann::json(const FlowScript&)> inspect;
  /// There is something new in the queue, or something left it: handed in, cancelled, told its end.
  std::function<void()> changed;
};

/// All that agents and readers may ask of the harness, whichever way they come: the routes below /v1 and the tools of MCP are
/// thin over it; for studies there are no tools yet. Documents are those of the OpenAPI document (agents/harness/schemas.h). Any
/// number of threads may use it. Every method throws HttpProblem alone, unless we are at fault.
///
/// What costs something takes turns, callers one after the other, so that none shuts out others: a `Caller` is to live until the
/// answer is written, since that, too, is part of its turn.
class HarnessService {
 public:
  using Json = nlohmann::json;

  /// `database` is a store's file with the current schema.
  HarnessService(std::string database, HarnessServiceOptions options);

  /// Whose token it is.
  std::optional<Identity> authenticate(const std::string& token);

  // What changes something

  /// `draft` is {"name", "script", "notes", "parents", "settings"}. The submission, with "is_new".
  Json submit(const Identity& agent, const Json& draft, const std::string& idempotency_key = {});
  /// Its own, or any for an administrator (403). 409 if it has ended.
  Json cancel(const Identity& who, store::SubmissionId id);
  /// Has a submission that passed judged once more, on new questions: its own, or any for an administrator (403). Asked for
  /// again, it is the one that there is. 409 if it has not passed, or is not judged yet.
  Json confirm(const Identity& who, store::SubmissionId id);
  /// For administrators. 409 if it waits or runs.
  Json judge_again(const Identity& admin, store::SubmissionId id);

  // Studies (harness_studies.cpp), which their agent or an administrator changes (else 403)

  /// `draft` is {"name", "goal", "settings"}. The study, with "is_new".
  Json create_study(const Identity& agent, const Json& draft);
  /// `state` is {"state"}.
  Json set_study_state(const Identity& who, store::StudyId id, const Json& state);
  /// `drafts` is a trial or a list of them: {"script" or "submission", "params", ...}. {"trials"}, and whether they are new.
  std::pair<Json, bool> add_trials(const Identity& who, store::StudyId id, const Json& drafts,
                                   const std::string& idempotency_key = {});
  /// `told` is {"state", "values"}. 409 if the trial has ended otherwise.
  Json tell(const Identity& who, store::StudyId id, int64_t number, const Json& told);
  Json study(store::StudyId id, Caller& caller);
  Json studies(const store::StudyFilter& filter, const std::string& cursor, int limit, Caller& caller);
  Json trial(store::StudyId id, int64_t number, Caller& caller);
  /// 404 if nothing was judged yet.
  Json trial_evaluation(store::StudyId id, int64_t number, Caller& caller);
  /// 404 if there is none of that name.
  store::Artifact trial_artifact(store::StudyId id, int64_t number, const std::string& name, Caller& caller);
  Json trials(store::StudyId id, const store::TrialFilter& filter, const std::string& cursor, int limit, Caller& caller);
  Json best_trials(store::StudyId id, const store::Objective& objective, Caller& caller);

  // Submissions

  /// With script and "evaluation": the last one, or null.
  Json get(store::SubmissionId id, Caller& caller);
  /// The same once it has ended, after `most`, or when `is_wanted` says that nobody waits any more.
  Json wait(store::SubmissionId id, std::chrono::seconds most, const std::function<bool()>& is_wanted, Caller& caller);
  Json evaluations(store::SubmissionId id, Caller& caller);
  /// Of the last verdict, with "evaluation": what ended it, or the last attempt, or null. Once it has ended, or after `most`, as
  /// `wait`. 404 if there is none.
  Json confirmation(store::SubmissionId id, std::chrono::seconds most, const std::function<bool()>& is_wanted, Caller& caller);
  /// Of the last verdict; nothing if it has none of that name.
  std::optional<store::Artifact> artifact(store::SubmissionId id, const std::string& name, Caller& caller);
  Json list(const store::Filter& filter, const std::string& cursor, int limit, Caller& caller);
  /// `of` is family, ancestors or descendants: at most `limit`, after the `skip` nearest.
  Json lineage(store::SubmissionId id, const std::string& of, int64_t skip, int64_t limit, Caller& caller);
  /// From the first parent unless `from` names another; from nothing if there is none. `whole`: with all lines as context.
  Json diff(store::SubmissionId id, std::optional<store::SubmissionId> from, bool whole, Caller& caller);

  // Comparisons (harness_comparisons.cpp, as lineage and diff)

  /// By score, and of no one model, it goes by finals where there are any (Ranking::by_finals).
  Json leaderboard(store::Ranking ranking, Caller& caller);
  /// Where the models that judge first and at last disagree, by score; of each list at most `limit`.
  Json finals(const store::Filter& filter, int limit, Caller& caller);
  Json front(const std::string& metric, const std::string& speed, const store::Filter& filter, Caller& caller);
  Json history(const store::Ranking& ranking, Caller& caller);
  /// Events after a number, or from now on, as they happen. This must outlive the stream.
  std::shared_ptr<BodyStream> events(std::optional<int64_t> after);

  // The language

  /// {"ok": true, "name", "page", "graph", "plan"}, or {"ok": false, "message", "hint", "file", "line"}.
  Json check(const std::string& name, const std::string& script, Caller& caller);
  Json operators(Caller& caller);
  /// Markdown.
  std::string guide();
  /// The shipped ones.
  Json flows(Caller& caller);
  Json suites();

  // Agents

  Json agents(Caller& caller);
  Json me(const Identity& who);
  /// For administrators. `agent` is {"name", "role", "quota"}; the answer has the token, which is told only once.
  Json create_agent(const Identity& admin, const Json& agent);
  Json replace_token(const Identity& admin, const std::string& name);
  /// `quota` is {"quota"}.
  Json set_quota(const Identity& admin, const std::string& name, const Json& quota);

 private:
  void changed();
  /// Writes one after the other: SQLite lets writers try again until they are lucky, and of hundreds some never are.
  template <typename Write>
  auto alone(const Write& write) {
    const std::lock_guard lock(writing_);
    return write();
  }
  /// Searches through texts have turns of their own, so that they delay nothing else.
  Turns& turns_of_list(const store::Filter& filter) { return filter.text.empty() ? reads_ : searches_; }
  Turns& turns_of_comparison(const store::Filter& filter) { return filter.text.empty() ? comparisons_ : searches_; }
  [[noreturn]] static void no_submission(store::SubmissionId id);
  /// Throws HttpProblem (404; 403 unless it is the caller's or the caller an administrator).
  static void require_own(store::Store& store, const Identity& who, store::SubmissionId id);
  /// Until `has_ended`, for `most`, or until nobody waits any more. Takes a turn if it waits at all.
  void wait_until(const std::function<bool()>& has_ended, std::chrono::seconds most, const std::function<bool()>& is_wanted,
                  Caller& caller);
  Json document_of(store::Store& store, store::SubmissionId id);
  DiffSide side(store::Store& store, store::SubmissionId id);
  /// Throws HttpProblem (409) where a submission is for another model or device.
  void require_suited(store::Store& store, store::SubmissionId id) const;
  /// Throws HttpProblem (409) where something would be judged for another model or device.
  void require_served(const store::Study& study, const std::vector<store::TrialDraft>& trials) const;
  ServedSettings served_settings() const {
    return {options_.equipment, options_.suite, options_.seconds, options_.is_mini, options_.positions};
  }

  const std::string database_;
  const HarnessServiceOptions options_;
  StorePool stores_;
  std::mutex writing_;
  StoreWatch watch_;
  FlowCheck check_;
  Turns waits_;
  Turns reads_;  // of single submissions and pages of lists
  Turns diffs_;
  Turns searches_;
  Turns comparisons_;
};

/// A filter from texts, by its members' names: agent, status, model, device, suite, text, finals ("shown"). Throws HttpProblem
/// (422) for a status that there is not, and for another word of finals.
store::Filter filter_of(const std::function<std::optional<std::string>(const std::string& name)>& value);

}  // namespace sluice
