#include "agents/generation/generation_api.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iterator>

#include "agents/generation/completion.h"
#include "agents/generation/generation_schema.h"
#include "agents/generation/open_ai_answer.h"
#include "agents/http/caller.h"
#include "agents/http/event_stream.h"
#include "host/weights/model_name.h"

namespace sluice {
namespace {

using Milliseconds = std::chrono::milliseconds;

int64_t seconds_since_1970() { return std::time(nullptr); }

/// A stream of chunks as OpenAI's clients read it.
class CompletionStream final : public BodyStream {
 public:
  CompletionStream(CompletionAnswer answer, std::unique_ptr<Completion> completion)
      : answer_(std::move(answer)), completion_(std::move(completion)), begun_(static_cast<size_t>(completion_->choices())) {}

  std::optional<std::string> next(Milliseconds wait) override {
    if (done_) return std::nullopt;
    std::string text;
    try {
      if (const auto piece = completion_->next(wait)) text = begin(piece->choice) + piece_chunk(answer_, *piece);
      if (!completion_->ended()) return text;
      done_ = true;
      return text + last_chunks(answer_, completion_->usage());
    } catch (const HttpProblem& problem) {  // the status has been sent; only the stream can tell
      done_ = true;
      return error_chunk(problem);
    }
  }
  std::string heartbeat() const override { return ": still here\n\n"; }

 private:
  /// The chunk with a role comes with the first token of its choice: clients measure the time to it.
  std::string begin(int choice) {
    const auto at = static_cast<size_t>(choice);
    if (begun_[at]) return {};
    begun_[at] = true;
    return first_chunk(answer_, choice);
  }

  CompletionAnswer answer_;
  std::unique_ptr<Completion> completion_;
  std::vector<bool> begun_;  // by choice
  bool done_ = false;
};

/// Waits for all of it. Throws HttpProblem.
std::vector<CompletionPiece> collect(Completion& completion, const HttpRequest& http) {
  constexpr Milliseconds kTurn(50);
  std::vector<CompletionPiece> choices(static_cast<size_t>(completion.choices()));
  auto look = GenerationClock::now() + kTurn;
  while (!completion.ended()) {
    if (GenerationClock::now() >= look) {
      if (!http.is_wanted()) throw HttpProblem(503, "the server stops, or the client has gone");
      look = GenerationClock::now() + kTurn;
    }
    std::optional<CompletionPiece> piece = completion.next(kTurn);
    if (piece) {
      CompletionPiece& choice = choices[static_cast<size_t>(piece->choice)];
      choice.choice = piece->choice;
      choice.text += piece->text;
      choice.tokens.insert(choice.tokens.end(), std::make_move_iterator(piece->tokens.begin()),
                           std::make_move_iterator(piece->tokens.end()));
      choice.finish_reason = piece->finish_reason;
    }
  }
  return choices;
}

/// Bytes that no text has more of for each of its tokens, a space between words included.
size_t most_bytes_of_token(const Tokenizer& tokenizer) {
  size_t most = 0;
  for (int32_t id = 0; id < tokenizer.vocabulary(); ++id) most = std::max(most, tokenizer.decode({&id, 1}, false).size());
  return most + 1;
}

HttpResponse response_of(std::string json) {
  HttpResponse response;
  response.body = std::move(json);
  return response;
}

HttpResponse json_response(const nlohmann::json& value) { return response_of(json_text(value)); }

}  // namespace

GenerationApi::GenerationApi(GenerationOptions options, std::vector<std::string> flows)
    : model_(model_name(options.model)),
      flows_(std::move(flows)),
      token_for_completions_(options.token_for_completions),
      check_other_flow_(options.check_flow),
      trouble_(options.trouble),
      of_agents_(options.of_agents),
      tokenizer_(load_tokenizer(options.model)),
      chat_(*tokenizer_, load_chat_template(options.model)),
      created_(seconds_since_1970()),
      metrics_(model_),
      engines_(std::move(options), metrics_),
      bounds_{engines_.config().max_positions,
              static_cast<size_t>(engines_.config().max_positions) * most_bytes_of_token(*tokenizer_)},
      frozen_(engines_, *tokenizer_, bounds_, of_agents_) {}

/// A completion whose tasks are queued.
struct GenerationApi::Begun {
  CompletionAnswer answer;
  bool is_stream = false;
  std::unique_ptr<Completion> completion;
};

GenerationApi::Begun GenerationApi::begin(const HttpRequest& http, CompletionKind kind) {
  const CompletionRequest request = parse_completion_request(http.body, kind);
  if (!request.model.empty() && request.model != model_) {
    throw HttpProblem(404, fmt::format("there is no model \"{}\"; this server has \"{}\"", request.model, model_))
        .with("param", "model")
        .with("code", "model_not_found");
  }
  check_flow(request.flow);
  Begun begun;
  begun.answer.kind = kind;
  begun.answer.id = (kind == CompletionKind::kChat ? "chatcmpl-" : "cmpl-") + http.id;
  begun.answer.model = model_;
  begun.answer.created = seconds_since_1970();
  begun.answer.include_usage = request.include_usage;
  begun.answer.tokenizer = request.likely < 0 ? nullptr : tokenizer_.get();
  begun.answer.echo = request.echo;
  begun.is_stream = request.stream;
  begun.completion = std::make_unique<Completion>(engines_, *tokenizer_, chat_, request, bounds_, caller_of(http));
  return begun;
}

HttpResponse GenerationApi::complete(const HttpRequest& http, CompletionKind kind) {
  Begun begun = begin(http, kind);
  http.end_body();  // an answer may take minutes
  begun.completion->wait_until_accepted(http.is_wanted);
  if (begun.is_stream) {
    return event_response(std::make_shared<CompletionStream>(std::move(begun.answer), std::move(begun.completion)));
  }
  const std::vector<CompletionPiece> choices = collect(*begun.completion, http);
  return response_of(whole_answer(begun.answer, choices, begun.completion->usage()));
}

void GenerationApi::check_flow(const std::string& flow) const {
  if (flow.empty() || std::find(flows_.begin(), flows_.end(), flow) != flows_.end()) return;
  if (check_other_flow_ && flow.find(':') != std::string::npos) return check_other_flow_(flow);
  throw HttpProblem(400, fmt::format("there is no flow \"{}\"; there are {}", flow, fmt::join(flows_, ", ")))
      .with("param", "flow");
}

nlohmann::json GenerationApi::model_object() const {
  return {{"id", model_},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "sluice"},
          {"root", model_},
          {"parent", nullptr},
          {"max_model_len", engines_.config().max_positions},
          {"flows", flows_}};
}

