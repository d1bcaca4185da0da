#pragma once

#include <string>

#include "agents/http/http_message.h"

namespace sluice {

/// Who sends a request, for what callers share: the agent whose token it bears or, without one, the remote network
/// (`network_of`).
std::string caller_of(const HttpRequest& request);
/// The agent of that name.
std::string caller_of_agent(const std::string& name);

}  // namespace sluice
