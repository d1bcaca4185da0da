#include <gtest/gtest.h>
#include <httplib.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "agents/http/http_server.h"
#include "scripting/base/error.h"
#include "tests/http/http_server_fixture.h"
#include "tests/http/raw_client.h"
#include "tests/support/eventually.h"

// Addresses, connections and streams of a server: their limits, and their ends.

namespace sluice::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::eventually;

using HttpConnections = HttpServerTest;

TEST(HttpAddress, GivesBackAnAddressThatItNeverServed) {
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

TEST_F(HttpConnections, TheLastAnswerOfAConnectionSaysSo) {
  start();
  httplib::Client http = client();
  http.set_keep_alive(true);
  for (int i = 1; i < 1000; ++i) ASSERT_NE(http.Get("/hello")->get_header_value("Connection"), "close") << i;
  EXPECT_EQ(http.Get("/hello")->get_header_value("Connection"), "close") << "or a client sends another, and finds nobody";
  EXPECT_EQ(http.Get("/hello")->status, 200) << "on a new one";
}

TEST_F(HttpConnections, CutsOffHeadsThatDripOrNeverEnd) {
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

TEST_F(HttpConnections, CutsOffBodiesThatDoNotCome) {
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

TEST_F(HttpConnections, TakesBodiesInChunks) {
  options.body_timeout = 300ms;
  options.most_body_bytes = 4096;
  start();
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
  const std::string last = head + "Connection: close\r\n\r\n";
  const std::string answer = send(last + "3\r\n[1,\r\n5;a=b\r\n\"\r\n\"]\r\n0\r\nTrailer: ignored\r\n\r\n");
  EXPECT_EQ(status_of(answer), 200) << answer;
  EXPECT_TRUE(answer.ends_with("[1,\"\r\n\"]")) << answer;
  // What follows is the next request, and nothing else is.
  const std::string both = send(head + "\r\n2\r\n{}\r\n0\r\n\r\n" + last + "4\r\nnull\r\n0\r\n\r\n");
  EXPECT_EQ(status_of(both), 200);
  EXPECT_TRUE(both.ends_with("null")) << both;
  const std::pair<std::string, int> wrong[] = {
      {"2\r\n{}0\r\n\r\n", 400},      // longer than it says
      {"2\n{}\n0\n\n", 408},          // no line ends
      {"x\r\n{}\r\n0\r\n\r\n", 400},  // no size
      {"2\r\n{}\r\n", 408},           // no end
      {"1001\r\n", 413},              // too long, before it is there
      {"fffffffffff\r\n", 413},
      {"800\r\n" + std::string(0x800, ' ') + "\r\n801\r\n", 413},  // together
      {"1;" + std::string(9000, 'a'), 400},
      {"2;\nxx\r\n{}\r\n0\r\n\r\n", 400},  // where a proxy might see another line
      {"2;a\rb\r\n{}\r\n0\r\n\r\n", 400},
      {"2\r\n{}\r\n0\r\nA: b\n\nGET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"2\r\n{}\r\n0\r\nno field\r\n\r\n", 400},
      {"0\r\n" +
           [] {
             std::string fields;
             for (int i = 0; i < 100; ++i) fields += "A: b\r\n";
             return fields;
           }() +
           "\r\n",
       431},
  };
  for (const auto& [body, status] : wrong) EXPECT_EQ(status_of(send(last + body)), status) << body.substr(0, 40);
  RawClient polite(server->port());
  polite.send(head + "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(status_of(polite.read_until("\r\n\r\n")), 100);
  polite.send("1\r\n7\r\n0\r\n\r\n");
  EXPECT_EQ(status_of(polite.read_until("7")), 200);
  // A body that is not wanted is no second request.
  const std::string get = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string smuggled =
      send("POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2c\r\n" + get + "\r\n0\r\n\r\n");
  EXPECT_EQ(status_of(smuggled), 404);
  EXPECT_EQ(smuggled.find("HTTP/1.1", 8), std::string::npos) << smuggled;
}

TEST_F(HttpConnections, ABodyWithoutEndIsRefusedSoonHoweverSmallItsChunks) {
  options.most_body_bytes = size_t{1} << 20;
  start();
  const RawClient client(server->port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += "1\r\n \r\n";
  const auto begun = Clock::now();
  int sent = 0;
  while (sent < 1000 && client.send(many)) ++sent;
  EXPECT_LT(sent, 1000);
  EXPECT_LT(Clock::now() - begun, 2s);
  EXPECT_EQ(status_of(client.read_all()), 413);
}

TEST_F(HttpConnections, StreamsToClientsOfHttp10) {
  start();
  events->push({"one", {}, {}});
  const RawClient client(server->port());
  client.send("GET /events HTTP/1.0\r\n\r\n");
  const std::string answer = client.read_until("data: one\n\n");
  EXPECT_EQ(status_of(answer), 200) << answer;
  EXPECT_EQ(answer.find("Transfer-Encoding"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\ndata: one\n\n")) << answer;
}

TEST_F(HttpConnections, KeepsConnectionsAndTakesRequestsInARow) {
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

TEST_F(HttpConnections, RefusesMoreConnectionsThanItHasThreads) {
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

TEST_F(HttpConnections, HandlersLearnThatTheClientHasGone) {
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

TEST_F(HttpConnections, StreamsEventsWithHeartbeatsUntilTheClientGoes) {
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

TEST_F(HttpConnections, OneStreamTooManyEndsTheOldestOfWhoeverHasMost) {
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

TEST_F(HttpConnections, ConnectionsThatKeepItWaitingMakeRoom) {
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

TEST_F(HttpConnections, StopsWithinItsTimeWhateverRuns) {
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

TEST_F(HttpConnections, TwoServersCannotHaveOnePort) {
  start();
  HttpServerOptions same;
  same.port = server->port();
  HttpServer other(same);
  EXPECT_THROW(other.start(), InputError);
}

}  // namespace
}  // namespace sluice::test
