#include <fmt/format.h>

#include <algorithm>

#include "agents/evaluation/metric_table.h"
#include "agents/harness/documents.h"
#include "agents/harness/harness_routes.h"
#include "agents/harness/route_parts.h"
#include "agents/harness/schemas.h"
#include "agents/http/caller.h"
#include "agents/http/event_stream.h"

namespace sluice {
namespace {

store::Ranking ranking_of(const HttpRequest& request, int usual, int most) {
  constexpr int64_t kMostTokens = int64_t{1} << 30;
  store::Ranking ranking;
  ranking.task = query_text(request, "task");
  ranking.length = query_number(request, "tokens", 0, 0, kMostTokens);
  ranking.metric = known_metric(query_text(request, "metric", metrics::usual(ranking.is_of_all())));
  const std::string order = query_text(request, "order", metrics::is_better_high(ranking.metric) ? "descending" : "ascending");
  if (order != "descending" && order != "ascending") throw HttpProblem(400, "order is descending or ascending");
  ranking.higher_is_better = order == "descending";
  ranking.filter = filter_of(request);
  ranking.limit = static_cast<int>(query_number(request, "limit", usual, 1, most));
  ranking.skip = query_number(request, "skip", 0, 0, INT64_MAX / 2);
  return ranking;
}

/// A metric of which more is better.
std::string better_high(const std::string& name) {
  if (metrics::is_better_high(known_metric(name))) return name;
  throw HttpProblem(422, fmt::format("a front is of metrics of which more is better, not of {}", name));
}

std::vector<RouteParameter> ranking_parameters() {
  return with_filters(
      {{"metric", metrics::names()},
       {"task", "of the metric, at the length `tokens`; none: of all together"},
       {"tokens", "length of the task's prompts", schemas::integer()},
       {"order", "descending or ascending; without it the best first"},
       {"limit", "most entries", schemas::integer()},
       {"skip", "entries to leave out: of the leaderboard the best, of the history the newest", schemas::integer()}});
}

HttpRoute leaderboard_route(HarnessService& service) {
  HttpRoute route =
      route_of("GET", "/v1/leaderboard", "getLeaderboard",
               "Submissions that passed (or have the status asked for), by a metric: as confirmed or, without that, as judged. "
               "A rank is one more than there are entries that are better by more than the intervals. By score, and without a "
               "model, what passed its final stands first, by that (by_final), and what did not pass it last",
               Access::kRead);
  route.query = ranking_parameters();
  gives_json(route, schemas::counted(schemas::list("entries", schemas::ranked())));
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.leaderboard(ranking_of(request, 100, 1000), caller));
  };
  return route;
}

HttpRoute finals_route(HarnessService& service) {
  HttpRoute route =
      route_of("GET", "/v1/finals", "getFinals",
               "Where the model that judges first and that of finals disagree, by score: pairs that both tell apart, "
               "in opposite order, and flows that passed on one alone",
               Access::kRead);
  constexpr int kUsual = 20;
  constexpr int kMost = 200;
  route.query = with_filters({{"limit", "most of each list (20)", schemas::integer()}});
  gives_json(route, schemas::finals());
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(
        service.finals(filter_of(request), static_cast<int>(query_number(request, "limit", kUsual, 1, kMost)), caller));
  };
  return route;
}

HttpRoute front_route(HarnessService& service) {
  HttpRoute route =
      route_of("GET", "/v1/front", "getFront",
               "Submissions that none beats both in score and in speed, as confirmed or, without that, as judged", Access::kRead);
  route.query = with_filters({{"metric", "one metric (score)"}, {"speed", "and the other (speedup)"}});
  gives_json(route, schemas::list("points", schemas::front_point()));
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.front(better_high(query_text(request, "metric", metrics::kScore.name)),
                                     better_high(query_text(request, "speed", metrics::kSpeedup.name)), filter_of(request),
                                     caller));
  };
  return route;
}

HttpRoute history_route(HarnessService& service) {
  HttpRoute route = route_of("GET", "/v1/history", "getHistory",
                             "A metric as judged, by the time of the verdict, and the best so far", Access::kRead);
  route.query = ranking_parameters();
  gives_json(route, schemas::counted(schemas::list("points", schemas::history_point())));
  constexpr int kMost = 10'000;
  route.handle = [&service](const HttpRequest& request) {
    Caller caller(caller_of(request));
    return json_answer(service.history(ranking_of(request, kMost, kMost), caller));
  };
  return route;
}

HttpRoute events_route(HarnessService& service) {
  HttpRoute route =
      route_of("GET", "/v1/events", "streamEvents",
               "What happens, as it happens: submitted, running, progress, retried, cancelled, finished, confirmation, final",
               Access::kRead);
  route.query = {
      {"after", "sequence number to go on after; without it, and without Last-Event-ID: what comes next", schemas::integer()}};
  route.headers = {{"Last-Event-ID", "the same, as browsers send it after a break", schemas::integer()}};
  route.answers = {{200, "Server-sent events", "text/event-stream", schemas::text()}};
  route.handle = [&service](const HttpRequest& request) {
    std::optional<int64_t> after;
    if (const auto last = last_event_id(request)) after = static_cast<int64_t>(std::min<uint64_t>(*last, INT64_MAX));
    if (!after && request.query_value("after")) after = query_number(request, "after", 0, 0, INT64_MAX);
    return event_response(service.events(after));
  };
  return route;
}

}  // namespace

void add_comparison_routes(HttpServer& server, HarnessService& service) {
  for (const auto& make : {leaderboard_route, finals_route, front_route, history_route, events_route}) server.add(make(service));
}

}  // namespace sluice
