#include "agents/generation/generation_schema.h"

#include "agents/evaluation/recompute_rules.h"
#include "agents/generation/open_ai_answer.h"
#include "kernels/device/picks.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

Json typed(const char* type, const char* description) { return {{"type", type}, {"description", description}}; }

Json list_of(const Json& items) { return {{"type", "array"}, {"items", items}}; }

Json nullable(const char* type, const char* description) { return {{"type", {type, "null"}}, {"description", description}}; }

/// Fields that both kinds of completion take.
Json common_properties() {
  const Json rule = {{"type", "string"}, {"enum", recompute_rule_names()}};
  return {
      {"model", typed("string", "the name in /v1/models; may be left out")},
      {"flow", typed("string", "the flow that decodes, submission:12 for one that was handed in; dense attention without it")},
      {"max_tokens", {{"type", "integer"}, {"minimum", 1}}},
      {"max_completion_tokens", {{"type", "integer"}, {"minimum", 1}}},
      {"temperature", {{"type", "number"}, {"minimum", 0}, {"default", 1}, {"description", "0: greedy"}}},
      {"top_p", {{"type", "number"}, {"exclusiveMinimum", 0}, {"maximum", 1}, {"default", 1}}},
      {"top_k", {{"type", "integer"}, {"minimum", -1}, {"default", 0}, {"description", "0 and -1: all"}}},
      {"seed", typed("integer", "the same seed gives the same answer; without one it is drawn")},
      {"stop", {{"oneOf", {typed("string", "ends the answer"), list_of({{"type", "string"}})}}}},
      {"stop_token_ids", list_of({{"type", "integer"}})},
      {"ignore_eos", {{"type", "boolean"}, {"default", false}}},
      {"n", {{"type", "integer"}, {"minimum", 1}, {"maximum", 64}, {"default", 1}}},
      {"recompute",
       {{"description",
         "what is computed again of segments whose text stood elsewhere before: a rule, or one with the layer that it looks at "
         "and "
         "the share of the tokens that it chooses"},
        {"oneOf",
         {rule,
          {{"type", "object"},
           {"required", {"rule"}},
           {"properties",
            {{"rule", rule},
             {"boundary", {{"type", "integer"}, {"minimum", 0}, {"default", 1}}},
             {"share", {{"type", "number"}, {"minimum", 0}, {"maximum", 1}, {"default", 0.15}}}}}}}}}},
      {"answer_extra_key", typed("string", "the name under which the answer's tokens are a segment for later prompts")},
      {"stream", {{"type", "boolean"}, {"default", false}}},
      {"stream_options", {{"type", "object"}, {"properties", {{"include_usage", {{"type", "boolean"}}}}}}}};
}

Json text_body() {
  Json properties = common_properties();
  const Json ids = list_of({{"type", "integer"}});
  properties["prompt"] = {{"oneOf", {typed("string", "text"), ids, list_of({{"type", "string"}}), list_of(ids)}}};
  properties["segments"] = {
      {"description", "parts of a prompt of ids whose text may have stood elsewhere, in their order; they do not overlap"},
      {"type", "array"},
      {"items",
       {{"type", "object"},
        {"required", {"start", "end"}},
        {"properties",
         {{"start", {{"type", "integer"}, {"minimum", 0}}},
          {"end", {{"type", "integer"}, {"minimum", 1}}},
          {"extra_key", {{"type", "string"}, {"description", "a name: what goes by another is not found"}}}}}}}};
  properties["echo"] = {{"type", "boolean"}, {"default", false}, {"description", "the answer begins with the prompt"}};
  properties["add_special_tokens"] = {
      {"type", "boolean"}, {"default", true}, {"description", "texts get the tokens that the tokenizer puts around them"}};
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    properties[name] = {
        {"type", "integer"}, {"minimum", 0}, {"description", "0 with echo alone: nothing but the prompt is told"}};
  }
  properties["logprobs"] = {{"type", "integer"},
                            {"minimum", 0},
                            {"maximum", kMostLikely},
                            {"description",
                             "log-probabilities of the answer's tokens, with echo of the prompt's as well, and of so many of "
                             "the most likely in each place"}};
  return {{"type", "object"}, {"required", {"prompt"}}, {"properties", properties}};
}

