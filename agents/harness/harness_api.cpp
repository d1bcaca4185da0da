#include "agents/harness/harness_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>
#include <utility>

#include "agents/harness/documents.h"
#include "agents/harness/store_events.h"
#include "host/json_object.h"
#include "scripting/graph/error.h"
#include "store/error.h"

namespace sluice {
namespace {

using nlohmann::json;
using store::ErrorKind;

constexpr int kMostWaitSeconds = 60;
constexpr std::chrono::milliseconds kLook{50};  // between looks at a submission that somebody waits for

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid:
      return 422;
    case ErrorKind::kNotFound:
      return 404;
    case ErrorKind::kConflict:
      return 409;
    case ErrorKind::kQuota:
      return 429;
    case ErrorKind::kBusy:
    case ErrorKind::kLocked:
      return 503;
    case ErrorKind::kFull:
    case ErrorKind::kUnwritable:
      return 507;
    case ErrorKind::kCorrupted:
    case ErrorKind::kTooNew:
    case ErrorKind::kInternal:
      return 500;
  }
  return 500;
}

/// `handle`, with what the store refuses as a problem.
auto translated(std::function<HttpResponse(const HttpRequest&)> handle) {
  return [handle = std::move(handle)](const HttpRequest& request) {
    try {
      return handle(request);
    } catch (const store::StoreError& error) {
      const int status = status_of(error.kind());
      if (status == 500) throw;
      HttpProblem problem(status, error.what());
      if (!error.hint().empty()) problem.with("hint", error.hint());
      throw problem;
    }
  };
}

HttpResponse answer(const json& document, int status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = json_text(document);
  return response;
}

int64_t number_of(const std::string& text, const std::string& what, int64_t low, int64_t high) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < low || number > high) {
    throw HttpProblem(400, fmt::format("{} is \"{:.60}\"; a number from {} to {} is wanted", what, text, low, high));
  }
  return number;
}

int64_t query_number(const HttpRequest& request, const std::string& name, int64_t otherwise, int64_t low, int64_t high) {
  const auto value = request.query_value(name);
  return value ? number_of(*value, name, low, high) : otherwise;
}

std::string query_text(const HttpRequest& request, const std::string& name, const std::string& otherwise = {}) {
  return request.query_value(name).value_or(otherwise);
}

store::SubmissionId id_of(const HttpRequest& request) {
  return number_of(request.path_parameters.at("id"), "the number of a submission", 1, INT64_MAX);
}

store::Filter filter_of(const HttpRequest& request) {
  store::Filter filter;
  filter.agent = query_text(request, "agent");
  if (const auto status = request.query_value("status")) filter.status = store::status_of(*status);
  filter.model = query_text(request, "model");
  filter.device = query_text(request, "device");
  filter.suite = query_text(request, "suite");
  filter.text = query_text(request, "text");
  return filter;
}

store::Submission found(StorePool& stores, store::SubmissionId id) {
  auto submission = stores.borrow()->get(id);
  if (!submission) throw HttpProblem(404, fmt::format("there is no submission {}", id));
  return std::move(*submission);
}

store::Ranking ranking_of(const HttpRequest& request) {
  store::Ranking ranking;
  ranking.metric = query_text(request, "metric", "accuracy");
  ranking.task = query_text(request, "task");
  ranking.length = query_number(request, "tokens", 0, 0, int64_t{1} << 30);
  const std::string order = query_text(request, "order", "descending");
  if (order != "descending" && order != "ascending") throw HttpProblem(400, "order is descending or ascending");
  ranking.higher_is_better = order == "descending";
  ranking.filter = filter_of(request);
  ranking.limit = static_cast<int>(query_number(request, "limit", 100, 1, 1000));
  return ranking;
}

std::vector<QueryParameter> filters() {
  return {{"agent", "who handed it in"}, {"status", "what became of it"}, {"model", "of its settings"},
          {"device", "of its settings"}, {"suite", "of its settings"},    {"text", "in name, notes or script"}};
}

std::vector<QueryParameter> with_filters(std::vector<QueryParameter> parameters) {
  for (QueryParameter& filter : filters()) parameters.push_back(std::move(filter));
  return parameters;
}

json number_schema() { return {{"type", "integer"}}; }

json draft_schema() {
  const json text = {{"type", "string"}};
  return {{"type", "object"},
          {"required", {"name", "script"}},
          {"properties",
           {{"name", text},
            {"script", text},
            {"notes", text},
            {"parents", {{"type", "array"}, {"items", {{"type", "integer"}}}}},
            {"settings", {{"type", "object"}}}}}};
}

HttpRoute route_of(const char* method, const char* pattern, const char* operation, const char* summary, Access access) {
  HttpRoute route;
  route.method = method;
  route.pattern = pattern;
  route.operation = operation;
  route.summary = summary;
  route.access = access;
  if (route.pattern.find("{id}") != std::string::npos) route.path_parameters = {{"id", "the number of a submission"}};
  return route;
}

}  // namespace

HarnessApi::HarnessApi(std::string database, std::function<void()> changed)
    : database_(database), stores_(std::move(database)), changed_(std::move(changed)) {}

