#pragma once

#include "agents/harness/harness_service.h"
#include "agents/http/http_server.h"

namespace sluice {

/// The routes below /v1 through which agents hand in flows and everybody reads what became of them. The service must outlive the
/// server's threads.
void add_harness_routes(HttpServer& server, HarnessService& service);

// Of which these are the parts, one a file.
void add_submission_routes(HttpServer& server, HarnessService& service);
void add_study_routes(HttpServer& server, HarnessService& service);
void add_comparison_routes(HttpServer& server, HarnessService& service);
void add_language_routes(HttpServer& server, HarnessService& service);
void add_agent_routes(HttpServer& server, HarnessService& service);

}  // namespace sluice