Json chat_body() {
  Json properties = common_properties();
  properties["logprobs"] = {{"type", "boolean"}, {"default", false}, {"description", "log-probabilities of the answer's tokens"}};
  properties["top_logprobs"] = {{"type", "integer"},
                                {"minimum", 0},
                                {"maximum", kMostLikely},
                                {"default", 0},
                                {"description", "and of so many of the most likely in each place; with logprobs alone"}};
  const Json message = {{"type", "object"},
                        {"required", {"role", "content"}},
                        {"properties",
                         {{"role", {{"type", "string"}, {"enum", {"system", "developer", "user", "assistant"}}}},
                          {"content", {{"type", {"string", "array"}}}}}}};
  properties["messages"] = list_of(message);
  properties["chat_template_kwargs"] =
      typed("object", "variables for the model's chat template, such as enable_thinking; it must have them");
  properties["reasoning_effort"] = typed("string", "the same as that variable of the template");
  properties["continue_final_message"] = {
      {"type", "boolean"}, {"default", false}, {"description", "the answer goes on with the last message"}};
  properties["add_generation_prompt"] = {
      {"type", "boolean"},
      {"description", "the prompt ends with the beginning of an answer; default: unless the last message is continued"}};
  return {{"type", "object"}, {"required", {"messages"}}, {"properties", properties}};
}

Json error_schema() {
  return {{"type", "object"},
          {"required", {"error"}},
          {"properties",
           {{"error",
             {{"type", "object"},
              {"required", {"message", "type", "param", "code"}},
              {"properties",
               {{"message", {{"type", "string"}}},
                {"type", {{"type", "string"}}},
                {"param", {{"type", {"string", "null"}}}},
                {"code", {{"type", {"string", "null"}}}}}}}}}}};
}

Json text_log_probabilities_schema() {
  const Json number = {{"type", {"number", "null"}}};
  const Json likely = {{"type", {"object", "null"}}, {"additionalProperties", {{"type", "number"}}}};
  const auto described = [](Json schema, const char* description) {
    schema["description"] = description;
    return schema;
  };
  return {{"type", {"object", "null"}},
          {"description", "natural logarithms at temperature 1, if they were asked for; -9999 stands for all that is less"},
          {"required", {"tokens", "token_logprobs", "top_logprobs", "text_offset"}},
          {"properties",
           {{"tokens", described(list_of({{"type", "string"}}),
                                 "their texts; bytes:\\xe2\\x82 where the bytes of one are no whole characters")},
            {"token_logprobs", described(list_of(number), "null: the first token of a prompt")},
            {"top_logprobs", described(list_of(likely),
                                       "the most likely tokens of the place and the token itself; of two with one text the less "
                                       "likely is token_id:17")},
            {"text_offset", described(list_of({{"type", "integer"}}), "characters (code points) of `text` before each token")},
            {"prompt_attention",
             {{"type", "string"},
              {"enum", {"dense"}},
              {"description", "with echo: the attention that tokens of the prompt were computed with, whatever the flow"}}}}}};
}

Json chat_log_probabilities_schema() {
  Json properties = {{"token", typed("string", "its text; bytes:\\xe2\\x82 where its bytes are no whole characters")},
                     {"logprob", typed("number", "natural logarithm at temperature 1; -9999 stands for all that is less")},
                     {"bytes", list_of({{"type", "integer"}, {"minimum", 0}, {"maximum", 255}})}};
  const Json likely = {{"type", "object"}, {"required", {"token", "logprob", "bytes"}}, {"properties", properties}};
  properties["top_logprobs"] = list_of(likely);
  const Json token = {
      {"type", "object"}, {"required", {"token", "logprob", "bytes", "top_logprobs"}}, {"properties", properties}};
  return {{"type", {"object", "null"}},
          {"description", "if they were asked for"},
          {"required", {"content", "refusal"}},
          {"properties", {{"content", list_of(token)}, {"refusal", {{"type", "null"}}}}}};
}

Json completion_schema(CompletionKind kind) {
  const bool chat = kind == CompletionKind::kChat;
  const char* told = chat ? "message" : "text";
  Json properties = {{"index", typed("integer", "of the choice: prompts in their order, each with n choices")},
                     {"logprobs", chat ? chat_log_probabilities_schema() : text_log_probabilities_schema()},
                     {"finish_reason", nullable("string", "stop or length")}};
  properties[told] = {{"type", chat ? "object" : "string"}};
  const Json choice = {
      {"type", "object"}, {"required", {"index", told, "logprobs", "finish_reason"}}, {"properties", properties}};
  return {{"type", "object"},
          {"required", {"id", "object", "created", "model", "choices", "usage"}},
          {"properties", {{"choices", list_of(choice)}}}};
}

HttpRoute plain_route(const char* method, const char* pattern, const char* operation, const char* summary) {
  HttpRoute route;
  route.method = method;
  route.pattern = pattern;
  route.operation = operation;
  route.summary = summary;
  return route;
}

HttpRoute open_ai_route(const char* method, const char* pattern, const char* operation, const char* summary) {
  HttpRoute route = plain_route(method, pattern, operation, summary);
  route.refuse = open_ai_refusal;
  for (const int status : {400, 401, 404, 429, 503})
    route.answers.push_back({status, "The request was refused", "application/json", error_schema()});
  return route;
}

