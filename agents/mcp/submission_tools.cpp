#include "agents/mcp/submission_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agents/mcp/brief.h"
#include "agents/mcp/submission_schemas.h"
#include "agents/mcp/text_page.h"
#include "agents/mcp/tool_schemas.h"

namespace sluice::mcp {
namespace {

using nlohmann::json;
using store::Limits;

constexpr int64_t kMostSeconds = 50;
constexpr size_t kMostScriptBytes = kMostBytes / 2;

json script_property() { return text_property("The whole Lua script. It returns sluice.flow{...}; see guide", Limits::kScript); }

/// Whose token came with the call. Throws HttpProblem with what a person has to do.
const Identity& require_identity(const ToolCall& call) {
  if (call.identity) return *call.identity;
  throw HttpProblem(401, call.sent_token ? "the token that came with this request belongs to no agent of this server"
                                         : "this tool needs a token, and none came with the request")
      .with("hint",
            "only the user can set this up. On the server, `sluice agent add NAME` prints a token. Claude Code: claude mcp add "
            "--transport http sluice URL/mcp --header \"Authorization: Bearer TOKEN\". Codex: put it in an environment variable "
            "and codex mcp add sluice --url URL/mcp --bearer-token-env-var VARIABLE. Tools that only read work without");
}

bool has_ended(const json& submission) { return store::is_final(store::status_of(submission.at("status").get<std::string>())); }

/// What there is to do about a submission in this state.
std::string next_step(const json& brief) {
  const int64_t id = brief.at("id");
  if (!has_ended(brief)) return fmt::format("it is not judged yet: call wait_result with id {}", id);
  if (brief.at("status") == "passed") {
    return fmt::format("compare it (leaderboard, front, diff), then improve it and submit the new flow with parents [{}]", id);
  }
  if (brief.at("status") == "cancelled") return "it was cancelled before it was judged";
  const bool tells = brief.contains("message");
  return fmt::format("{} for why; change the script and submit it with parents [{}]",
                     tells ? "see message, hint and stages" : fmt::format("call get_submission with id {}", id), id);
}

ToolResult result_of(json brief) {
  brief["next_step"] = next_step(brief);
  return {.text = text_of_submission(brief) + "next: " + brief["next_step"].get<std::string>() + "\n", .structured = brief};
}

/// What there is to know of the confirmation of a submission.
std::string next_step_of_confirmation(const json& brief) {
  const json& confirmation = brief.at("confirmation");
  const std::string state = confirmation.at("state");
  if (state == "failed") return "it came to no verdict; see message: call confirm_submission for another try";
  if (state != "done") return fmt::format("it is {}: call confirm_submission with id {} again", state, brief.at("id").dump());
  if (confirmation.at("status") != "passed") return "new questions refute it: it is on no leaderboard any more; improve the flow";
  return "leaderboard and front have the confirmed figures from now on; flattered is what the judged score was above";
}

/// Until the end of the call at most, and as long as is asked for.
std::chrono::seconds patience_of(const JsonObject& arguments, const ToolCall& call) {
  const std::chrono::seconds wanted(arguments.find_integer("seconds", 0, kMostSeconds).value_or(kMostSeconds));
  const auto left = std::chrono::ceil<std::chrono::seconds>(call.deadline - std::chrono::steady_clock::now());
  return std::clamp(wanted, std::chrono::seconds(0), std::max(left, std::chrono::seconds(0)));
}

/// The submission schema and what this file adds to it.
json answer_schema(const json& more = json::object()) {
  json schema = submission_schema();
  schema["properties"]["next_step"] = {{"type", "string"}};
  schema["properties"].update(more);
  return schema;
}

ToolResult check_result(const json& check) {
  json structured = {{"ok", check.at("ok")}};
  if (check.at("ok") == true) {
    structured["name"] = check.at("name");
    structured["page"] = check.at("page");
    structured["plan"] = shortened(check.at("plan").get<std::string>(), kMostScriptBytes);
    return {.text = fmt::format("flow {} compiles. What Sluice makes of it, and what that should cost:\n{}",
                                quoted(structured["name"]), structured["plan"].get<std::string>()),
            .structured = structured};
  }
  std::string text = "the flow is refused: ";
  if (check.at("line").is_number()) {
    structured["line"] = check["line"];
    text += fmt::format("line {}: ", check["line"].get<int64_t>());
  }
  for (const char* member : {"message", "hint"}) structured[member] = check.at(member);
  text += check["message"].get<std::string>();
  if (const std::string hint = check["hint"]; !hint.empty()) text += "\nhint: " + hint;
  return {.text = text + "\nCorrect it and check again; guide and operators explain the language.",
          .structured = structured,
          .is_error = true};
}

json draft_of_arguments(const JsonObject& arguments) {
  json draft = {{"name", arguments.text("name")}, {"script", arguments.text("script")}};
  if (const std::string* notes = arguments.find_text("notes")) draft["notes"] = *notes;
  if (arguments.has("parents")) draft["parents"] = arguments.array("parents");
  if (const std::string* suite = arguments.find_text("suite")) draft["settings"] = {{"suite", *suite}};
  return draft;
}

std::vector<std::string> suite_names(HarnessService& service) {
  std::vector<std::string> names;
  const json suites = service.suites().at("suites");
  std::transform(suites.begin(), suites.end(), std::back_inserter(names), [](const json& suite) { return suite.at("name"); });
  return names;
}

json draft_schema(HarnessService& service) {
  const json parents = {{"type", "array"},
                        {"items", id_property("The id of a submission")},
                        {"maxItems", Limits::kParents},
                        {"description", "The submissions that this flow was made from, if any: it becomes their child"}};
  return input_object(
      {{"name", text_property("What the flow is called in lists", Limits::kName)},
       {"script", script_property()},
       {"notes", text_property("The idea, for those who read it later: what you changed and why", Limits::kNotes)},
       {"parents", parents},
       {"suite", choice_property("How thoroughly it is judged; left out, as the server usually does", suite_names(service))},
       {"idempotency_key", text_property("Any text that is new for each new flow; the same again returns the same "
                                         "submission",
                                         Limits::kIdempotencyKey)}},
      {"name", "script"});
}

}  // namespace

Tool check_flow_tool(HarnessService& service) {
  Tool tool;
  tool.name = "check_flow";
  tool.title = "Check a flow without submitting it";
  tool.description =
      "Traces and compiles a script, which takes less than a second, and judges nothing: tells what is wrong, and in which line, "
      "or "
      "the plan with its expected cost. Use it before submit_flow; it costs no quota. Needs a token.";
  tool.input_schema = input_object(
      {{"script", script_property()}, {"name", text_property("What messages call the flow", Limits::kName)}}, {"script"});
  const json text = {{"type", "string"}};
  tool.output_schema = output_object({{"ok", {{"type", "boolean"}}},
                                      {"name", text},
                                      {"page", {{"type", "integer"}}},
                                      {"plan", text},
                                      {"line", {{"type", "integer"}}},
                                      {"message", text},
                                      {"hint", text}},
                                     {"ok"});
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    require_identity(call);
    const std::string* name = arguments.find_text("name");
    Caller caller(call.caller);
    return check_result(service.check(name == nullptr ? "flow" : *name, arguments.text("script"), caller));
  };
  return tool;
}