std::optional<Identity> HarnessApi::authenticate(const std::string& token) {
  const auto agent = stores_.borrow()->agent_of_token(token);
  if (!agent) return {};
  return Identity{agent->name, agent->role == store::Role::kAdmin ? Role::kAdmin : Role::kAgent};
}

HttpResponse HarnessApi::submit(const HttpRequest& request) {
  const json document = parse_json(request.body, "submission");
  const JsonObject object(document, "submission");
  for (const auto& [key, value] : object.items()) {
    if (!draft_schema()["properties"].contains(key)) throw HttpProblem(422, fmt::format("unknown member {}", excerpt(key)));
  }
  store::Draft draft;
  draft.name = object.text("name");
  draft.script = object.text("script");
  if (const std::string* notes = object.find_text("notes")) draft.notes = *notes;
  if (const json* settings = object.find("settings")) draft.settings = settings->dump();
  if (object.has("parents")) {
    for (const json& parent : object.array("parents")) {
      if (!parent.is_number_integer()) throw HttpProblem(422, "parents are numbers of submissions");
      draft.parents.push_back(parent.get<int64_t>());
    }
  }
  draft.idempotency_key = request.header("Idempotency-Key").value_or("");
  const store::Submitted submitted = stores_.borrow()->submit(request.identity->name, draft);
  if (submitted.is_new) changed_();
  json result = document_of(found(stores_, submitted.id));
  result["is_new"] = submitted.is_new;
  HttpResponse response = answer(result, submitted.is_new ? 201 : 200);
  response.headers["Location"] = fmt::format("/v1/submissions/{}", submitted.id);
  return response;
}

HttpResponse HarnessApi::show(const HttpRequest& request) {
  const store::SubmissionId id = id_of(request);
  const auto wait = std::chrono::seconds(query_number(request, "wait", 0, 0, kMostWaitSeconds));
  const auto deadline = std::chrono::steady_clock::now() + wait;
  store::Submission submission = found(stores_, id);
  while (!store::is_final(submission.status) && std::chrono::steady_clock::now() < deadline && request.is_wanted()) {
    std::this_thread::sleep_for(kLook);
    submission = found(stores_, id);
  }
  json document = document_of(submission);
  const auto evaluations = stores_.borrow()->evaluations(id);
  document["evaluation"] = evaluations.empty() ? json(nullptr) : document_of(evaluations.back());
  return answer(document);
}

HttpResponse HarnessApi::cancel(const HttpRequest& request) {
  const store::Submission submission = found(stores_, id_of(request));
  if (submission.agent != request.identity->name && request.identity->role != Role::kAdmin) {
    throw HttpProblem(403, fmt::format("submission {} is another agent's", submission.id));
  }
  const bool cancelled = stores_.borrow()->cancel(submission.id);
  if (!cancelled) throw HttpProblem(409, fmt::format("submission {} has ended already", submission.id));
  changed_();
  return answer(document_of(found(stores_, submission.id)));
}

HttpResponse HarnessApi::list(const HttpRequest& request) {
  const auto limit = static_cast<int>(query_number(request, "limit", 50, 1, store::Limits::kPage));
  const store::Page page = stores_.borrow()->list(filter_of(request), query_text(request, "cursor"), limit);
  return answer({{"submissions", documents_of(page.submissions)}, {"next", page.next}});
}

HttpResponse HarnessApi::lineage(const HttpRequest& request) {
  const store::SubmissionId id = found(stores_, id_of(request)).id;
  const std::string of = query_text(request, "of", "family");
  const auto store = stores_.borrow();
  if (of == "ancestors") return answer({{"nodes", documents_of(store->ancestors(id))}});
  if (of == "descendants") return answer({{"nodes", documents_of(store->descendants(id))}});
  if (of == "family") return answer({{"nodes", documents_of(store->family(id))}});
  throw HttpProblem(400, "of is ancestors, descendants or family");
}

HttpResponse HarnessApi::leaderboard(const HttpRequest& request) {
  return answer({{"entries", documents_of(stores_.borrow()->leaderboard(ranking_of(request)))}});
}

HttpResponse HarnessApi::front(const HttpRequest& request) {
  return answer(
      {{"points", documents_of(stores_.borrow()->pareto_front(query_text(request, "accuracy", "accuracy"),
                                                              query_text(request, "speed", "speedup"), filter_of(request)))}});
}

HttpResponse HarnessApi::history(const HttpRequest& request) {
  return answer({{"points", documents_of(stores_.borrow()->history(ranking_of(request)))}});
}

HttpResponse HarnessApi::events(const HttpRequest& request) {
  const auto last = last_event_id(request);
  const int64_t after = last ? static_cast<int64_t>(std::min<uint64_t>(*last, INT64_MAX))
                             : query_number(request, "after", stores_.borrow()->last_event(), 0, INT64_MAX);
  return event_response(std::make_shared<StoreEvents>(database_, after));
}

