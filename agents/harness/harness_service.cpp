#include "agents/harness/harness_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agents/evaluation/credits.h"
#include "agents/harness/documents.h"
#include "agents/harness/language.h"
#include "agents/harness/store_events.h"
#include "agents/harness/store_problem.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;

/// Between looks at whether somebody still waits for an answer.
constexpr std::chrono::milliseconds kLook{250};
// For verdicts, each with a thread and a connection.
constexpr Turns::Limits kWaits{.most = 256, .leaves_room = true};
// What reads all scripts or verdicts, or takes tens of MiB: few at once, since workers measure times meanwhile.
constexpr Turns::Limits kDear{.most = 2, .line = 64, .patience = std::chrono::seconds(10), .frees_much = true};
// Each is over in a moment, but holds a connection to the database and up to a few MiB.
constexpr Turns::Limits kReads{.most = 8, .line = 256, .patience = std::chrono::seconds(10)};

/// With a flow its final is confirmed, too, if that has passed, and `equipment` has its model.
void confirm_final(store::Store& store, const Identity& who, store::SubmissionId id, const store::Equipment& equipment) {
  const auto last = store.summary(id)->final;
  if (!last || !last->passed() || !store.is_suited(last->submission, equipment)) return;
  try {
    store.ask_confirmation(who.name, last->submission);
  } catch (const store::StoreError& error) {  // the flow's own is asked for; the final's is another time
    if (error.kind() != store::ErrorKind::kQuota && error.kind() != store::ErrorKind::kConflict) throw;
  }
}

void require_admin(const Identity& who) {
  if (who.role != Role::kAdmin) throw HttpProblem(403, "only administrators may do this");
}

}  // namespace

HarnessService::HarnessService(std::string database, HarnessServiceOptions options)
    : database_(std::move(database)),
      options_(std::move(options)),
      stores_(database_),
      watch_(database_),
      check_(options_.inspect),
      waits_(kWaits, "too many wait for verdicts; ask now and then, without waiting"),
      reads_(kReads, "too many read at once; try again in a moment"),
      diffs_(kDear, "too many compare scripts at once; try again in a moment"),
      searches_(kDear, "too many search at once; try again in a moment"),
      comparisons_(kDear, "too many compare verdicts at once; try again in a moment") {}

void HarnessService::changed() {
  watch_.wake();
  if (options_.changed) options_.changed();
}

std::optional<Identity> HarnessService::authenticate(const std::string& token) {
  return as_problems([&]() -> std::optional<Identity> {
    const auto agent = stores_.borrow()->agent_of_token(token);
    if (!agent) return {};
    return Identity{agent->name, agent->role == store::Role::kAdmin ? Role::kAdmin : Role::kAgent};
  });
}

void HarnessService::no_submission(store::SubmissionId id) {
  throw HttpProblem(404, fmt::format("there is no submission {}", id)).with("hint", "GET /v1/submissions lists them");
}

json HarnessService::document_of(store::Store& store, store::SubmissionId id) {
  const auto summary = store.summary(id);
  const auto submission = store.get(id);
  if (!summary || !submission) no_submission(id);
  return sluice::document_of(*summary, *submission);
}

void HarnessService::require_own(store::Store& store, const Identity& who, store::SubmissionId id) {
  const auto submission = store.summary(id);
  if (!submission) no_submission(id);
  if (submission->agent == who.name || who.role == Role::kAdmin) return;
  throw HttpProblem(403, fmt::format("submission {} is another agent's", id));
}

json HarnessService::submit(const Identity& agent, const json& draft, const std::string& idempotency_key) {
  return as_problems([&] {
    store::Draft checked = draft_of(draft);
    checked.settings = complete_settings(checked.settings, served_settings());
    checked.idempotency_key = idempotency_key;
    const auto store = stores_.borrow();
    const store::Submitted submitted = alone([&] { return store->submit(agent.name, checked); });
    if (submitted.is_new) changed();
    json document = document_of(*store, submitted.id);
    document["is_new"] = submitted.is_new;
    return document;
  });
}