HttpRoute frozen_route(const char* method, const char* pattern, const char* operation, const char* summary, bool of_agents) {
  HttpRoute route = plain_route(method, pattern, operation, summary);
  if (of_agents) route.access = Access::kAdmin;
  return route;
}

Json frozen_schema() {
  return {{"type", "object"},
          {"required", {"id", "object", "caller", "extra_key", "tokens", "pages", "found"}},
          {"properties",
           {{"id", typed("integer", "no other text gets it")},
            {"object", {{"const", "frozen_text"}}},
            {"caller", typed("string", "whose requests find it")},
            {"extra_key", typed("string", "the name that it is found by")},
            {"tokens", typed("integer", "those that can be found: whole blocks of a page")},
            {"pages", typed("integer", "that hold them")},
            {"found", typed("integer", "requests that have copied some of it")}}}};
}

}  // namespace

HttpRoute models_route() {
  HttpRoute route = open_ai_route("GET", "/v1/models", "listModels", "The models of this server, and the flows that it offers");
  route.answers.push_back({200, "One model", "application/json", {{"type", "object"}, {"required", {"object", "data"}}}});
  return route;
}

HttpRoute model_route() {
  HttpRoute route = open_ai_route("GET", "/v1/models/{model}", "getModel", "One model");
  route.path_parameters = {{"model", "its name"}};
  route.answers.push_back({200, "The model", "application/json", {{"type", "object"}, {"required", {"id", "object"}}}});
  return route;
}

HttpRoute completion_route(CompletionKind kind, bool wants_token) {
  constexpr size_t kMostBytes = size_t{4} << 20;
  const bool chat = kind == CompletionKind::kChat;
  HttpRoute route = chat ? open_ai_route("POST", "/v1/chat/completions", "createChatCompletion", "Answer a conversation")
                         : open_ai_route("POST", "/v1/completions", "createCompletion", "Continue prompts");
  if (wants_token) route.access = Access::kWrite;
  route.counts_as_read = true;  // the few writes a minute are for submissions; the engines' queue bounds what is dear
  route.consumes = {"application/json"};
  route.body_schema = chat ? chat_body() : text_body();
  route.most_body_bytes = kMostBytes;
  route.answers.push_back(
      {200, "The answer; with \"stream\" chunks as text/event-stream, then [DONE]", "application/json", completion_schema(kind)});
  return route;
}

HttpRoute freeze_route(bool of_agents) {
  constexpr size_t kMostBytes = size_t{4} << 20;
  HttpRoute route = frozen_route("POST", "/v1/frozen", "freezeText", "Compute a text, and keep it known", of_agents);
  route.counts_as_read = true;  // as completions are
  route.consumes = {"application/json"};
  route.most_body_bytes = kMostBytes;
  route.body_schema = {
      {"type", "object"},
      {"required", {"prompt"}},
      {"properties",
       {{"prompt", {{"oneOf", {typed("string", "the text, as a segment of a chat has it"), list_of({{"type", "integer"}})}}}},
        {"extra_key", {{"type", "string"}, {"maxLength", kLongestExtraKey}, {"description", "the name that it is found by"}}},
        {"agent", typed("string", "whose requests find it; the caller's own without it")}}}};
  route.answers.push_back({200, "The text", "application/json", frozen_schema()});
  return route;
}

HttpRoute frozen_list_route(bool of_agents) {
  HttpRoute route = frozen_route("GET", "/v1/frozen", "listFrozenTexts", "Texts that stay known", of_agents);
  route.query = {{"extra_key", "only those of this name"}};
  route.answers.push_back({200,
                           "The texts, in the order in which they were frozen",
                           "application/json",
                           {{"type", "object"},
                            {"required", {"object", "data"}},
                            {"properties", {{"object", {{"const", "list"}}}, {"data", list_of(frozen_schema())}}}}});
  return route;
}

HttpRoute thaw_route(bool of_agents) {
  HttpRoute route = frozen_route("DELETE", "/v1/frozen/{id}", "thawText", "Forget a text that stays known", of_agents);
  route.counts_as_read = true;
  route.path_parameters = {{"id", "its number"}};
  route.answers.push_back({200, "It is not found any more", "application/json", {{"type", "object"}}});
  return route;
}

HttpRoute metrics_route() {
  HttpRoute route = plain_route("GET", "/metrics", "getMetrics", "Counters for Prometheus, under the names that vLLM gives them");
  route.answers = {{200, "Text format 0.0.4", "text/plain", {{"type", "string"}}}};
  return route;
}

HttpRoute health_route(const char* pattern, const char* operation, const char* summary) {
  HttpRoute route = plain_route("GET", pattern, operation, summary);
  route.access = Access::kPublic;
  route.answers = {{200, "It does", "application/json", {{"type", "object"}}}};
  return route;
}

}  // namespace sluice
