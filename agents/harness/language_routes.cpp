#include "agents/harness/harness_routes.h"
#include "agents/harness/route_parts.h"
#include "agents/harness/schemas.h"
#include "agents/http/caller.h"

namespace sluice {
namespace {

HttpRoute check_route(HarnessService& service) {
  HttpRoute route =
      route_of("POST", "/v1/check", "checkFlow",
               "Traces and compiles a script without handing it in: its graph and plan, or what is wrong", Access::kWrite);
  takes_json(route, schemas::check_draft());
  gives_json(route, schemas::checked());
  route.handle = [&service](const HttpRequest& request) {
    const CheckDraft draft = check_draft_of(body_of(request, "check"));
    Caller caller(caller_of(request));
    return json_answer(service.check(draft.name, draft.script, caller));
  };
  return route;
}

HttpRoute operators_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/operators", "getOperators", "The operators of the flow language", Access::kRead);
  gives_json(route, schemas::operators());
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.operators(caller));
  };
  return route;
}

HttpRoute guide_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/guide", "getGuide", "How to write, check, hand in and improve a flow", Access::kRead);
  route.answers = {{200, "For agents", "text/markdown", schemas::text()}};
  route.handle = [&service](const HttpRequest& /*request*/) {
    HttpResponse response;
    response.content_type = "text/markdown; charset=utf-8";
    response.body = service.guide();
    return response;
  };
  return route;
}

HttpRoute flows_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/flows", "getFlows", "The flows that ship with the program", Access::kRead);
  gives_json(route, schemas::flows());
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.flows(caller));
  };
  return route;
}

HttpRoute suites_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/suites", "getSuites", "What flows are judged by", Access::kRead);
  gives_json(route, schemas::suites());
  route.handle = [&service](const HttpRequest& /*request*/) { return json_answer(service.suites()); };
  return route;
}

}  // namespace

void add_language_routes(HttpServer& server, HarnessService& service) {
  for (const auto& make : {check_route, operators_route, guide_route, flows_route, suites_route}) server.add(make(service));
}

}  // namespace sluice
