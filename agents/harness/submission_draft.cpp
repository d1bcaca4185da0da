#include "agents/harness/submission_draft.h"

#include <fmt/format.h>

#include "agents/evaluation/suite.h"
#include "agents/harness/draft_members.h"
#include "agents/http/http_problem.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;

/// What settings say, where they say it; what the server does, where they do not.
void complete(json& settings, const char* key, const std::string& served) {
  if (served.empty()) return;
  const auto found = settings.find(key);
  if (found == settings.end() || found->is_null()) {
    settings[key] = served;
  } else if (*found != served) {
    throw HttpProblem(422, fmt::format("settings: \"{}\" is {}; this server judges by \"{}\"", key, excerpt(*found), served))
        .with("hint", "leave it out");
  }
}

void check_suite(const json& settings, bool is_mini, int positions) {
  const json& suite = settings.at("suite");
  if (is_mini && suite == kEnglishSuite) {
    throw HttpProblem(422, "settings: the suite real is for models of natural language; this server's knows a thousand words")
        .with("hint", "a server with --model smollm2, or another model of real text, judges by it");
  }
  if (suite.is_string() && is_built_in(suite.get<std::string>())) {
    const int longest = longest_context(load_suite(suite.get<std::string>()), is_mini);
    if (positions == 0 || longest <= positions) return;
    throw HttpProblem(422, fmt::format("settings: the suite {} asks for contexts of {} tokens; this server's model has {}",
                                       suite.get<std::string>(), longest, positions))
        .with("hint", "choose another suite");
  }
  throw HttpProblem(422, fmt::format("settings: there is no suite {}", excerpt(suite)))
      .with("hint", "verify, quick, standard, full, or real for a model of natural language; GET /v1/suites tells what they ask");
}

}  // namespace

store::Draft draft_of(const json& document) {
  const JsonObject object(document, "submission");
  refuse_others(object, {"name", "script", "notes", "parents", "settings"});
  store::Draft draft;
  draft.name = object.text("name");
  draft.script = object.text("script");
  if (const std::string* notes = object.find_text("notes")) draft.notes = *notes;
  if (const json* settings = object.find("settings")) draft.settings = settings->dump();
  if (object.has("parents")) {
    for (const json& parent : object.array("parents")) {
      const bool too_large = parent.is_number_unsigned() && parent.get<uint64_t>() > uint64_t{INT64_MAX};
      if (!parent.is_number_integer() || too_large) throw HttpProblem(422, "parents are numbers of submissions");
      draft.parents.push_back(parent.get<int64_t>());
    }
  }
  return draft;
}

CheckDraft check_draft_of(const json& document) {
  const JsonObject object(document, "check");
  refuse_others(object, {"name", "script"});
  const std::string* name = object.find_text("name");
  return {name != nullptr ? *name : "flow", object.text("script")};
}

AgentDraft agent_draft_of(const json& document) {
  const JsonObject object(document, "agent");
  refuse_others(object, {"name", "role", "quota"});
  AgentDraft draft;
  draft.name = object.text("name");
  if (const std::string* role = object.find_text("role")) {
    if (*role != "agent" && *role != "admin") object.refuse("role", "agent or admin is wanted");
    if (*role == "admin") draft.role = store::Role::kAdmin;
  }
  draft.quota = object.find_integer("quota", 0, kMostQuota).value_or(draft.quota);
  return draft;
}

int64_t quota_of(const json& document) {
  const JsonObject object(document, "quota");
  refuse_others(object, {"quota"});
  return object.integer("quota", 0, kMostQuota);
}

std::string complete_settings(const std::string& settings, const ServedSettings& served) {
  json document = parse_json(settings, "settings");
  if (!document.is_object()) throw HttpProblem(422, fmt::format("settings are {}; an object is wanted", excerpt(document)));
  const JsonObject object(document, "settings");
  refuse_others(object, {"suite", "model", "model_digest", "device", "seconds"});
  // No more than the server gives anyway: the same flow with other words for that is the same submission.
  if (object.find_number("seconds", 1, kMostSeconds) >= served.seconds) document.erase("seconds");
  if (document.value("suite", json()).is_null()) document["suite"] = served.suite;
  check_suite(document, served.is_mini, served.positions);
  complete(document, "model", served.equipment.model);
  complete(document, "model_digest", served.equipment.model_digest);
  complete(document, "device", served.equipment.device);
  return document.dump();
}

bool is_served(const std::string& settings, const store::Equipment& equipment) {
  const json document = parse_json(settings, "settings");
  const auto is = [&](const char* key, const std::string& served) {
    return served.empty() || !document.contains(key) || document.at(key) == served;
  };
  // One model may have several names.
  const bool is_model =
      document.contains("model_digest") ? is("model_digest", equipment.model_digest) : is("model", equipment.model);
  return is_model && is("device", equipment.device);
}

}  // namespace sluice