json HarnessService::cancel(const Identity& who, store::SubmissionId id) {
  return as_problems([&] {
    const auto store = stores_.borrow();
    require_own(*store, who, id);
    if (!alone([&] { return store->cancel(id); })) throw HttpProblem(409, fmt::format("submission {} has ended already", id));
    changed();
    return document_of(*store, id);
  });
}

json HarnessService::confirm(const Identity& who, store::SubmissionId id) {
  return as_problems([&] {
    const auto store = stores_.borrow();
    require_own(*store, who, id);
    require_suited(*store, id);
    alone([&] {
      store->ask_confirmation(who.name, id);
      if (options_.final_equipment) confirm_final(*store, who, id, *options_.final_equipment);
    });
    changed();
    return document_of(*store, id);
  });
}

json HarnessService::judge_again(const Identity& admin, store::SubmissionId id) {
  require_admin(admin);
  return as_problems([&] {
    const auto store = stores_.borrow();
    require_suited(*store, id);
    alone([&] { store->judge_again(id); });
    changed();
    return document_of(*store, id);
  });
}

json HarnessService::get(store::SubmissionId id, Caller& caller) {
  return as_problems([&] {
    caller.take(reads_);
    const auto store = stores_.borrow();
    json document = document_of(*store, id);
    const auto evaluation = store->last_evaluation(id);
    document["evaluation"] = evaluation ? sluice::document_of(*evaluation) : json(nullptr);
    return document;
  });
}

void HarnessService::wait_until(const std::function<bool()>& has_ended, std::chrono::seconds most,
                                const std::function<bool()>& is_wanted, Caller& caller) {
  const auto deadline = StoreWatch::Clock::now() + most;
  uint64_t version = watch_.version();
  if (most.count() == 0 || has_ended()) return;
  caller.take(waits_);
  while (!has_ended()) {
    const uint64_t seen = version;
    for (auto now = StoreWatch::Clock::now(); version == seen; now = StoreWatch::Clock::now()) {
      if (now >= deadline || (is_wanted && !is_wanted())) return;
      version = watch_.wait(seen, std::min<StoreWatch::Clock::time_point>(deadline, now + kLook));
    }
  }
}

json HarnessService::wait(store::SubmissionId id, std::chrono::seconds most, const std::function<bool()>& is_wanted,
                          Caller& caller) {
  const auto has_ended = [&] {
    const auto status = as_problems([&] { return stores_.borrow()->find_status(id); });
    if (!status) no_submission(id);
    return store::is_final(*status);
  };
  wait_until(has_ended, most, is_wanted, caller);
  return get(id, caller);
}

json HarnessService::confirmation(store::SubmissionId id, std::chrono::seconds most, const std::function<bool()>& is_wanted,
                                  Caller& caller) {
  return as_problems([&] {
    const auto has_ended = [&] {
      const auto confirmation = stores_.borrow()->confirmation(id);
      return !confirmation || store::is_final(confirmation->state);
    };
    wait_until(has_ended, most, is_wanted, caller);
    caller.take(reads_);
    const auto store = stores_.borrow();
    const auto summary = store->summary(id);
    if (!summary) no_submission(id);
    if (!summary->confirmation) {
      throw HttpProblem(404, fmt::format("submission {} has no confirmation", id))
          .with("hint", fmt::format("POST /v1/submissions/{}/confirm asks for it, once it has passed", id));
    }
    json document = sluice::document_of(*summary->confirmation, *summary);
    const auto evaluation = store->confirmation_evaluation(id);
    document["evaluation"] = evaluation ? sluice::document_of(*evaluation) : json(nullptr);
    return document;
  });
}

json HarnessService::evaluations(store::SubmissionId id, Caller& caller) {
  return as_problems([&] {
    caller.take(comparisons_);
    const auto store = stores_.borrow();
    if (!store->find_status(id)) no_submission(id);
    return json{{"evaluations", documents_of(store->evaluations(id))}};
  });
}

std::optional<store::Artifact> HarnessService::artifact(store::SubmissionId id, const std::string& name, Caller& caller) {
  return as_problems([&] {
    caller.take(reads_);
    const auto store = stores_.borrow();
    if (!store->find_status(id)) no_submission(id);
    return name == kCreditsArtifact ? std::nullopt : store->artifact(id, name);
  });
}