Tool submit_flow_tool(HarnessService& service) {
  Tool tool;
  tool.name = "submit_flow";
  tool.title = "Submit a flow to be judged";
  tool.description =
      "Hands in a flow and returns at once with its id; then call wait_result. It is kept for good, with its parents and notes. "
      "The "
      "same script with the same suite is the same submission (is_new is false). Needs a token and uses the quota of new "
      "submissions a day, so check_flow first.";
  tool.input_schema = draft_schema(service);
  tool.output_schema = answer_schema({{"is_new", {{"type", "boolean"}}}});
  tool.annotations = writing_annotations(false);
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    const Identity& agent = require_identity(call);
    const std::string* key = arguments.find_text("idempotency_key");
    const json submitted = service.submit(agent, draft_of_arguments(arguments), key == nullptr ? "" : *key);
    ToolResult result = result_of(brief_submission(submitted));
    result.structured["is_new"] = submitted.at("is_new");
    if (submitted.at("is_new") == false) result.text = "This flow was submitted before, with the same suite.\n" + result.text;
    return result;
  };
  return tool;
}

Tool wait_result_tool(HarnessService& service) {
  Tool tool;
  tool.name = "wait_result";
  tool.title = "Wait for a verdict";
  tool.description =
      "Waits until a submission is judged, at most 50 seconds, and tells what there is then: status, message, hint, what each "
      "stage and each task gave. If it still waits or runs, call it again.";
  tool.input_schema =
      input_object({{"id", id_property("The submission, as submit_flow told it")},
                    {"seconds", integer_property("Most seconds to wait; 0: only look", 0, kMostSeconds, kMostSeconds)}},
                   {"id"});
  tool.output_schema = answer_schema();
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    const auto most = patience_of(arguments, call);
    Caller caller(call.caller);
    return result_of(brief_submission(service.wait(arguments.integer("id", 1, INT64_MAX), most, call.is_wanted, caller)));
  };
  return tool;
}

