#pragma once

#include <cstddef>
#include <vector>

#include "agents/generation/engine_thread.h"
#include "agents/generation/prompt_bounds.h"
#include "agents/http/http_server.h"
#include "host/text/tokenizer.h"

namespace sluice {

/// Texts that a server is to know, over HTTP: /v1/frozen (host/serving/frozen_pool.h). They lie in the cache of dense attention,
/// and go with its engine.
class FrozenTexts {
 public:
  /// What it refers to must outlive it. `of_agents`: requests bear tokens of agents, and only administrators change what is
  /// there.
  FrozenTexts(EngineThread& engines, const Tokenizer& tokenizer, const PromptBounds& bounds, bool of_agents);

  void add_routes(HttpServer& server);

 private:
  /// What a body asks to freeze. Throws HttpProblem and InputError.
  GenerationTask task_of(const HttpRequest& http) const;
  /// An administrator sees all texts, who needs no token his own.
  std::vector<FrozenText> visible_to(const HttpRequest& http);
  HttpResponse freeze(const HttpRequest& http);
  HttpResponse list(const HttpRequest& http);
  HttpResponse thaw(const HttpRequest& http);

  EngineThread& engines_;
  const Tokenizer& tokenizer_;
  const PromptBounds bounds_;
  const bool of_agents_;
};

}  // namespace sluice