json HarnessService::list(const store::Filter& filter, const std::string& cursor, int limit, Caller& caller) {
  return as_problems([&] {
    caller.take(turns_of_list(filter));
    const store::Page page = stores_.borrow()->list(filter, cursor, limit);
    json answer = {{"submissions", documents_of(page.submissions)}, {"next", page.next}};
    if (page.total) answer["total"] = *page.total;
    return answer;
  });
}

void HarnessService::require_suited(store::Store& store, store::SubmissionId id) const {
  const store::Equipment& own = options_.equipment;
  if (!store.find_status(id)) no_submission(id);
  if (store.is_suited(id, own) || (options_.final_equipment && store.is_suited(id, *options_.final_equipment))) return;
  throw HttpProblem(409, fmt::format("submission {} is for another model or device than {} on {}", id, own.model, own.device))
      .with("hint", "hand its script in again: with this server's settings it is another submission");
}

std::shared_ptr<BodyStream> HarnessService::events(std::optional<int64_t> after) {
  return as_problems(
      [&] { return std::make_shared<StoreEvents>(database_, watch_, after ? *after : stores_.borrow()->last_event()); });
}

json HarnessService::check(const std::string& name, const std::string& script, Caller& caller) {
  return as_problems([&] { return check_.check({name + ".lua", script}, caller); });
}

json HarnessService::operators(Caller& caller) {
  caller.take(reads_);
  return operators_document();
}

std::string HarnessService::guide() { return guide_text(options_.suite, options_.is_mini); }

json HarnessService::flows(Caller& caller) {
  return as_problems([&] {
    caller.take(reads_);
    return flows_document();
  });
}

json HarnessService::suites() { return suites_document(options_.suite, options_.is_mini); }

json HarnessService::agents(Caller& caller) {
  return as_problems([&] {
    caller.take(comparisons_);
    return json{{"agents", documents_of(stores_.borrow()->agents())}};
  });
}

json HarnessService::me(const Identity& who) {
  return as_problems([&] {
    const store::Quota quota = stores_.borrow()->quota_of(who.name);
    return json{{"agent", who.name},
                {"role", who.role == Role::kAdmin ? "admin" : "agent"},
                {"quota", {{"limit", quota.limit}, {"used", quota.used}, {"hours", 24}}}};
  });
}

json HarnessService::create_agent(const Identity& admin, const json& agent) {
  require_admin(admin);
  return as_problems([&] {
    const AgentDraft draft = agent_draft_of(agent);
    const store::NewAgent made = alone([&] { return stores_.borrow()->create_agent(draft.name, draft.role, draft.quota); });
    return json{
        {"name", made.agent.name}, {"role", name_of(made.agent.role)}, {"quota", made.agent.quota}, {"token", made.token}};
  });
}

json HarnessService::replace_token(const Identity& admin, const std::string& name) {
  require_admin(admin);
  return as_problems([&] {
    return json{{"name", name}, {"token", alone([&] { return stores_.borrow()->replace_token(name); })}};
  });
}

json HarnessService::set_quota(const Identity& admin, const std::string& name, const json& quota) {
  require_admin(admin);
  return as_problems([&] {
    const int64_t limit = quota_of(quota);
    alone([&] { stores_.borrow()->set_quota(name, limit); });
    return json{{"name", name}, {"quota", limit}};
  });
}

store::Filter filter_of(const std::function<std::optional<std::string>(const std::string& name)>& value) {
  const auto text = [&](const char* name) { return value(name).value_or(""); };
  store::Filter filter;
  filter.agent = text("agent");
  if (const std::string status = text("status"); !status.empty()) {
    filter.status = as_problems([&] { return store::status_of(status); });
  }
  filter.model = text("model");
  filter.device = text("device");
  filter.suite = text("suite");
  filter.text = text("text");
  const std::string finals = text("finals");
  if (!finals.empty() && finals != "shown") throw HttpProblem(422, "finals is \"shown\", or left out");
  filter.with_finals = !finals.empty();
  return filter;
}

}  // namespace sluice
