#include "agents/harness/harness_routes.h"
#include "agents/harness/route_parts.h"
#include "agents/harness/schemas.h"
#include "agents/http/caller.h"

namespace sluice {
namespace {

HttpRoute agents_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/agents", "listAgents", "Who hands in flows, and how they fare", Access::kRead);
  gives_json(route, schemas::list("agents", schemas::agent()));
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.agents(caller));
  };
  return route;
}

HttpRoute me_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/me", "getMe", "Whose the token is, and what is left of the quota", Access::kWrite);
  gives_json(route, schemas::me());
  route.handle = [&service](const HttpRequest& request) { return json_answer(service.me(*request.identity)); };
  return route;
}

HttpRoute create_route(HarnessService& service) {
  HttpRoute route = route_of("POST", "/v1/agents", "createAgent", "Makes an agent; its token is told only now", Access::kAdmin);
  takes_json(route, schemas::agent_draft());
  gives_json(route, schemas::new_agent(), 201);
  route.handle = [&service](const HttpRequest& request) {
    return json_answer(service.create_agent(*request.identity, body_of(request, "agent")), 201);
  };
  return route;
}

HttpRoute token_route(HarnessService& service) {
  HttpRoute route = route_of("POST", "/v1/agents/{name}/token", "replaceToken",
                             "A new token for an agent; the old one is of no use any more", Access::kAdmin);
  gives_json(route, schemas::new_token());
  route.handle = [&service](const HttpRequest& request) {
    return json_answer(service.replace_token(*request.identity, request.path_parameters.at("name")));
  };
  return route;
}

HttpRoute quota_route(HarnessService& service) {
  HttpRoute route = route_of("PUT", "/v1/agents/{name}/quota", "setQuota",
                             "How many new submissions an agent has in any 24 hours", Access::kAdmin);
  takes_json(route, schemas::quota_draft());
  gives_json(route, schemas::quota());
  route.handle = [&service](const HttpRequest& request) {
    return json_answer(service.set_quota(*request.identity, request.path_parameters.at("name"), body_of(request, "quota")));
  };
  return route;
}

}  // namespace

void add_agent_routes(HttpServer& server, HarnessService& service) {
  for (const auto& make : {agents_route, me_route, create_route, token_route, quota_route}) server.add(make(service));
}

}  // namespace sluice
