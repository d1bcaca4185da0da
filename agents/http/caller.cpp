#include "agents/http/caller.h"

#include "agents/http/network.h"

namespace sluice {

std::string caller_of(const HttpRequest& request) {
  return request.identity ? caller_of_agent(request.identity->name) : "address " + network_of(request.remote_address);
}

std::string caller_of_agent(const std::string& name) { return "agent " + name; }

}  // namespace sluice
