#pragma once

#include "agents/http/http_server.h"

namespace sluice {

/// Serves the page for people at "/". Its scripts read the routes below /v1, nothing else.
void add_web_routes(HttpServer& server);

}  // namespace sluice
