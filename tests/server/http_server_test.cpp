#include "agents/server/http_server.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "agents/server/event_stream.h"
#include "scripting/graph/error.h"
#include "tests/server/open_api_checker.h"
#include "tests/server/raw_client.h"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

HttpResponse text(const std::string& body) {
  HttpResponse response;
  response.content_type = "text/plain";
  response.body = body;
  return response;
}

HttpRoute route(const std::string& method, const std::string& pattern, std::function<HttpResponse(const HttpRequest&)> handle) {
  HttpRoute made;
  made.method = method;
  made.pattern = pattern;
  made.operation = method + pattern;
  made.summary = "a test";
  made.answers = {{200, "text", "text/plain", {{"type", "string"}}}};
  made.handle = std::move(handle);
  return made;
}

HttpRoute json_route(const std::string& pattern, Access access = Access::kRead) {
  HttpRoute made = route("POST", pattern, [](const HttpRequest& request) { return text(request.body); });
  made.consumes = {"application/json"};
  made.access = access;
  return made;
}

/// A server with a few routes. Tests change the options, then start it.
class HttpServerTest : public ::testing::Test {
 protected:
  void start() {
    server = std::make_unique<HttpServer>(options);
    server->add(route("GET", "/hello", [](const HttpRequest&) { return text("hello"); }));
    HttpRoute item = route("GET", "/items/{id}", [](const HttpRequest& request) {
      return text(request.path_parameters.at("id") + "|" + request.query_value("q").value_or("none"));
    });
    item.path_parameters = {{"id", "which"}};
    server->add(std::move(item));
    server->add(route("GET", "/items/latest", [](const HttpRequest&) { return text("literal"); }));
    server->add(route("GET", "/broken", [](const HttpRequest&) -> HttpResponse { throw std::runtime_error("a secret path"); }));
    server->add(
        route("GET", "/refused", [](const HttpRequest&) -> HttpResponse { throw InputError("no such thing", "try another"); }));
    server->add(route("GET", "/slow", [this](const HttpRequest& request) {
      ++entered;
      while (request.is_wanted()) std::this_thread::sleep_for(5ms);
      ++left;
      return text("late");
    }));
    server->add(route("GET", "/patient", [this](const HttpRequest& request) -> HttpResponse {
      ++entered;
      while (request.is_wanted()) std::this_thread::sleep_for(5ms);
      ++left;
      throw HttpProblem(503, "given up");
    }));
    server->add(route("GET", "/fragile", [this](const HttpRequest& request) -> HttpResponse {
      ++entered;
      while (request.is_wanted()) std::this_thread::sleep_for(5ms);
      ++left;
      throw std::runtime_error("broken");
    }));
    server->add(route("GET", "/events", [this](const HttpRequest& request) {
      last_id = last_event_id(request).value_or(0);
      return event_response(std::make_shared<EventStream>(events));
    }));
    server->add(route("GET", "/silence", [](const HttpRequest&) {
      return event_response(std::make_shared<EventStream>(std::make_shared<EventQueue>()));
    }));
    server->add(json_route("/echo"));
    server->add(json_route("/write", Access::kWrite));
    server->add(json_route("/admin", Access::kAdmin));
    server->start();
  }

  httplib::Client client() const { return httplib::Client("127.0.0.1", server->port()); }
  std::string send(const std::string& request) const { return exchange(server->port(), request); }

  HttpServerOptions options;
  std::shared_ptr<EventQueue> events = std::make_shared<EventQueue>(4);
  std::atomic<int> entered = 0;
  std::atomic<int> left = 0;
  std::atomic<uint64_t> last_id = 0;
  std::unique_ptr<HttpServer> server;  // ends before what its handlers use
};

template <class Condition>
bool eventually(Condition condition) {
  for (const auto limit = Clock::now() + 5s; Clock::now() < limit; std::this_thread::sleep_for(5ms)) {
    if (condition()) return true;
  }
  return condition();
}

