#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agents/generation/completion_request.h"
#include "agents/generation/engine_thread.h"
#include "agents/generation/frozen_texts.h"
#include "agents/generation/metrics.h"
#include "agents/http/http_server.h"
#include "host/text/tokenizer.h"

namespace sluice {

/// OpenAI's endpoints, metrics and health, on an engine thread of its own.
class GenerationApi {
 public:
  /// Loads the model. `flows` are the names of which the list of models tells. Throws InputError.
  GenerationApi(GenerationOptions options, std::vector<std::string> flows);

  /// Adds the routes to `server`, which must end before this object.
  void add_routes(HttpServer& server);
  const std::string& model() const { return model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  EngineThread& engines() { return engines_; }
  const GenerationMetrics& metrics() const { return metrics_; }

 private:
  struct Begun;

  HttpResponse complete(const HttpRequest& http, CompletionKind kind);
  /// Throws HttpProblem.
  Begun begin(const HttpRequest& http, CompletionKind kind);
  /// Throws HttpProblem if this server does not offer it.
  void check_flow(const std::string& flow) const;
  nlohmann::json model_object() const;

  const std::string model_;  // its name
  const std::vector<std::string> flows_;
  const bool token_for_completions_;
  const std::function<void(const std::string&)> check_other_flow_;
  const std::function<std::string()> trouble_;
  const bool of_agents_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  const ChatPrompt chat_;
  const int64_t created_;
  GenerationMetrics metrics_;
  EngineThread engines_;
  const PromptBounds bounds_;
  FrozenTexts frozen_;
};

}  // namespace sluice
