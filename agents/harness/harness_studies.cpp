// What the service does with studies and trials.

#include <fmt/format.h>

#include "agents/evaluation/credits.h"
#include "agents/harness/documents.h"
#include "agents/harness/harness_service.h"
#include "agents/harness/store_problem.h"
#include "agents/harness/study_draft.h"

namespace sluice {
namespace {

using nlohmann::json;

store::Study required_study(store::Store& store, store::StudyId id) {
  auto study = store.study(id);
  if (!study) throw HttpProblem(404, fmt::format("there is no study {}", id)).with("hint", "GET /v1/studies lists them");
  return std::move(*study);
}

store::Study own_study(store::Store& store, const Identity& who, store::StudyId id) {
  store::Study study = required_study(store, id);
  if (study.agent == who.name || who.role == Role::kAdmin) return study;
  throw HttpProblem(403, fmt::format("study {} is another agent's", id)).with("hint", "make one of your own: POST /v1/studies");
}

store::Trial required_trial(store::Store& store, store::StudyId id, int64_t number) {
  auto trial = store.trial(id, number);
  if (!trial) {
    throw HttpProblem(404, fmt::format("study {} has no trial {}", id, number))
        .with("hint", fmt::format("GET /v1/studies/{}/trials lists them", id));
  }
  return std::move(*trial);
}

template <typename Page>
json page_document(const char* member, json list, const Page& page) {
  json answer = {{member, std::move(list)}, {"next", page.next}};
  if (page.total) answer["total"] = *page.total;
  return answer;
}

}  // namespace

json HarnessService::create_study(const Identity& agent, const json& draft) {
  return as_problems([&] {
    store::StudyDraft checked = study_draft_of(draft);
    checked.settings = complete_settings(checked.settings, served_settings());
    const auto store = stores_.borrow();
    const store::CreatedStudy created = alone([&] { return store->create_study(agent.name, checked); });
    json document = sluice::document_of(required_study(*store, created.id));
    document["is_new"] = created.is_new;
    return document;
  });
}

json HarnessService::set_study_state(const Identity& who, store::StudyId id, const json& state) {
  return as_problems([&] {
    const store::StudyState wanted = study_state_of(state);
    const auto store = stores_.borrow();
    own_study(*store, who, id);
    alone([&] { store->set_study_state(id, wanted); });
    return sluice::document_of(required_study(*store, id));
  });
}

std::pair<json, bool> HarnessService::add_trials(const Identity& who, store::StudyId id, const json& drafts,
                                                 const std::string& idempotency_key) {
  return as_problems([&]() -> std::pair<json, bool> {
    const auto store = stores_.borrow();
    const store::Study study = own_study(*store, who, id);
    const auto checked = trial_drafts_of(drafts, study.name);
    const store::AddedTrials added =
        alone([&] { return store->add_trials(who.name, id, checked, idempotency_key, [&] { require_served(study, checked); }); });
    if (added.has_new_job) changed();
    json list = json::array();
    for (int64_t i = 0; i < added.count; ++i) {
      list.push_back(sluice::document_of(required_trial(*store, id, added.first + i)));
    }
    return {json{{"trials", std::move(list)}}, added.is_new};
  });
}

void HarnessService::require_served(const store::Study& study, const std::vector<store::TrialDraft>& trials) const {
  bool needs_judging = false;
  for (const store::TrialDraft& trial : trials) needs_judging |= trial.flow.has_value() || trial.seed.has_value();
  const store::Equipment& own = options_.equipment;
  if (!needs_judging || is_served(study.settings, own)) return;
  throw HttpProblem(409, fmt::format("study {} is for another model or device than {} on {}", study.id, own.model, own.device))
      .with("hint", "make another study, or add trials without seeds of submissions that were judged");
}

json HarnessService::tell(const Identity& who, store::StudyId id, int64_t number, const json& told) {
  return as_problems([&] {
    const store::Told checked = told_of(told);
    const auto store = stores_.borrow();
    own_study(*store, who, id);
    required_trial(*store, id, number);
    if (alone([&] { return store->tell(id, number, checked); })) changed();
    return sluice::document_of(required_trial(*store, id, number));
  });
}

json HarnessService::study(store::StudyId id, Caller& caller) {
  return as_problems([&] {
    caller.take(reads_);
    return sluice::document_of(required_study(*stores_.borrow(), id));
  });
}

json HarnessService::studies(const store::StudyFilter& filter, const std::string& cursor, int limit, Caller& caller) {
  return as_problems([&] {
    caller.take(reads_);
    const store::StudyPage page = stores_.borrow()->studies(filter, cursor, limit);
    return page_document("studies", documents_of(page.studies), page);
  });
}

json HarnessService::trial(store::StudyId id, int64_t number, Caller& caller) {
  return as_problems([&] {
    caller.take(reads_);
    const auto store = stores_.borrow();
    required_study(*store, id);
    return sluice::document_of(required_trial(*store, id, number));
  });
}

json HarnessService::trial_evaluation(store::StudyId id, int64_t number, Caller& caller) {
  return as_problems([&] {
    caller.take(reads_);
    const auto store = stores_.borrow();
    required_study(*store, id);
    required_trial(*store, id, number);
    const auto evaluation = store->trial_evaluation(id, number);
    if (!evaluation) throw HttpProblem(404, fmt::format("nothing was judged for trial {} of study {}", number, id));
    return sluice::document_of(*evaluation);
  });
}

store::Artifact HarnessService::trial_artifact(store::StudyId id, int64_t number, const std::string& name, Caller& caller) {
  return as_problems([&] {
    caller.take(reads_);
    const auto store = stores_.borrow();
    required_study(*store, id);
    required_trial(*store, id, number);
    auto artifact = name == kCreditsArtifact ? std::nullopt : store->trial_artifact(id, number, name);
    if (!artifact) {
      throw HttpProblem(404, fmt::format("trial {} of study {} has no artifact \"{:.60}\"", number, id, name))
          .with("hint", fmt::format("GET /v1/studies/{}/trials/{}/evaluation lists them", id, number));
    }
    return std::move(*artifact);
  });
}

json HarnessService::trials(store::StudyId id, const store::TrialFilter& filter, const std::string& cursor, int limit,
                            Caller& caller) {
  return as_problems([&] {
    caller.take(reads_);
    const auto store = stores_.borrow();
    required_study(*store, id);
    const store::TrialPage page = store->trials(id, filter, cursor, limit);
    return page_document("trials", documents_of(page.trials), page);
  });
}

json HarnessService::best_trials(store::StudyId id, const store::Objective& objective, Caller& caller) {
  return as_problems([&] {
    caller.take(comparisons_);
    const auto store = stores_.borrow();
    required_study(*store, id);
    const store::BestTrials best = store->best_trials(id, objective);
    return json{{"trials", documents_of(best.trials)}, {"total", best.total}};
  });
}

}  // namespace sluice
