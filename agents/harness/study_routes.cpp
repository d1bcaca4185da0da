#include <fmt/format.h>

#include "agents/evaluation/metric_table.h"
#include "agents/harness/documents.h"
#include "agents/harness/harness_routes.h"
#include "agents/harness/route_parts.h"
#include "agents/harness/schemas.h"
#include "agents/harness/store_problem.h"
#include "agents/http/caller.h"

namespace sluice {
namespace {

constexpr int kUsualPage = 50;
/// Of a list as long as it may be, with all texts as long as they may be; JSON has two bytes for some characters.
constexpr size_t kMostTrialBytes =
    store::Limits::kTrialsAtOnce * 2 * (store::Limits::kScript + store::Limits::kNotes + store::Limits::kParameters);

store::StudyId study_of(const HttpRequest& request) { return path_number(request, "study", "the number of a study", 1); }
int64_t number_of(const HttpRequest& request) { return path_number(request, "number", "the number of a trial", 0); }

int limit_of(const HttpRequest& request) {
  return static_cast<int>(query_number(request, "limit", kUsualPage, 1, store::Limits::kPage));
}

std::vector<RouteParameter> with_paging(std::vector<RouteParameter> parameters) {
  parameters.push_back({"cursor", "next of the page before"});
  parameters.push_back({"limit", "most of a page, up to 200", schemas::integer()});
  return parameters;
}

store::Objective objective_of(const HttpRequest& request) {
  store::Objective objective;
  objective.metric = query_text(request, "metric", metrics::kScore.name);
  const std::string direction =
      query_text(request, "direction", metrics::is_better_high(objective.metric) ? "maximize" : "minimize");
  if (direction != "maximize" && direction != "minimize") throw HttpProblem(400, "direction is maximize or minimize");
  objective.is_maximized = direction == "maximize";
  objective.limit = limit_of(request);
  objective.skip = query_number(request, "skip", 0, 0, INT64_MAX / 2);
  return objective;
}

HttpRoute create_route(HarnessService& service) {
  HttpRoute route =
      route_of("POST", "/v1/studies", "createStudy", "Makes a study: trials with one goal and the same settings", Access::kWrite);
  takes_json(route, schemas::study_draft());
  route.answers = {{201, "A new study", "application/json", schemas::study(true)},
                   {200, "The study of that name, with this goal and these settings", "application/json", schemas::study(true)}};
  route.handle = [&service](const HttpRequest& request) {
    const auto study = service.create_study(*request.identity, body_of(request, "study"));
    HttpResponse response = json_answer(study, study.at("is_new").get<bool>() ? 201 : 200);
    response.headers["Location"] = fmt::format("/v1/studies/{}", study.at("id").dump());
    return response;
  };
  return route;
}

HttpRoute list_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/studies", "listStudies", "Studies, the newest first", Access::kRead);
  route.query = with_paging({{"agent", "whose they are"}, {"state", "open or closed"}});
  gives_json(route, schemas::page_of("studies", schemas::study()));
  route.handle = [&service](const HttpRequest& request) {
    store::StudyFilter filter{.agent = query_text(request, "agent"), .state = {}};
    if (const auto state = request.query_value("state")) {
      filter.state = as_problems([&] { return store::study_state_of(*state); });
    }
    Caller caller(caller_of(request));
    return json_answer(service.studies(filter, query_text(request, "cursor"), limit_of(request), caller));
  };
  return route;
}

HttpRoute show_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/studies/{study}", "getStudy", "One study, and how many of its trials are in which state",
                             Access::kRead);
  gives_json(route, schemas::study());
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.study(study_of(request), caller));
  };
  return route;
}

HttpRoute state_route(HarnessService& service) {
  HttpRoute route = route_of("PUT", "/v1/studies/{study}/state", "setStudyState",
                             "Closes a study of one's own, which then takes no more trials, or opens it", Access::kWrite);
  takes_json(route, schemas::study_state_draft());
  gives_json(route, schemas::study());
  route.handle = [&service](const HttpRequest& request) {
    return json_answer(service.set_study_state(*request.identity, study_of(request), body_of(request, "study")));
  };
  return route;
}

