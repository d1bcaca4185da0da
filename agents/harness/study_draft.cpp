#include "agents/harness/study_draft.h"

#include <fmt/format.h>

#include "agents/harness/draft_members.h"
#include "agents/harness/submission_draft.h"
#include "agents/http/http_problem.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;

store::TrialDraft trial_draft_of(const json& document, const std::string& study) {
  const JsonObject object(document, "trial");
  refuse_others(object, {"submission", "script", "name", "notes", "parents", "params", "seed"});
  store::TrialDraft draft;
  draft.submission = object.find_integer("submission", 1, INT64_MAX);
  draft.seed = object.find_integer("seed", 0, INT64_MAX);
  if (const json* parameters = object.find("params")) draft.parameters = parameters->dump();
  if (draft.submission) {
    for (const char* member : {"script", "name", "notes", "parents"}) {
      if (object.has(member)) object.refuse(member, "a trial of a submission has that one's");
    }
    return draft;
  }
  json flow = document;
  for (const char* member : {"submission", "params", "seed"}) flow.erase(member);
  if (!object.has("name")) flow["name"] = study;
  draft.flow = draft_of(flow);
  return draft;
}

}  // namespace

store::StudyDraft study_draft_of(const json& document) {
  const JsonObject object(document, "study");
  refuse_others(object, {"name", "goal", "settings"});
  store::StudyDraft draft;
  draft.name = object.text("name");
  if (const std::string* goal = object.find_text("goal")) draft.goal = *goal;
  if (const json* settings = object.find("settings")) draft.settings = settings->dump();
  return draft;
}

store::StudyState study_state_of(const json& document) {
  const JsonObject object(document, "study");
  refuse_others(object, {"state"});
  return store::study_state_of(object.text("state"));
}

std::vector<store::TrialDraft> trial_drafts_of(const json& document, const std::string& study) {
  if (!document.is_array()) return {trial_draft_of(document, study)};
  std::vector<store::TrialDraft> drafts;
  for (const json& trial : document) drafts.push_back(trial_draft_of(trial, study));
  return drafts;
}

store::Told told_of(const json& document) {
  const JsonObject object(document, "trial");
  refuse_others(object, {"state", "values"});
  store::Told told;
  if (const std::string* state = object.find_text("state")) told.state = store::trial_state_of(*state);
  const auto values = object.find_object("values");
  if (!values) return told;
  for (const auto& [name, value] : values->items()) {
    if (!value.is_number())
      throw HttpProblem(422, fmt::format("values: {} is {}; a number is wanted", excerpt(name), excerpt(value)));
    told.values.emplace(name, value.get<double>());
  }
  return told;
}

}  // namespace sluice
