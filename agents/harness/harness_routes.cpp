#include "agents/harness/harness_routes.h"

namespace sluice {

void add_harness_routes(HttpServer& server, HarnessService& service) {
  add_submission_routes(server, service);
  add_study_routes(server, service);
  add_comparison_routes(server, service);
  add_language_routes(server, service);
  add_agent_routes(server, service);
}

}  // namespace sluice
