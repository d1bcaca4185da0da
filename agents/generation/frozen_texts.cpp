#include "agents/generation/frozen_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "agents/generation/completion_request.h"
#include "agents/generation/generation_schema.h"
#include "agents/http/caller.h"
#include "agents/http/http_problem.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

/// Token ids, or a text, whose tokens are those of a segment of a chat that says the same.
std::vector<int32_t> read_text(const JsonObject& body, const Tokenizer& tokenizer, const PromptBounds& bounds) {
  const Json& prompt = body.at("prompt");
  if (prompt.is_array()) return read_token_ids(prompt, "prompt");
  if (!prompt.is_string()) body.refuse("prompt", "a text is wanted, or a list of token ids");
  const auto& text = prompt.get_ref<const std::string&>();
  bounds.check(text.size(), "prompt");
  return tokenizer.encode_as_written(text);
}

/// Waits for a task to end. Throws HttpProblem.
GenerationEvent end_of(GenerationQueue& events, const HttpRequest& http) {
  constexpr std::chrono::milliseconds kTurn(50);
  for (;;) {
    if (!http.is_wanted()) throw HttpProblem(503, "the server stops, or the client has gone");
    const std::optional<GenerationEvent> event = events.pop(kTurn);
    if (!event) continue;
    if (event->kind == GenerationEvent::Kind::kFailed) throw HttpProblem(event->status, event->message);
    if (event->kind == GenerationEvent::Kind::kFinished) return *event;
  }
}

Json document_of(const FrozenText& text) {
  return {{"id", text.id},         {"object", "frozen_text"}, {"caller", text.tenant}, {"extra_key", text.extra_key},
          {"tokens", text.tokens}, {"pages", text.pages},     {"found", text.found}};
}

HttpResponse response_of(const Json& json) {
  HttpResponse response;
  response.body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return response;
}

}  // namespace

FrozenTexts::FrozenTexts(EngineThread& engines, const Tokenizer& tokenizer, const PromptBounds& bounds, bool of_agents)
    : engines_(engines), tokenizer_(tokenizer), bounds_(bounds), of_agents_(of_agents) {}

GenerationTask FrozenTexts::task_of(const HttpRequest& http) const {
  constexpr size_t kLongestName = 256;
  const Json json = parse_json(http.body, "body");
  const JsonObject body(json, "body");
  body.refuse_others({"prompt", "extra_key", "agent"});
  GenerationTask task;
  task.caller = caller_of(http);
  task.events = std::make_shared<GenerationQueue>();
  Request& request = task.request;
  request.prompt = read_text(body, tokenizer_, bounds_);
  if (request.prompt.empty()) throw HttpProblem(400, "the text has no tokens").with("param", "prompt");
  request.segments = {{0, static_cast<int>(request.prompt.size()), read_extra_key(body)}};
  request.tenant = task.caller;
  if (const std::string* const agent = body.find_text("agent")) {
    if (!of_agents_) throw HttpProblem(400, "this server has no agents").with("param", "agent");
    if (agent->empty() || agent->size() > kLongestName)
      body.refuse("agent", fmt::format("a name has 1 to {} bytes", kLongestName));
    request.tenant = caller_of_agent(*agent);
  }
  request.freeze = true;
  request.max_tokens = 1;  // no engine does less
  request.ignore_eos = true;
  return task;
}

HttpResponse FrozenTexts::freeze(const HttpRequest& http) {
  std::vector<GenerationTask> tasks;
  tasks.push_back(task_of(http));
  const std::shared_ptr<GenerationQueue> events = tasks.front().events;
  const std::vector<uint64_t> ids = engines_.submit(std::move(tasks));
  http.end_body();  // a long text may take minutes
  uint64_t frozen = 0;
  try {
    frozen = end_of(*events, http).frozen;
  } catch (...) {
    engines_.cancel(ids.front(), false);
    throw;
  }
  for (const FrozenText& text : engines_.frozen_texts()) {
    if (text.id == frozen) return response_of(document_of(text));
  }
  throw HttpProblem(503, frozen == 0 ? "others took the room of the text before it could be frozen"
                                     : "the text was deleted, or others took its room, as soon as it was frozen")
      .with_header("Retry-After", "10");
}

std::vector<FrozenText> FrozenTexts::visible_to(const HttpRequest& http) {
  std::vector<FrozenText> texts = engines_.frozen_texts();
  if (!of_agents_) std::erase_if(texts, [caller = caller_of(http)](const FrozenText& text) { return text.tenant != caller; });
  return texts;
}

HttpResponse FrozenTexts::list(const HttpRequest& http) {
  const std::optional<std::string> wanted = http.query_value("extra_key");
  Json data = Json::array();
  for (const FrozenText& text : visible_to(http)) {
    if (!wanted || *wanted == text.extra_key) data.push_back(document_of(text));
  }
  return response_of({{"object", "list"}, {"data", std::move(data)}});
}

HttpResponse FrozenTexts::thaw(const HttpRequest& http) {
  const std::string& name = http.path_parameters.at("id");
  const std::vector<FrozenText> texts = visible_to(http);
  const auto found =
      std::find_if(texts.begin(), texts.end(), [&](const FrozenText& text) { return std::to_string(text.id) == name; });
  if (found == texts.end() || !engines_.thaw(found->id))
    throw HttpProblem(404, fmt::format("there is no frozen text \"{}\"", name));
  return response_of({{"id", found->id}, {"object", "frozen_text"}, {"deleted", true}});
}

void FrozenTexts::add_routes(HttpServer& server) {
  HttpRoute freezing = freeze_route(of_agents_);
  freezing.handle = [this](const HttpRequest& http) { return freeze(http); };
  server.add(std::move(freezing));
  HttpRoute listing = frozen_list_route(of_agents_);
  listing.handle = [this](const HttpRequest& http) { return list(http); };
  server.add(std::move(listing));
  HttpRoute thawing = thaw_route(of_agents_);
  thawing.handle = [this](const HttpRequest& http) { return thaw(http); };
  server.add(std::move(thawing));
}

}  // namespace sluice