Tool get_submission_tool(HarnessService& service) {
  Tool tool;
  tool.name = "get_submission";
  tool.title = "A submission with its script";
  tool.description =
      "One submission, anybody's: script, notes, parents, settings, and what its stages and tasks gave. Read the script of a "
      "good "
      "flow before you improve it.";
  tool.input_schema = input_object({{"id", id_property("The submission")}, {"from_line", first_line_property()}}, {"id"});
  tool.output_schema = answer_schema({{"script", {{"type", "string"}}}, {"script_continues_at_line", {{"type", "integer"}}}});
  tool.annotations = reading_annotations();
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    Caller caller(call.caller);
    const json submission = service.get(arguments.integer("id", 1, INT64_MAX), caller);
    ToolResult result = result_of(brief_submission(submission));
    const TextPage page = page_of(submission.at("script"), first_line(arguments), kMostScriptBytes);
    result.structured["script"] = page.text;
    result.text += "script:\n" + page.text;
    if (page.next_line > 0) {
      result.structured["script_continues_at_line"] = page.next_line;
      result.text += fmt::format("\n(the script goes on: call get_submission with from_line {}; it has {} lines)", page.next_line,
                                 page.lines);
    }
    return result;
  };
  return tool;
}

Tool cancel_submission_tool(HarnessService& service) {
  Tool tool;
  tool.name = "cancel_submission";
  tool.title = "Cancel a submission";
  tool.description = "Ends a submission of your own that waits or runs; it stays in the lists as cancelled. Needs a token.";
  tool.input_schema = input_object({{"id", id_property("The submission")}}, {"id"});
  tool.output_schema = answer_schema();
  tool.annotations = writing_annotations(true);
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    const Identity& agent = require_identity(call);
    return result_of(brief_submission(service.cancel(agent, arguments.integer("id", 1, INT64_MAX))));
  };
  return tool;
}

Tool confirm_submission_tool(HarnessService& service) {
  Tool tool;
  tool.name = "confirm_submission";
  tool.title = "Confirm a submission on new questions";
  tool.description =
      "Has a submission of your own that passed judged once more, on more questions that nobody could know when it was handed "
      "in, "
      "and waits at most 50 seconds. Leaderboard and front then rank it by what was confirmed. Called again it asks for nothing "
      "new, but waits and tells how far it is. Needs a token and uses the quota as a submission does.";
  tool.input_schema = input_object({{"id", id_property("The submission")},
                                    {"seconds", integer_property("Most seconds to wait", 0, kMostSeconds, kMostSeconds)}},
                                   {"id"});
  tool.output_schema = answer_schema();
  tool.annotations = writing_annotations(false);
  tool.call = [&service](const JsonObject& arguments, const ToolCall& call) {
    const Identity& agent = require_identity(call);
    const int64_t id = arguments.integer("id", 1, INT64_MAX);
    service.confirm(agent, id);
    Caller caller(call.caller);
    service.confirmation(id, patience_of(arguments, call), call.is_wanted, caller);
    json brief = brief_submission(service.get(id, caller));
    brief["next_step"] = next_step_of_confirmation(brief);
    return ToolResult{.text = text_of_submission(brief) + "next: " + brief["next_step"].get<std::string>() + "\n",
                      .structured = brief};
  };
  return tool;
}

}  // namespace sluice::mcp