HttpRoute add_route(HarnessService& service) {
  HttpRoute route = route_of("POST", "/v1/studies/{study}/trials", "addTrials",
                             "Adds a trial, or a list of up to 100, to a study of one's own: all or none", Access::kWrite);
  takes_json(route, schemas::trial_drafts());
  route.most_body_bytes = kMostTrialBytes;
  route.headers = {{"Idempotency-Key", "any text that is new in the study for each new request, up to 200 bytes"}};
  const auto answer = schemas::list("trials", schemas::trial());
  route.answers = {{201, "New trials", "application/json", answer},
                   {200, "What the same request added before", "application/json", answer}};
  route.handle = [&service](const HttpRequest& request) {
    const auto [trials, is_new] = service.add_trials(*request.identity, study_of(request), body_of(request, "trials"),
                                                     request.header("Idempotency-Key").value_or(""));
    return json_answer(trials, is_new ? 201 : 200);
  };
  return route;
}

HttpRoute trials_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/studies/{study}/trials", "listTrials", "Trials of a study, by number", Access::kRead);
  route.query = with_paging(
      {{"state", "waiting, running, complete, failed or pruned"}, {"submission", "whose trials", schemas::submission_id()}});
  gives_json(route, schemas::page_of("trials", schemas::trial()));
  route.handle = [&service](const HttpRequest& request) {
    store::TrialFilter filter{.state = {}, .submission = query_id(request, "submission")};
    if (const auto state = request.query_value("state")) {
      filter.state = as_problems([&] { return store::trial_state_of(*state); });
    }
    Caller caller(caller_of(request));
    return json_answer(service.trials(study_of(request), filter, query_text(request, "cursor"), limit_of(request), caller));
  };
  return route;
}

HttpRoute best_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/studies/{study}/best", "getBestTrials",
                             "Complete trials of a study by one value, measured or told, the best first", Access::kRead);
  route.query = {
      {"metric", "score, or any other that trials have"},
      {"direction", fmt::format("maximize or minimize; without it minimize for {}, else maximize", metrics::better_low())},
      {"limit", "most trials, up to 200", schemas::integer()},
      {"skip", "better trials to leave out", schemas::integer()}};
  gives_json(route, schemas::counted(schemas::list("trials", schemas::trial())));
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.best_trials(study_of(request), objective_of(request), caller));
  };
  return route;
}

HttpRoute trial_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/studies/{study}/trials/{number}", "getTrial", "One trial", Access::kRead);
  gives_json(route, schemas::trial());
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.trial(study_of(request), number_of(request), caller));
  };
  return route;
}

HttpRoute evaluation_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/studies/{study}/trials/{number}/evaluation", "getTrialEvaluation",
                             "What ended a trial; of one with a seed the last attempt to judge it", Access::kRead);
  gives_json(route, schemas::evaluation());
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.trial_evaluation(study_of(request), number_of(request), caller));
  };
  return route;
}

HttpRoute artifact_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/studies/{study}/trials/{number}/artifacts/{artifact}", "getTrialArtifact",
                             "What that evaluation left: report.json, graph.json, plan.txt", Access::kRead);
  gives_artifact(route);
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return artifact_answer(
        service.trial_artifact(study_of(request), number_of(request), request.path_parameters.at("artifact"), caller));
  };
  return route;
}

HttpRoute tell_route(HarnessService& service) {
  HttpRoute route = route_of("POST", "/v1/studies/{study}/trials/{number}/tell", "tellTrial",
                             "Ends a trial of one's own study: complete or pruned with values, or failed", Access::kWrite);
  takes_json(route, schemas::told_draft());
  gives_json(route, schemas::trial());
  route.handle = [&service](const HttpRequest& request) {
    return json_answer(service.tell(*request.identity, study_of(request), number_of(request), body_of(request, "trial")));
  };
  return route;
}

}  // namespace

void add_study_routes(HttpServer& server, HarnessService& service) {
  for (const auto& make : {create_route, list_route, show_route, state_route, add_route, trials_route, best_route, trial_route,
                           evaluation_route, artifact_route, tell_route}) {
    server.add(make(service));
  }
}

}  // namespace sluice