TEST_F(HttpServerTest, ServesRoutesWithParametersAndQueries) {
  start();
  httplib::Client http = client();
  EXPECT_EQ(http.Get("/hello")->body, "hello");
  EXPECT_EQ(http.Get("/items/a%2Fb?q=x%26y")->body, "a/b|x&y");
  EXPECT_EQ(http.Get("/items/latest")->body, "literal");
  const auto head = http.Head("/hello");
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->get_header_value("Content-Length"), "5");
  EXPECT_EQ(head->body, "");
}

TEST(HttpServer, GivesBackAnAddressThatItNeverServed) {
  int port = 0;
  {
    HttpServer server({});
    server.bind();
    port = server.port();
    EXPECT_THROW(server.bind(), InternalError);
    HttpServerOptions same;
    same.port = port;
    EXPECT_THROW(HttpServer(same).bind(), InputError);
  }
  HttpServerOptions options;
  options.port = port;
  HttpServer server(options);
  server.bind();
  EXPECT_EQ(server.port(), port);
  server.start();
}

TEST_F(HttpServerTest, RefusesByProblemDocuments) {
  start();
  httplib::Client http = client();
  const auto problem = [](const httplib::Result& result, int status) {
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, status);
    EXPECT_EQ(result->get_header_value("Content-Type"), "application/problem+json");
    const Json document = Json::parse(result->body);
    EXPECT_EQ(document.at("status"), status);
    for (const char* member : {"type", "title", "detail"}) EXPECT_TRUE(document.at(member).is_string());
  };
  problem(http.Get("/nothing"), 404);
  problem(http.Get("/hello/"), 404);
  problem(http.Get("/items/%zz"), 400);
  problem(http.Get("/refused"), 400);
  EXPECT_EQ(Json::parse(http.Get("/refused")->body).at("hint"), "try another");
  problem(http.Post("/echo", "a=b", "application/x-www-form-urlencoded"), 415);
  problem(http.Post("/echo", {{"Content-Encoding", "gzip"}}, "{}", "application/json"), 415);
  problem(http.Post("/echo", std::string(2 << 20, ' '), "application/json"), 413);
  const auto wrong = http.Delete("/hello");
  problem(wrong, 405);
  EXPECT_EQ(wrong->get_header_value("Allow"), "GET, HEAD, OPTIONS");
  const auto broken = http.Get("/broken");
  problem(broken, 500);
  EXPECT_EQ(broken->body.find("secret"), std::string::npos);
  EXPECT_EQ(http.Post("/echo", "{}", "application/json; charset=utf-8")->body, "{}");
}

