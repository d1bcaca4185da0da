#include "agents/generation/open_ai_answer.h"

#include <nlohmann/json.hpp>

#include "agents/generation/log_probabilities.h"
#include "agents/http/event_stream.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

const char* error_type(int status) {
  if (status >= 500) return "server_error";
  if (status == 429) return "rate_limit_error";
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  return "invalid_request_error";
}

Json error_object(const HttpProblem& problem) {
  const auto member = [&](const char* name) { return problem.members().value(name, Json(nullptr)); };
  std::string message = problem.what();
  if (const Json hint = member("hint"); hint.is_string()) message += " (" + hint.get<std::string>() + ")";
  return {{"error",
           {{"message", message}, {"type", error_type(problem.status())}, {"param", member("param")}, {"code", member("code")}}}};
}

Json usage_object(const CompletionUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json reason_or_null(const std::string& reason) { return reason.empty() ? Json(nullptr) : Json(reason); }

Json frame(const CompletionAnswer& answer, const char* object) {
  return {{"id", answer.id}, {"object", object}, {"created", answer.created}, {"model", answer.model}};
}

std::string event_of(const std::string& object) { return event_text({object, {}, {}}); }

/// `object` with a member more, whose value is JSON already: log-probabilities may be many, and are written once.
std::string with_member(const Json& object, const char* name, const std::string& value) {
  std::string text = json_text(object);
  text.pop_back();
  return text + ",\"" + name + "\":" + value + "}";
}

/// Null where nothing is told of tokens.
std::string log_probabilities(const CompletionAnswer& answer, const std::vector<ToldToken>& tokens) {
  if (answer.tokenizer == nullptr) return "null";
  if (answer.kind == CompletionKind::kChat) return chat_log_probabilities(*answer.tokenizer, tokens);
  return text_log_probabilities(*answer.tokenizer, tokens, answer.echo);
}

/// A chunk with one choice; `tokens` are those that it tells of.
std::string chunk(const CompletionAnswer& answer, Json choice, int index, const std::string& reason,
                  const std::vector<ToldToken>& tokens = {}) {
  const bool chat = answer.kind == CompletionKind::kChat;
  choice["index"] = index;
  choice["finish_reason"] = reason_or_null(reason);
  const std::string with = with_member(choice, "logprobs", tokens.empty() ? "null" : log_probabilities(answer, tokens));
  Json object = frame(answer, chat ? "chat.completion.chunk" : "text_completion");
  if (answer.include_usage) object["usage"] = nullptr;
  return event_of(with_member(object, "choices", "[" + with + "]"));
}

}  // namespace

HttpResponse open_ai_refusal(const HttpProblem& problem) {
  HttpResponse response;
  response.body = json_text(error_object(problem));
  return response;
}

HttpResponse problem_with_error(const HttpProblem& problem) {
  HttpResponse response = problem_response(problem);
  Json document = problem.document();
  document.update(error_object(problem));
  response.body = json_text(document);
  return response;
}

std::string whole_answer(const CompletionAnswer& answer, const std::vector<CompletionPiece>& choices,
                         const CompletionUsage& usage) {
  const bool chat = answer.kind == CompletionKind::kChat;
  std::string list = "[";
  for (const CompletionPiece& piece : choices) {
    Json choice = {{"index", piece.choice}, {"finish_reason", reason_or_null(piece.finish_reason)}};
    if (chat) {
      choice["message"] = {{"role", "assistant"}, {"content", piece.text}, {"refusal", nullptr}};
    } else {
      choice["text"] = piece.text;
    }
    if (list.size() > 1) list += ',';
    list += with_member(choice, "logprobs", log_probabilities(answer, piece.tokens));
  }
  Json object = frame(answer, chat ? "chat.completion" : "text_completion");
  object["usage"] = usage_object(usage);
  return with_member(object, "choices", list + "]");
}

std::string first_chunk(const CompletionAnswer& answer, int choice) {
  if (answer.kind == CompletionKind::kText) return {};
  return chunk(answer, {{"delta", {{"role", "assistant"}, {"content", ""}}}}, choice, {});
}

std::string piece_chunk(const CompletionAnswer& answer, const CompletionPiece& piece) {
  const bool tells = !piece.text.empty() || !piece.tokens.empty();
  if (!tells && piece.finish_reason.empty()) return {};
  if (answer.kind == CompletionKind::kText) {
    return chunk(answer, {{"text", piece.text}}, piece.choice, piece.finish_reason, piece.tokens);
  }
  std::string chunks;
  if (tells) chunks = chunk(answer, {{"delta", {{"content", piece.text}}}}, piece.choice, {}, piece.tokens);
  if (!piece.finish_reason.empty()) chunks += chunk(answer, {{"delta", Json::object()}}, piece.choice, piece.finish_reason);
  return chunks;
}

std::string last_chunks(const CompletionAnswer& answer, const CompletionUsage& usage) {
  std::string done = event_text({"[DONE]", {}, {}});
  if (!answer.include_usage) return done;
  Json object = frame(answer, answer.kind == CompletionKind::kChat ? "chat.completion.chunk" : "text_completion");
  object["choices"] = Json::array();
  object["usage"] = usage_object(usage);
  return event_of(json_text(object)) + done;
}

std::string error_chunk(const HttpProblem& problem) { return event_of(json_text(error_object(problem))); }

}  // namespace sluice
