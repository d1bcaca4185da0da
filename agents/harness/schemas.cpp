#include "agents/harness/schemas.h"
#include "agents/evaluation/suite.h"

#include <algorithm>
#include <vector>

#include "agents/harness/submission_draft.h"
#include "store/records.h"

namespace sluice::schemas {
namespace {

using nlohmann::json;

json number() { return {{"type", "number"}}; }
json boolean() { return {{"type", "boolean"}}; }
json any_object() { return {{"type", "object"}}; }
json time() { return {{"type", "string"}, {"format", "date-time"}}; }
json list_of(const json& item) { return {{"type", "array"}, {"items", item}}; }
json one_of(std::vector<std::string> words) { return {{"type", "string"}, {"enum", std::move(words)}}; }
json or_null(const json& schema) { return {{"anyOf", {schema, {{"type", "null"}}}}}; }

/// All properties are required but the optional ones.
json object(const json& properties, const std::vector<std::string>& optional = {}) {
  json required = json::array();
  for (const auto& [name, schema] : properties.items()) {
    if (std::find(optional.begin(), optional.end(), name) == optional.end()) required.push_back(name);
  }
  return {{"type", "object"}, {"properties", properties}, {"required", required}, {"additionalProperties", false}};
}

json with(json schema, const std::string& name, const json& property) {
  schema["properties"][name] = property;
  schema["required"].push_back(name);
  return schema;
}

json status() {
  return one_of({"queued", "running", "passed", "rejected_static", "incorrect_numerical", "below_threshold", "timeout",
                 "runtime_error", "cancelled"});
}

json study_state() { return one_of({"open", "closed"}); }

json value() { return object({{"value", number()}, {"low", or_null(number())}, {"high", or_null(number())}, {"unit", text()}}); }

json values() { return {{"type", "object"}, {"additionalProperties", value()}}; }

json metric() {
  json schema = with(value(), "name", text());
  schema["properties"]["task"] = text();       // without it: of the whole evaluation
  schema["properties"]["tokens"] = integer();  // of the task's prompts
  return schema;
}

json basis() { return one_of({"judged", "confirmed"}); }

json confirmation() {
  return object({{"state", one_of({"queued", "running", "done", "failed"})},
                 {"agent", text()},
                 {"automatic", boolean()},
                 {"tries", integer()},
                 {"factor", integer()},
                 {"seed", or_null(text())},
                 {"status", or_null(status())},
                 {"message", text()},
                 {"hint", text()},
                 {"created", time()},
                 {"finished", or_null(time())},
                 {"metrics", values()},
                 {"flattered", or_null(value())}});
}

/// `settings` that lists tell.
json run_settings() { return object({{"model", text()}, {"device", text()}, {"suite", text()}}, {"model", "device", "suite"}); }

json final_document() {
  return object({{"id", integer()},
                 {"settings", run_settings()},
                 {"status", status()},
                 {"confirmed", or_null(status())},
                 {"passed", boolean()},
                 {"metrics", values()}});
}

json stage() {
  return object({{"stage", text()},
                 {"status", one_of({"passed", "failed", "skipped"})},
                 {"seconds", number()},
                 {"message", text()},
                 {"details", any_object()}});
}

json artifact() { return object({{"name", text()}, {"media_type", text()}, {"size", integer()}}); }

/// What may be said of how a submission is judged.
json draft_settings() {
  const json seconds = {{"type", "number"}, {"minimum", 1}, {"maximum", kMostSeconds}};
  return object({{"suite", one_of(built_in_suites())}, {"model", text()}, {"device", text()}, {"seconds", seconds}},
                {"suite", "model", "device", "seconds"});
}

json diff_line() {
  return object({{"kind", one_of({"context", "added", "removed"})},
                 {"old", or_null(integer())},
                 {"new", or_null(integer())},
                 {"text", text()}});
}

json graph() {
  const json node = object({{"id", integer()},
                            {"op", text()},
                            {"stage", one_of({"cache", "index", "after"})},
                            {"type", text()},
                            {"shape", text()},
                            {"inputs", list_of(integer())},
                            {"text", text()},
                            {"line", integer()}});
  const json field = object({{"name", text()}, {"type", text()}, {"shape", text()}, {"node", integer()}});
  const json pattern = object({{"text", text()},
                               {"role", one_of({"alone", "around", "beside"})},
                               {"layers", integer()},
                               {"head", integer()},
                               {"heads", integer()},
                               {"tokens", integer()},
                               {"kept", integer()},
                               {"any_size", text()},
                               {"pages_read", integer()},
                               {"dense_prefill", boolean()},
                               {"blind", integer()},
                               {"area", number()},
                               {"area_exact", boolean()}});
  const json recompute = object({{"rule", one_of({"selected", "none", "all"})},
                                 {"layer", integer()},
                                 {"rows", or_null(integer())},
                                 {"nodes", list_of(node)}});
  json program = {{"name", text()},
                  {"page", integer()},
                  {"kv", text()},
                  {"nodes", list_of(node)},
                  {"fields", list_of(field)},
                  {"states", list_of(object({{"name", text()}, {"shape", text()}}))},
                  {"selection", or_null(integer())}};
  const json variants = list_of(object(program));
  program["patterns"] = list_of(pattern);
  program["recompute"] = recompute;
  program["variants"] = variants;
  return object(program, {"recompute", "variants"});
}

}  // namespace

json text() { return {{"type", "string"}}; }
json integer() { return {{"type", "integer"}}; }
json positive() { return {{"type", "integer"}, {"minimum", 1}}; }
json submission_id() { return positive(); }

json list(const std::string& member, const json& item) { return object({{member, list_of(item)}}); }

json draft() {
  return object({{"name", text()},
                 {"script", text()},
                 {"notes", text()},
                 {"parents", list_of(submission_id())},
                 {"settings", draft_settings()}},
                {"notes", "parents", "settings"});
}

json check_draft() { return object({{"name", text()}, {"script", text()}}, {"name"}); }

json study_draft() { return object({{"name", text()}, {"goal", text()}, {"settings", draft_settings()}}, {"goal", "settings"}); }

json study_state_draft() { return object({{"state", study_state()}}); }

json trial_drafts() {
  const json seed = {{"type", "integer"}, {"minimum", 0}};
  const json of_flow = object({{"script", text()},
                               {"name", text()},
                               {"notes", text()},
                               {"parents", list_of(submission_id())},
                               {"params", any_object()},
                               {"seed", seed}},
                              {"name", "notes", "parents", "params", "seed"});
  const json of_submission =
      object({{"submission", submission_id()}, {"params", any_object()}, {"seed", seed}}, {"params", "seed"});
  json many = list_of({{"anyOf", {of_flow, of_submission}}});
  many["minItems"] = 1;
  many["maxItems"] = store::Limits::kTrialsAtOnce;
  return {{"anyOf", {of_flow, of_submission, many}}};
}

json told_draft() {
  const json values = {{"type", "object"}, {"additionalProperties", number()}, {"maxProperties", store::Limits::kToldValues}};
  return object({{"state", one_of({"complete", "failed", "pruned"})}, {"values", values}}, {"state", "values"});
}

json agent_draft() {
  return object({{"name", text()}, {"role", one_of({"agent", "admin"})}, {"quota", integer()}}, {"role", "quota"});
}

json quota_draft() { return object({{"quota", integer()}}); }

json summary() {
  return object({{"id", integer()},
                 {"agent", text()},
                 {"name", text()},
                 {"status", status()},
                 {"created", time()},
                 {"updated", time()},
                 {"parents", list_of(integer())},
                 {"settings", run_settings()},
                 {"metrics", values()},
                 {"confirmation", or_null(confirmation())},
                 {"same_as", or_null(integer())},
                 {"final", or_null(final_document())},
                 {"final_of", or_null(integer())}});
}

json judged_confirmation() { return with(confirmation(), "evaluation", or_null(evaluation())); }

json submission(bool with_is_new) {
  json schema = summary();
  schema["properties"]["settings"] = any_object();
  for (const char* name : {"script", "notes", "content_hash"}) schema = with(std::move(schema), name, text());
  schema = with(std::move(schema), "priority", integer());
  return with_is_new ? with(std::move(schema), "is_new", boolean()) : schema;
}

json judged_submission() { return with(submission(), "evaluation", or_null(evaluation())); }

json evaluation() {
  return object({{"id", integer()},
                 {"attempt", integer()},
                 {"worker", text()},
                 {"started", time()},
                 {"finished", or_null(time())},
                 {"outcome", one_of({"judged", "failed", "expired", "cancelled", ""})},
                 {"status", or_null(status())},
                 {"message", text()},
                 {"hint", text()},
                 {"stages", list_of(stage())},
                 {"metrics", list_of(metric())},
                 {"artifacts", list_of(artifact())}});
}

json page() { return page_of("submissions", summary()); }  // without a total, too, if the text that was searched for fills it

json page_of(const std::string& member, const json& item) {
  json schema = with(list(member, item), "next", text());
  schema["properties"]["total"] = integer();
  return schema;
}

json study(bool with_is_new) {
  const json trials = object(
      {{"waiting", integer()}, {"running", integer()}, {"complete", integer()}, {"failed", integer()}, {"pruned", integer()}});
  json schema = object({{"id", integer()},
                        {"agent", text()},
                        {"name", text()},
                        {"goal", text()},
                        {"settings", any_object()},
                        {"state", study_state()},
                        {"created", time()},
                        {"trials", trials}});
  return with_is_new ? with(std::move(schema), "is_new", boolean()) : schema;
}

json trial() {
  return object({{"study", integer()},
                 {"number", integer()},
                 {"agent", text()},
                 {"submission", integer()},
                 {"params", any_object()},
                 {"seed", or_null(integer())},
                 {"state", one_of({"waiting", "running", "complete", "failed", "pruned"})},
                 {"is_told", boolean()},
                 {"evaluation", or_null(integer())},
                 {"status", or_null(status())},
                 {"message", text()},
                 {"hint", text()},
                 {"values", values()},
                 {"created", time()},
                 {"started", or_null(time())},
                 {"finished", or_null(time())}});
}

json relatives() { return with(with(list("nodes", summary()), "next", text()), "total", integer()); }

json counted(json list) { return with(std::move(list), "total", integer()); }

json diff() {
  const json hunk = object({{"header", text()}, {"lines", list_of(diff_line())}});
  const json any = json::object();
  const json compared =
      object({{"name", text()}, {"task", text()}, {"tokens", integer()}, {"from", or_null(number())}, {"to", or_null(number())}},
             {"task", "tokens"});
  return object(
      {{"from", or_null(summary())},
       {"to", summary()},
       {"hunks", list_of(hunk)},
       {"unified", text()},
       {"settings", list_of(object({{"key", text()}, {"from", any}, {"to", any}}))},
       {"metrics", list_of(compared)},
       {"paired",
        or_null(object(
            {{"tasks", integer()}, {"difference", number()}, {"low", number()}, {"high", number()}, {"p_value", number()}}))}});
}

json ranked() {
  return object({{"rank", integer()},
                 {"submission", summary()},
                 {"metric", metric()},
                 {"basis", basis()},
                 {"by_final", boolean()},
                 {"finished", time()}});
}

json front_point() { return object({{"submission", summary()}, {"value", number()}, {"speed", number()}, {"basis", basis()}}); }

json history_point() {
  return object({{"submission", integer()},
                 {"agent", text()},
                 {"name", text()},
                 {"finished", time()},
                 {"value", number()},
                 {"best", number()},
                 {"suite", or_null(text())}});
}

json finals() {
  const json judged = object({{"id", integer()}, {"model", or_null(text())}, {"status", status()}, {"score", or_null(value())}});
  const json flow = object({{"agent", text()}, {"name", text()}, {"first", judged}, {"final", judged}});
  return object({{"flows", integer()},
                 {"passed_both", integer()},
                 {"agreement", or_null(number())},
                 {"reversed", list_of(object({{"better_by_final", flow}, {"better_by_first", flow}}))},
                 {"reversed_total", integer()},
                 {"divided", list_of(flow)},
                 {"divided_total", integer()}});
}

json checked() {
  const json good =
      object({{"ok", {{"const", true}}}, {"name", text()}, {"page", integer()}, {"graph", graph()}, {"plan", text()}});
  const json bad =
      object({{"ok", {{"const", false}}}, {"file", text()}, {"line", or_null(integer())}, {"message", text()}, {"hint", text()}});
  return {{"anyOf", {good, bad}}};
}

json operators() {
  return list("operators",
              object({{"name", text()}, {"signature", text()}, {"stage", text()}, {"shape", text()}, {"summary", text()}}));
}

json flows() { return list("flows", object({{"name", text()}, {"title", text()}, {"script", text()}})); }

json suites() {
  const json task = object({{"task", text()}, {"tokens", integer()}, {"samples", integer()}});
  const json suite_stage = object({{"name", text()}, {"threshold", number()}, {"tasks", list_of(task)}});
  return list("suites", object({{"name", text()}, {"default", boolean()}, {"stages", list_of(suite_stage)}}));
}

json agent() {
  return object({{"name", text()},
                 {"role", one_of({"agent", "admin"})},
                 {"created", time()},
                 {"submissions", integer()},
                 {"passed", integer()},
                 {"best_score", or_null(number())}});
}

json new_agent() {
  return object({{"name", text()}, {"role", one_of({"agent", "admin"})}, {"quota", integer()}, {"token", text()}});
}

json new_token() { return object({{"name", text()}, {"token", text()}}); }

json quota() { return object({{"name", text()}, {"quota", integer()}}); }

json me() {
  return object({{"agent", text()},
                 {"role", one_of({"agent", "admin"})},
                 {"quota", object({{"limit", integer()}, {"used", integer()}, {"hours", integer()}})}});
}

}  // namespace sluice::schemas