TEST_F(HttpServerTest, SendsSecurityHeadersAndRequestIds) {
  start();
  httplib::Client http = client();
  const auto first = http.Get("/hello");
  const auto second = http.Get("/nothing");
  for (const auto& result : {&first, &second}) {
    EXPECT_EQ((*result)->get_header_value("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ((*result)->get_header_value("Cache-Control"), "no-store");
    EXPECT_EQ((*result)->get_header_value("Referrer-Policy"), "no-referrer");
    EXPECT_EQ((*result)->get_header_value("Content-Security-Policy"), "default-src 'none'; frame-ancestors 'none'");
    EXPECT_FALSE((*result)->has_header("Access-Control-Allow-Origin"));
  }
  EXPECT_NE(first->get_header_value("X-Request-Id"), second->get_header_value("X-Request-Id"));
}

TEST_F(HttpServerTest, ServesItsOwnPagesAndAllowedOnesAlone) {
  options.gate.host_names = {"sluice.example"};
  options.gate.origins = {"https://board.example"};
  start();
  const auto get = [&](const std::string& fields) {
    return send("GET /hello HTTP/1.1\r\nConnection: close\r\n" + fields + "\r\n");
  };
  EXPECT_EQ(status_of(get("Host: localhost:1\r\n")), 200);
  EXPECT_EQ(status_of(get("Host: 192.168.0.7\r\n")), 200);
  EXPECT_EQ(status_of(get("Host: [::1]:80\r\n")), 200);
  EXPECT_EQ(status_of(get("Host: Sluice.Example:80\r\n")), 200);
  EXPECT_EQ(status_of(get("Host: rebound.example\r\n")), 421);
  EXPECT_EQ(status_of(get("Host: localhost.evil.example\r\n")), 421);
  EXPECT_EQ(status_of(get("Host: localhost:80\r\nOrigin: http://localhost:80\r\n")), 200);
  EXPECT_EQ(status_of(get("Host: localhost:80\r\nOrigin: http://localhost:81\r\n")), 403);
  EXPECT_EQ(status_of(get("Host: localhost:80\r\nOrigin: null\r\n")), 403);
  EXPECT_EQ(status_of(get("Host: localhost:80\r\nOrigin: https://evil.example\r\n")), 403);
  const std::string allowed = get("Host: localhost:80\r\nOrigin: https://board.example\r\n");
  EXPECT_NE(allowed.find("Access-Control-Allow-Origin: https://board.example"), std::string::npos);
  const std::string preflight =
      send("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: https://board.example\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(status_of(preflight), 204);
  EXPECT_NE(preflight.find("Access-Control-Allow-Methods: OPTIONS, POST"), std::string::npos) << preflight;
}

TEST_F(HttpServerTest, WantsTokensForWriting) {
  options.gate.authenticate = [](const std::string& token) -> std::optional<Identity> {
    if (token == "a") return Identity{"agent", Role::kAgent};
    if (token == "b") return Identity{"boss", Role::kAdmin};
    return std::nullopt;
  };
  start();
  httplib::Client http = client();
  const auto post = [&](const char* path, const char* token) {
    httplib::Headers headers;
    if (token != nullptr) headers.emplace("Authorization", std::string("Bearer ") + token);
    return http.Post(path, headers, "{}", "application/json")->status;
  };
  EXPECT_EQ(post("/echo", nullptr), 200);
  EXPECT_EQ(post("/echo", "wrong"), 200);  // clients of OpenAI's API always send one
  EXPECT_EQ(post("/write", nullptr), 401);
  EXPECT_EQ(post("/write", "wrong"), 401);
  EXPECT_EQ(post("/write", "a"), 200);
  EXPECT_EQ(post("/admin", "a"), 403);
  EXPECT_EQ(post("/admin", "b"), 200);
}

TEST_F(HttpServerTest, NobodyWritesWhereThereAreNoTokens) {
  start();
  EXPECT_EQ(client().Post("/write", {{"Authorization", "Bearer x"}}, "{}", "application/json")->status, 401);
}

TEST_F(HttpServerTest, LimitsRatesByTheHook) {
  std::atomic<int> calls = 0;
  options.gate.rate_limit = [&](const HttpRequest&, const HttpRoute&) -> std::optional<std::chrono::seconds> {
    return ++calls > 1 ? std::optional(7s) : std::nullopt;
  };
  start();
  httplib::Client http = client();
  EXPECT_EQ(http.Get("/hello")->status, 200);
  const auto limited = http.Get("/hello");
  EXPECT_EQ(limited->status, 429);
  EXPECT_EQ(limited->get_header_value("Retry-After"), "7");
}

TEST_F(HttpServerTest, TheLastAnswerOfAConnectionSaysSo) {
  start();
  httplib::Client http = client();
  http.set_keep_alive(true);
  for (int i = 1; i < 1000; ++i) ASSERT_NE(http.Get("/hello")->get_header_value("Connection"), "close") << i;
  EXPECT_EQ(http.Get("/hello")->get_header_value("Connection"), "close") << "or a client sends another, and finds nobody";
  EXPECT_EQ(http.Get("/hello")->status, 200) << "on a new one";
}

TEST_F(HttpServerTest, TokensThatAreTriedCountAsWell) {
  options.gate.rate_limit = [&](const HttpRequest& request, const HttpRoute&) -> std::optional<std::chrono::seconds> {
    return request.identity ? std::nullopt : std::optional(3s);
  };
  start();
  EXPECT_EQ(client().Post("/write", {{"Authorization", "Bearer guess"}}, "{}", "application/json")->status, 429);
}

TEST_F(HttpServerTest, LogsNeitherTokensNorQueriesNorBodies) {
  std::ostringstream written;
  options.log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(written));
  start();
  client().Post("/echo?key=hidden", {{"Authorization", "Bearer hidden"}}, "\"hidden\"", "application/json");
  client().Get("/items/x");
  server->stop();
  EXPECT_NE(written.str().find("POST /echo 200"), std::string::npos) << written.str();
  EXPECT_EQ(written.str().find("hidden"), std::string::npos);
}

TEST_F(HttpServerTest, CutsOffHeadsThatDripOrNeverEnd) {
  options.head_timeout = 150ms;
  start();
  const RawClient slow(server->port());
  const auto begun = Clock::now();
  std::string answer;
  for (const char c : std::string("GET /hello HTTP/1.1\r\nHost: localhost\r\n")) {
    if (!slow.send(std::string(1, c))) break;
    answer = slow.read_until("}", 20ms);
    if (!answer.empty()) break;
  }
  EXPECT_EQ(status_of(answer), 408);
  EXPECT_LT(Clock::now() - begun, 3s);
  EXPECT_EQ(status_of(send("GET /hello HTTP/1.1\r\nHost: localhost\r\nA: " + std::string(64 << 10, 'x'))), 431);
  EXPECT_EQ(status_of(send("\x16\x03\x01 no HTTP at all\r\n\r\n")), 400);
  EXPECT_EQ(client().Get("/hello")->status, 200);
}

TEST_F(HttpServerTest, CutsOffBodiesThatDoNotCome) {
  options.body_timeout = 100ms;
  start();
  const std::string head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n";
  EXPECT_EQ(status_of(send(head + "\r\n{}")), 408);
  EXPECT_EQ(status_of(send(head + "Connection: close\r\n\r\n0123456789")), 200);
  RawClient polite(server->port());
  polite.send(head + "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(status_of(polite.read_until("\r\n\r\n")), 100);
  polite.send("0123456789");
  EXPECT_EQ(status_of(polite.read_until("0123456789")), 200);
}

TEST_F(HttpServerTest, KeepsConnectionsAndTakesRequestsInARow) {
  start();
  const RawClient raw(server->port());
  const std::string get = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
  raw.send(get + "GET /items/latest HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string both = raw.read_until("literal");
  EXPECT_LT(both.find("hello"), both.find("literal")) << both;
  EXPECT_EQ(status_of(send("GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")), 200);
  // A body where none belongs is no second request.
  const std::string smuggled = send("GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 44\r\n\r\n" + get);
  EXPECT_EQ(status_of(smuggled), 413);
  EXPECT_EQ(smuggled.find("HTTP/1.1", 8), std::string::npos) << smuggled;
}

TEST_F(HttpServerTest, RefusesMoreConnectionsThanItHasThreads) {
  options.most_connections = 2;
  start();
  const RawClient first(server->port());
  const RawClient second(server->port());
  const std::string slow = "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n";
  first.send(slow);
  second.send(slow);
  ASSERT_TRUE(eventually([&] { return entered == 2; }));
  EXPECT_EQ(status_of(send("GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")), 503);
}

TEST_F(HttpServerTest, HandlersLearnThatTheClientHasGone) {
  std::ostringstream written;
  options.log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(written));
  start();
  int begun = 0;
  for (const std::string path : {"/slow", "/patient", "/fragile"}) {
    RawClient raw(server->port());
    raw.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ++begun;
    ASSERT_TRUE(eventually([&] { return entered == begun; }));
    raw.close();
    EXPECT_TRUE(eventually([&] { return left == begun; }));
  }
  server->stop();
  EXPECT_NE(written.str().find("GET /patient 499"), std::string::npos) << written.str();
  EXPECT_NE(written.str().find("GET /fragile 500"), std::string::npos) << written.str();  // a fault, whoever waits
}

TEST_F(HttpServerTest, StreamsEventsWithHeartbeatsUntilTheClientGoes) {
  options.heartbeat = 60ms;
  start();
  RawClient raw(server->port());
  raw.send("GET /events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 41\r\n\r\n");
  EXPECT_NE(raw.read_until("still here").find("text/event-stream"), std::string::npos);
  EXPECT_EQ(last_id, 41U);
  EXPECT_TRUE(events->push({"one\ntwo", "change", "42"}));
  EXPECT_NE(raw.read_until("two\n\n").find("id: 42\nevent: change\ndata: one\ndata: two\n\n"), std::string::npos);
  raw.close();
  EXPECT_TRUE(eventually([&] { return events.use_count() == 1; })) << "the stream is gone";
}

TEST_F(HttpServerTest, OneStreamTooManyEndsTheOldestOfWhoeverHasMost) {
  options.most_streams = 3;
  start();
  const auto open = [&](const std::string& from) {
    auto client = std::make_unique<RawClient>(server->port(), from);
    client->send("GET /silence HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(status_of(client->read_until("\r\n\r\n")), 200);
    return client;
  };
  const auto modest = open("127.0.0.1");
  const auto first = open("127.0.0.2");
  const auto second = open("127.0.0.2");
  const auto third = open("127.0.0.2");
  EXPECT_TRUE(first->read_until("0\r\n\r\n").ends_with("0\r\n\r\n")) << "ended, not broken off";
  for (const RawClient* client : {modest.get(), second.get(), third.get()}) EXPECT_EQ(client->read_until("\r\n", 150ms), "");
  EXPECT_EQ(client().Get("/hello")->status, 200);
}

TEST_F(HttpServerTest, ConnectionsThatKeepItWaitingMakeRoom) {
  options.most_connections = 8;
  start();
  const RawClient modest(server->port());
  modest.send("G");
  std::vector<std::unique_ptr<RawClient>> greedy;
  for (int i = 0; i < 7; ++i) {
    greedy.push_back(std::make_unique<RawClient>(server->port(), "127.0.0.2"));
    greedy.back()->send(i % 2 == 0 ? "G"
                                   : "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                     "Content-Length: 9\r\n\r\n{");
  }
  std::this_thread::sleep_for(400ms);  // until the server's patience with all of them is over
  const auto begun = Clock::now();
  const std::string get = "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  EXPECT_TRUE(eventually([&] { return status_of(send(get)) == 200; }));
  EXPECT_LT(Clock::now() - begun, 5s) << "long before their time is over";
  const auto is_closed = [](const auto& client) { return client->read_until("}", 20ms).empty() && !client->is_open(); };
  EXPECT_TRUE(eventually([&] { return std::any_of(greedy.begin(), greedy.end(), is_closed); }));
  modest.send("ET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(status_of(modest.read_until("hello")), 200) << "others have more";
}

TEST_F(HttpServerTest, TokensThatNobodyHasAreNotLookedUpWithoutEnd) {
  std::atomic<int> looks = 0;
  options.gate.authenticate = [&](const std::string& token) {
    ++looks;
    return token.starts_with("right") ? std::optional(Identity{"ada", Role::kAgent}) : std::nullopt;
  };
  start();
  httplib::Client http = client();
  http.set_keep_alive(true);
  const auto post = [&](const char* path, const std::string& token) {
    return http.Post(path, {{"Authorization", "Bearer " + token}}, "{}", "application/json");
  };
  EXPECT_EQ(post("/write", "right")->status, 200);
  constexpr int kGuesses = 300;
  int refused = 0;
  for (int i = 0; i < kGuesses; ++i) {
    const httplib::Result answer = post("/write", "guess " + std::to_string(i));
    if (answer->status != 429) continue;
    ++refused;
    EXPECT_FALSE(answer->get_header_value("Retry-After").empty());
  }
  EXPECT_EQ(looks, 1 + kGuesses - refused);
  EXPECT_EQ(post("/echo", "guess")->status, 200) << "where none is wanted it does no harm";
  EXPECT_EQ(post("/write", "right")->status, 200) << "others at the address go on";
}

TEST(EventQueue, CutsOffWhoIsTooSlow) {
  EventQueue queue(2);
  EXPECT_TRUE(queue.push({"1", {}, {}}));
  EXPECT_TRUE(queue.push({"2", {}, {}}));
  EXPECT_FALSE(queue.push({"3", {}, {}}));
  EXPECT_FALSE(queue.push({"4", {}, {}})) << "it listens no more";
}

TEST(EventQueue, WritesNoFieldsThatAValueBringsAlong) {
  EXPECT_EQ(event_text({"a\r\nb", "n\nid: 7", "1\r2"}), "id: 12\nevent: nid: 7\ndata: a\ndata: \ndata: b\n\n");
}

TEST_F(HttpServerTest, StopsWithinItsTimeWhateverRuns) {
  options.stop_timeout = 300ms;
  start();
  const int port = server->port();
  const RawClient idle(port);
  const RawClient stream(port);
  const RawClient slow(port);
  const RawClient half(port);
  stream.send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  slow.send("GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n");
  half.send("GET /hel");
  ASSERT_TRUE(eventually([&] { return entered == 1; }));
  ASSERT_EQ(status_of(stream.read_until("\r\n\r\n")), 200);
  ASSERT_TRUE(events->push({"first", "change", "1"}));
  stream.read_until("first\n\n");  // the HTTP library drops a stream that it has a head of and nothing else
  const auto begun = Clock::now();
  server->stop();
  EXPECT_LT(Clock::now() - begun, 2s);
  EXPECT_EQ(left, 1);
  EXPECT_TRUE(stream.read_all().ends_with("0\r\n\r\n"));  // ended, not broken off
  EXPECT_THROW(RawClient{port}, std::runtime_error);
}

TEST_F(HttpServerTest, TwoServersCannotHaveOnePort) {
  start();
  HttpServerOptions same;
  same.port = server->port();
  HttpServer other(same);
  EXPECT_THROW(other.start(), InputError);
}

TEST_F(HttpServerTest, DescribesEveryRoute) {
  start();
  const Json document = Json::parse(client().Get("/v1/openapi.json")->body);
  EXPECT_EQ(check_open_api(document), std::vector<std::string>{});
  for (const HttpRoute& known : server->router().routes()) {
    std::string method = known.method;
    for (char& c : method) c = HeaderNameLess::lower(c);
    EXPECT_TRUE(document.at("paths").at(known.pattern).contains(method)) << known.pattern;
  }
  Json broken = document;
  broken["paths"]["/items/{id}"]["get"].erase("parameters");
  EXPECT_NE(check_open_api(broken), std::vector<std::string>{});
}

TEST_F(HttpServerTest, SaysWhereATokenIsWanted) {
  options.gate.token_for_reading = true;
  options.gate.authenticate = [](const std::string&) { return std::optional(Identity{"ada", Role::kAgent}); };
  start();
  const Json document = Json::parse(client().Get("/v1/openapi.json")->body);
  EXPECT_EQ(document.at("paths").at("/hello").at("get").at("security"), Json({{{"token", Json::array()}}}));
  EXPECT_EQ(document.at("paths").at("/v1/openapi.json").at("get").at("security"), Json::array());
  EXPECT_EQ(client().Get("/hello")->status, 401);
  EXPECT_EQ(client().Get("/hello", {{"Authorization", "Bearer x"}})->status, 200);
}

TEST_F(HttpServerTest, RefusesRoutesThatContradict) {
  start();
  EXPECT_THROW(server->add(json_route("/echo")), InternalError);
  EXPECT_THROW(server->add(json_route("/{undescribed}")), InternalError);
}

}  // namespace
}  // namespace sluice::test
