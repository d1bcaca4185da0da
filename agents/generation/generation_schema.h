#pragma once

#include "agents/generation/completion_request.h"
#include "agents/http/router.h"

namespace sluice {

// Routes of the generation API as the OpenAPI document describes them, without their handlers.
HttpRoute models_route();
HttpRoute model_route();
HttpRoute completion_route(CompletionKind kind, bool wants_token);
/// `of_agents`: only administrators may.
HttpRoute freeze_route(bool of_agents);
HttpRoute frozen_list_route(bool of_agents);
HttpRoute thaw_route(bool of_agents);
HttpRoute metrics_route();
HttpRoute health_route(const char* pattern, const char* operation, const char* summary);

}  // namespace sluice
