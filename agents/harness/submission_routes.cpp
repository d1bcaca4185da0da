#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "agents/harness/harness_routes.h"
#include "agents/harness/route_parts.h"
#include "agents/harness/schemas.h"
#include "agents/http/caller.h"

namespace sluice {
namespace {

constexpr int kMostWaitSeconds = 60;

HttpRoute submit_route(HarnessService& service) {
  HttpRoute route =
      route_of("POST", "/v1/submissions", "submitFlow",
               "Hands in a flow to be judged; with an Idempotency-Key it may be sent again without harm", Access::kWrite);
  takes_json(route, schemas::draft());
  route.headers = {{"Idempotency-Key", "any text that is new for each new flow, up to 200 bytes"}};
  route.answers = {{201, "A new submission", "application/json", schemas::submission(true)},
                   {200, "The same flow with the same settings was there", "application/json", schemas::submission(true)}};
  route.handle = [&service](const HttpRequest& request) {
    const auto submission =
        service.submit(*request.identity, body_of(request, "submission"), request.header("Idempotency-Key").value_or(""));
    HttpResponse response = json_answer(submission, submission.at("is_new").get<bool>() ? 201 : 200);
    response.headers["Location"] = fmt::format("/v1/submissions/{}", submission.at("id").dump());
    return response;
  };
  return route;
}

HttpRoute list_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/submissions", "listSubmissions", "Submissions, the newest first", Access::kRead);
  route.query = with_filters({{"cursor", "next of the page before"}, {"limit", "most of a page, up to 200", schemas::integer()}});
  gives_json(route, schemas::page());
  route.handle = [&service](const HttpRequest& request) {
    constexpr int kUsual = 50;
    const auto limit = static_cast<int>(query_number(request, "limit", kUsual, 1, store::Limits::kPage));
    Caller caller(caller_of(request));
    return json_answer(service.list(filter_of(request), query_text(request, "cursor"), limit, caller));
  };
  return route;
}

HttpRoute show_route(HarnessService& service) {
  HttpRoute route =
      route_of("GET", "/v1/submissions/{id}", "getSubmission", "One submission and its last evaluation", Access::kRead);
  route.query = {{"wait", fmt::format("seconds to wait for its end, at most {}", kMostWaitSeconds), schemas::integer()}};
  gives_json(route, schemas::judged_submission());
  route.handle = [&service](const HttpRequest& request) {
    const auto id = id_of(request);
    const auto wait = std::chrono::seconds(query_number(request, "wait", 0, 0, kMostWaitSeconds));
    Caller caller(caller_of(request));
    return json_answer(wait.count() > 0 ? service.wait(id, wait, request.is_wanted, caller) : service.get(id, caller));
  };
  return route;
}

HttpRoute evaluations_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/submissions/{id}/evaluations", "getEvaluations",
                             "All attempts to judge it, the first one first", Access::kRead);
  gives_json(route, schemas::list("evaluations", schemas::evaluation()));
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.evaluations(id_of(request), caller));
  };
  return route;
}

HttpRoute artifact_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/submissions/{id}/artifacts/{artifact}", "getArtifact",
                             "What its last evaluation left: report.json, graph.json, plan.txt", Access::kRead);
  gives_artifact(route);
  route.handle = [&service](const HttpRequest& request) {
    const auto id = id_of(request);
    const std::string& name = request.path_parameters.at("artifact");
    Caller caller(caller_of(request));
    auto artifact = service.artifact(id, name, caller);
    if (!artifact) {
      throw HttpProblem(404, fmt::format("submission {} has no artifact \"{:.60}\"", id, name))
          .with("hint", fmt::format("GET /v1/submissions/{} lists them under evaluation.artifacts", id));
    }
    return artifact_answer(std::move(*artifact));
  };
  return route;
}

HttpRoute diff_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/submissions/{id}/diff", "getDiff",
                             "What changed in script, settings and metrics since another submission", Access::kRead);
  route.query = {{"from", "the other submission (its first parent; without parents: nothing)", schemas::integer()},
                 {"context", "all: with every line that is the same"}};
  gives_json(route, schemas::diff());
  route.handle = [&service](const HttpRequest& request) {
    const std::string context = query_text(request, "context");
    if (!context.empty() && context != "all") throw HttpProblem(400, "context is \"all\", or left out");
    Caller caller(caller_of(request));
    return json_answer(service.diff(id_of(request), query_id(request, "from"), context == "all", caller));
  };
  return route;
}

HttpRoute lineage_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/submissions/{id}/lineage", "getLineage",
                             "Its relatives, by number: the nearest, and page by page all", Access::kRead);
  constexpr int kMost = store::Limits::kRelatives;
  route.query = {{"of", "ancestors, descendants or family (all related, the submission among them)"},
                 {"cursor", "`next` of the page before, whose nodes are nearer", schemas::integer()},
                 {"limit", "most nodes (2000)", schemas::integer()}};
  gives_json(route, schemas::relatives());
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.lineage(id_of(request), query_text(request, "of", "family"),
                                       query_number(request, "cursor", 0, 0, INT64_MAX / 2),
                                       query_number(request, "limit", kMost, 1, kMost), caller));
  };
  return route;
}

HttpRoute cancel_route(HarnessService& service) {
  HttpRoute route = route_of("POST", "/v1/submissions/{id}/cancel", "cancelSubmission",
                             "Ends a submission of one's own that waits or runs", Access::kWrite);
  gives_json(route, schemas::submission());
  route.handle = [&service](const HttpRequest& request) {
    return json_answer(service.cancel(*request.identity, id_of(request)));
  };
  return route;
}

HttpRoute confirm_route(HarnessService& service) {
  HttpRoute route =
      route_of("POST", "/v1/submissions/{id}/confirm", "confirmSubmission",
               "Has a submission of one's own that passed judged once more, on new questions; asked for again it is the "
               "one that there is",
               Access::kWrite);
  gives_json(route, schemas::submission());
  route.handle = [&service](const HttpRequest& request) {
    return json_answer(service.confirm(*request.identity, id_of(request)));
  };
  return route;
}

HttpRoute confirmation_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/submissions/{id}/confirmation", "getConfirmation",
                             "The confirmation of its last verdict, and what was found", Access::kRead);
  route.query = {{"wait", fmt::format("seconds to wait for its end, at most {}", kMostWaitSeconds), schemas::integer()}};
  gives_json(route, schemas::judged_confirmation());
  route.handle = [&service](const HttpRequest& request) {
    const auto id = id_of(request);
    const auto wait = std::chrono::seconds(query_number(request, "wait", 0, 0, kMostWaitSeconds));
    Caller caller(caller_of(request));
    return json_answer(service.confirmation(id, wait, request.is_wanted, caller));
  };
  return route;
}

HttpRoute judge_route(HarnessService& service) {
  HttpRoute route =
      route_of("POST", "/v1/submissions/{id}/judge", "judgeAgain", "Judges a finished submission once more", Access::kAdmin);
  gives_json(route, schemas::submission());
  route.handle = [&service](const HttpRequest& request) {
    return json_answer(service.judge_again(*request.identity, id_of(request)));
  };
  return route;
}

}  // namespace

void add_submission_routes(HttpServer& server, HarnessService& service) {
  for (const auto& make : {submit_route, list_route, show_route, evaluations_route, artifact_route, diff_route, lineage_route,
                           cancel_route, confirm_route, confirmation_route, judge_route}) {
    server.add(make(service));
  }
}

}  // namespace sluice