void GenerationApi::add_routes(HttpServer& server) {
  server.refuse_by("/v1/", problem_with_error);
  HttpRoute models = models_route();
  models.handle = [this](const HttpRequest&) {
    return json_response({{"object", "list"}, {"data", nlohmann::json::array({model_object()})}});
  };
  server.add(std::move(models));

  HttpRoute model = model_route();
  model.handle = [this](const HttpRequest& request) {
    if (request.path_parameters.at("model") != model_) {
      throw HttpProblem(404, fmt::format("this server has the model \"{}\"", model_)).with("code", "model_not_found");
    }
    return json_response(model_object());
  };
  server.add(std::move(model));

  for (const CompletionKind kind : {CompletionKind::kText, CompletionKind::kChat}) {
    HttpRoute route = completion_route(kind, token_for_completions_);
    route.handle = [this, kind](const HttpRequest& request) { return complete(request, kind); };
    server.add(std::move(route));
  }

  frozen_.add_routes(server);

  HttpRoute metrics = metrics_route();
  metrics.handle = [this](const HttpRequest&) {
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = metrics_.text();
    return response;
  };
  server.add(std::move(metrics));

  HttpRoute live = health_route("/health/live", "getLive", "Whether the process answers");
  live.handle = [](const HttpRequest&) { return json_response({{"status", "ok"}}); };
  server.add(std::move(live));

  const std::pair<const char*, const char*> ready_routes[] = {
      {"/health", "getHealth"}, {"/v1/health", "getVersionedHealth"}, {"/health/ready", "getReady"}};
  for (const auto& [pattern, operation] : ready_routes) {
    HttpRoute ready = health_route(pattern, operation, "Whether requests are taken");
    ready.handle = [this](const HttpRequest&) {
      if (!engines_.ready()) throw HttpProblem(503, "the server stops");
      if (const std::string trouble = trouble_ ? trouble_() : ""; !trouble.empty()) throw HttpProblem(503, trouble);
      return json_response({{"status", "ok"}});
    };
    server.add(std::move(ready));
  }
}

}  // namespace sluice
