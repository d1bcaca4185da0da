#include "agents/http/http_server.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "scripting/base/error.h"
#include "tests/http/http_server_fixture.h"
#include "tests/http/open_api_checker.h"

// What is asked and answered; http_connections_test.cpp has what carries it.

namespace sluice::test {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

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

TEST_F(HttpServerTest, AnAgentIsServedWhoeverGuessesFromItsAddress) {
  options.gate.authenticate = [&](const std::string& token) {
    return token.starts_with("right") ? std::optional(Identity{"ada", Role::kAgent}) : std::nullopt;
  };
  start();
  httplib::Client http = client();
  http.set_keep_alive(true);
  const auto post = [&](const char* path, const std::string& token) {
    return http.Post(path, {{"Authorization", "Bearer " + token}}, "{}", "application/json");
  };
  constexpr int kGuesses = 300;
  int refused = 0;
  for (int i = 0; i < kGuesses; ++i) {
    const httplib::Result answer = post("/write", "guess " + std::to_string(i));
    if (answer->status != 429) continue;
    ++refused;
    EXPECT_FALSE(answer->get_header_value("Retry-After").empty());
  }
  EXPECT_GT(refused, kGuesses / 3);
  EXPECT_EQ(post("/echo", "guess")->status, 200) << "where none is wanted it does no harm";
  EXPECT_EQ(post("/write", "right")->status, 200) << "though it never came before";
}

TEST_F(HttpServerTest, FewTokensAreLookedUpAtOnce) {
  std::atomic<int> looking = 0;
  std::atomic<int> most = 0;
  options.gate.authenticate = [&](const std::string&) {
    const int now = ++looking;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(5ms);
    --looking;
    return std::optional(Identity{"ada", Role::kAgent});
  };
  start();
  std::vector<std::thread> agents;
  for (int i = 0; i < 16; ++i) {
    agents.emplace_back([&] {
      EXPECT_EQ(client().Post("/write", {{"Authorization", "Bearer right"}}, "{}", "application/json")->status, 200);
    });
  }
  for (std::thread& agent : agents) agent.join();
  EXPECT_LE(most, 4);
}

TEST_F(HttpServerTest, LargeBodiesAreHeldWithinABound) {
  options.most_bytes_in_hand = size_t{1} << 20;
  options.most_body_bytes = size_t{1} << 20;
  start();
  const std::string large(200'000, 'x');
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n";
  RawClient slow(server->port());
  slow.send(head);  // and no body for now: it has room for one
  std::this_thread::sleep_for(100ms);
  std::vector<std::unique_ptr<RawClient>> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(std::make_unique<RawClient>(server->port()));
    others.back()->send(head);
  }
  std::this_thread::sleep_for(100ms);
  const auto refused = client().Post("/echo", large, "application/json");
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
  EXPECT_EQ(client().Post("/echo", "{}", "application/json")->status, 200) << "small ones go on";
  others.clear();
  slow.send(large);
  EXPECT_NE(slow.read_until("\r\n\r\n").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, ABodyThatHasEndedTakesNoMemory) {
  start();
  const auto capacity = client().Post("/end", std::string(500'000, ' '), "application/json");
  ASSERT_EQ(capacity->status, 200);
  EXPECT_LT(std::stoul(capacity->body), 100U);
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