HttpResponse HarnessApi::me(const HttpRequest& request) {
  const store::Quota quota = stores_.borrow()->quota_of(request.identity->name);
  return answer({{"agent", request.identity->name},
                 {"role", request.identity->role == Role::kAdmin ? "admin" : "agent"},
                 {"quota", {{"limit", quota.limit}, {"used", quota.used}, {"hours", 24}}}});
}

void HarnessApi::add_submission_routes(HttpServer& server) {
  const auto handled = [this](HttpResponse (HarnessApi::*handle)(const HttpRequest&)) {
    return translated([this, handle](const HttpRequest& request) { return (this->*handle)(request); });
  };
  HttpRoute submit = route_of("POST", "/v1/submissions", "submitFlow", "Hands in a flow to be judged", Access::kWrite);
  submit.consumes = {"application/json"};
  submit.body_schema = draft_schema();
  submit.answers = {{201, "A new submission", "application/json", submission_schema()},
                    {200, "The same flow with the same settings was there", "application/json", submission_schema()}};
  submit.handle = handled(&HarnessApi::submit);
  server.add(std::move(submit));

  HttpRoute list = route_of("GET", "/v1/submissions", "listSubmissions", "Submissions, the newest first", Access::kRead);
  list.query = with_filters({{"cursor", "next of the page before"}, {"limit", "most of a page", number_schema()}});
  list.answers = {{200, "A page", "application/json", list_schema("submissions")}};
  list.handle = handled(&HarnessApi::list);
  server.add(std::move(list));

  HttpRoute show =
      route_of("GET", "/v1/submissions/{id}", "getSubmission", "One submission and its last evaluation", Access::kRead);
  show.query = {{"wait", fmt::format("seconds to wait for its end, at most {}", kMostWaitSeconds), number_schema()}};
  show.answers = {{200, "The submission", "application/json", submission_schema()}};
  show.handle = handled(&HarnessApi::show);
  server.add(std::move(show));

  HttpRoute cancel =
      route_of("POST", "/v1/submissions/{id}/cancel", "cancelSubmission", "Ends a submission that waits or runs", Access::kWrite);
  cancel.answers = {{200, "The submission", "application/json", submission_schema()}};
  cancel.handle = handled(&HarnessApi::cancel);
  server.add(std::move(cancel));

  HttpRoute lineage = route_of("GET", "/v1/submissions/{id}/lineage", "getLineage", "Its relatives", Access::kRead);
  lineage.query = {{"of", "ancestors, descendants or family (all related, the submission among them)"}};
  lineage.answers = {{200, "Submissions with their parents", "application/json", list_schema("nodes")}};
  lineage.handle = handled(&HarnessApi::lineage);
  server.add(std::move(lineage));
}

void HarnessApi::add_reading_routes(HttpServer& server) {
  const auto add = [&](HttpRoute route, const char* member, HttpResponse (HarnessApi::*handle)(const HttpRequest&)) {
    route.answers = {{200, route.summary, "application/json", list_schema(member)}};
    route.handle = translated([this, handle](const HttpRequest& request) { return (this->*handle)(request); });
    server.add(std::move(route));
  };
  const std::vector<QueryParameter> ranked = with_filters({{"metric", "accuracy, speedup, pages_read, mass"},
                                                           {"task", "of the metric; none: of all together"},
                                                           {"tokens", "length of the task's prompts", number_schema()},
                                                           {"order", "descending or ascending"},
                                                           {"limit", "most entries", number_schema()}});
  HttpRoute leaderboard = route_of("GET", "/v1/leaderboard", "getLeaderboard", "Submissions by a metric", Access::kRead);
  leaderboard.query = ranked;
  add(std::move(leaderboard), "entries", &HarnessApi::leaderboard);

  HttpRoute front = route_of("GET", "/v1/front", "getFront", "Submissions that none beats in accuracy and speed", Access::kRead);
  front.query = with_filters({{"accuracy", "one metric"}, {"speed", "and the other"}});
  add(std::move(front), "points", &HarnessApi::front);

  HttpRoute history = route_of("GET", "/v1/history", "getHistory", "A metric by the time of the verdict", Access::kRead);
  history.query = ranked;
  add(std::move(history), "points", &HarnessApi::history);

  HttpRoute events = route_of("GET", "/v1/events", "streamEvents", "What happens, as it happens", Access::kRead);
  events.query = {
      {"after", "sequence number to go on after; without it, and without Last-Event-ID: what comes next", number_schema()}};
  events.answers = {{200, "Server-sent events", "text/event-stream"}};
  events.handle = translated([this](const HttpRequest& request) { return this->events(request); });
  server.add(std::move(events));

  HttpRoute me = route_of("GET", "/v1/me", "getMe", "Whose the token is, and what is left of the quota", Access::kWrite);
  me.answers = {{200, "The agent", "application/json", {{"type", "object"}}}};
  me.handle = translated([this](const HttpRequest& request) { return this->me(request); });
  server.add(std::move(me));
}

void HarnessApi::add_routes(HttpServer& server) {
  add_submission_routes(server);
  add_reading_routes(server);
}

}  // namespace sluice
