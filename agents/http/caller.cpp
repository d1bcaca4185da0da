#include "agents/http/caller.h"

#include "agents/http/network.h"

namespace sluice {

std::string caller_of(const HttpRequest& request) {
  return request.identity ? "agent " + request.identity->name : "address " + network_of(request.remote_address);
}

}  // namespace sluice
