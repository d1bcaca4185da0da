#include "agents/client/verdict_wait.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "scripting/base/error.h"

namespace sluice {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A server that says of submission 1 and of events what a test wants. It ends with this object.
class FakeServer {
 public:
  using Answer = std::function<void(httplib::Response& response)>;

  /// On a free port, or on the one of a server that has ended.
  FakeServer(const Answer& submission, const Answer& events, int port = 0) {
    server_.Get("/v1/submissions/1", [=](const httplib::Request&, httplib::Response& response) { submission(response); });
    server_.Get("/v1/events", [=](const httplib::Request&, httplib::Response& response) { events(response); });
    port_ = port == 0 ? server_.bind_to_any_port("127.0.0.1") : port;
    const bool bound = port == 0 || server_.bind_to_port("127.0.0.1", port);
    if (!bound || port_ <= 0) throw std::runtime_error("no port for a server");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::sleep_for(1ms);
  }
  ~FakeServer() {
    server_.stop();
    thread_.join();
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  int port() const { return port_; }
  HarnessClient client() const { return HarnessClient({fmt::format("http://127.0.0.1:{}", port_), {}}); }

 private:
  httplib::Server server_;
  std::thread thread_;
  int port_ = 0;
};

void say(httplib::Response& response, const json& document) { response.set_content(document.dump(), "application/json"); }

void say_status(httplib::Response& response, const std::string& status) {
  say(response, {{"id", 1}, {"name", "quest"}, {"status", status}});
}

void refuse(httplib::Response& response, int status) {
  response.status = status;
  say(response, {{"detail", "too much"}, {"hint", "later"}});
}

/// An answer that is `first` so many times, and then `last`.
FakeServer::Answer after(int times, const FakeServer::Answer& first, const FakeServer::Answer& last) {
  return [=, asked = std::make_shared<std::atomic<int>>(0)](httplib::Response& response) {
    (++*asked <= times ? first : last)(response);
  };
}

FakeServer::Answer status(const std::string& text) {
  return [=](httplib::Response& response) { say_status(response, text); };
}

FakeServer::Answer refusal(int code) {
  return [=](httplib::Response& response) { refuse(response, code); };
}

FakeServer::Answer events(const std::string& text) {
  return [=](httplib::Response& response) { response.set_content(text, "text/event-stream"); };
}

TEST(VerdictWait, LooksWhereThereIsNoStream) {
  const FakeServer server(after(3, status("queued"), status("passed")), refusal(503));
  HarnessClient client = server.client();
  EXPECT_EQ(wait_for_verdict(client, 1, {.most = 30s})["status"], "passed");
}

TEST(VerdictWait, OutlivesRefusalsThatMayPass) {
  for (const int code : {429, 503}) {
    const FakeServer server(after(2, refusal(code), status("passed")), refusal(code));
    HarnessClient client = server.client();
    EXPECT_EQ(wait_for_verdict(client, 1, {.most = 30s})["status"], "passed") << code;
  }
}

TEST(VerdictWait, SaysWhyThereIsNoAnswerToTheEnd) {
  const FakeServer server(refusal(429), refusal(429));
  HarnessClient client = server.client();
  try {
    wait_for_verdict(client, 1, {.most = 1s});
    FAIL() << "nothing is known of the submission";
  } catch (const ServerError& error) {
    EXPECT_STREQ(error.what(), "the server answers 429: too much");
    EXPECT_EQ(error.hint(), "later");
  }
}

TEST(VerdictWait, EndsAtOnceWhereWaitingIsOfNoUse) {
  const FakeServer server(after(1, status("running"), refusal(404)), refusal(503));
  HarnessClient client = server.client();
  EXPECT_THROW(wait_for_verdict(client, 1, {.most = 60s}), ServerError);
  HarnessClient nobody({"http://127.0.0.1:9", {}});
  EXPECT_THROW(wait_for_verdict(nobody, 1, {.most = 60s}), ServerError);
}

TEST(VerdictWait, OutlivesANewStartOfTheServer) {
  std::atomic<bool> seen = false;
  const auto queued = [&](httplib::Response& response) {
    seen = true;
    say_status(response, "queued");
  };
  auto first = std::make_unique<FakeServer>(queued, events(": hello\n\n"));
  HarnessClient client = first->client();
  const int port = first->port();
  std::unique_ptr<FakeServer> second;
  std::thread restart([&] {
    while (!seen) std::this_thread::sleep_for(1ms);
    first.reset();
    std::this_thread::sleep_for(500ms);
    second = std::make_unique<FakeServer>(status("passed"), refusal(503), port);
  });
  EXPECT_EQ(wait_for_verdict(client, 1, {.most = 60s})["status"], "passed");
  restart.join();
}

TEST(VerdictWait, ListensToASlowServerThatMayBeInterrupted) {
  std::atomic<bool> heard = false;
  const auto slow_events = [&](httplib::Response& response) {
    std::this_thread::sleep_for(1500ms);
    heard = true;
    response.set_content("data: {\"kind\": \"finished\", \"submission\": 1}\n\n", "text/event-stream");
  };
  const auto submission = [&](httplib::Response& response) { say_status(response, heard ? "passed" : "queued"); };
  const FakeServer server(submission, slow_events);
  HarnessClient client = server.client();
  const auto never = [] { return false; };
  EXPECT_EQ(wait_for_verdict(client, 1, {.most = 30s, .interrupted = never})["status"], "passed");
}

TEST(VerdictWait, IsInterruptedWhileTheServerIsSilent) {
  std::atomic<bool> asked = false;
  std::atomic<bool> is_over = false;
  const auto silent_events = [&](httplib::Response&) {
    asked = true;
    while (!is_over) std::this_thread::sleep_for(1ms);
  };
  const FakeServer server(status("queued"), silent_events);
  HarnessClient client = server.client();
  const auto begun = Clock::now();
  const auto interrupted = [&] { return asked.load(); };
  EXPECT_EQ(wait_for_verdict(client, 1, {.most = 60s, .interrupted = interrupted})["status"], "queued");
  EXPECT_LT(Clock::now() - begun, 10s);
  is_over = true;
}

TEST(VerdictWait, TakesNoEventOnTrust) {
  std::string text;
  for (const json& event : json::array({json{{"kind", "progress"}, {"submission", 1}},
                                        json{{"kind", "progress"}, {"submission", 1}, {"data", {{"share", "half"}}}},
                                        json{{"kind", "progress"}, {"submission", 1}, {"data", {{"share", 1}, {"stage", 5}}}},
                                        json{{"kind", 7}, {"submission", "1"}}, json::array()})) {
    text += "data: " + event.dump() + "\n\n";
  }
  const FakeServer server(after(2, status("queued"), status("passed")), events(text + "data: {"));
  HarnessClient client = server.client();
  class Silent final : public Progress {
   public:
    void start(double) override {}
    void show(const std::string&, const std::string&, const std::string&) override {}
    void advance(double work) override { done += work; }
    void shrink(double) override {}
    void finish() override {}
    double done = 0;
  } progress;
  EXPECT_EQ(wait_for_verdict(client, 1, {.most = 30s, .progress = &progress})["status"], "passed");
  EXPECT_EQ(progress.done, 1) << "the one event that is whole";
}

TEST(HarnessClient, EndsAnEventWithoutAnEnd) {
  const FakeServer server(status("queued"), events("data: " + std::string(2 << 20, 'x')));
  HarnessClient client = server.client();
  const auto yes = [] { return true; };
  EXPECT_THROW(client.follow_events({.begun = yes, .event = [](const json&) { return true; }, .wanted = yes}), ServerError);
}

TEST(HarnessClient, SaysWhatIsNoSubmission) {
  const FakeServer server(
      [](httplib::Response& response) {
        say(response, {{"id", 1}, {"name", "quest"}, {"status", 5}});
      },
      refusal(503));
  HarnessClient client = server.client();
  try {
    client.submission(1);
    FAIL() << "a status is a text";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("\"status\" is 5"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sluice
