// How the API of completions shares out what there is, and what it survives.

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/trace_options.h"
#include "tests/generation/broken_model.h"
#include "tests/generation/generation_api_fixture.h"
#include "tests/http/raw_client.h"
#include "tests/support/eventually.h"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using testing::eventually;

TEST_F(GenerationApiTest, ServesManyClientsAtOnceAsOneByOne) {
  constexpr int kClients = 12;
  const auto body = [](int client) {
    const char* flows[] = {"", "quest", "streaming"};  // three for two engines
    return Json{
        {"prompt", kPrompt}, {"max_tokens", 12 + client}, {"temperature", 0}, {"ignore_eos", true}, {"flow", flows[client % 3]}};
  };
  std::vector<std::string> wanted;
  for (int i = 0; i < kClients; ++i) wanted.push_back(text_of(body(i)));
  std::vector<std::string> got(kClients);
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      for (const Json& chunk : stream("/v1/completions", body(i)))
        got[i] += chunk.at("choices").at(0).at("text").get<std::string>();
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(got, wanted);
}

TEST_F(GenerationApiTest, GivesUpRequestsWhoseClientHasGone) {
  const std::string body = Json{{"prompt", kPrompt}, {"max_tokens", 6000}, {"ignore_eos", true}, {"stream", true}}.dump();
  RawClient client(server->port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_NE(client.read_until("data: ").find("200 OK"), std::string::npos);
  client.close();
  const std::string aborted = "vllm:request_success_total{model_name=\"mini\",finished_reason=\"abort\"}";
  EXPECT_TRUE(eventually([&] { return metrics().at(aborted) > 0; }));
  EXPECT_TRUE(eventually([&] { return metric("num_requests_running") == 0; }));
  EXPECT_EQ(metrics().at(aborted), 1);
  EXPECT_EQ(metric("kv_cache_usage_perc"), 0);
  EXPECT_LT(metric("generation_tokens_total"), 6000);
}

TEST_F(GenerationApiTest, TakesNoMoreRequestsThanItMay) {
  std::vector<std::string> prompts(30, kPrompt);
  std::thread first([&] { complete({{"prompt", prompts}, {"max_tokens", 200}, {"ignore_eos", true}}); });
  EXPECT_TRUE(eventually([&] { return metric("num_requests_running") > 0; }));
  const httplib::Result refused = post("/v1/completions", {{"prompt", std::vector<std::string>(11, kPrompt)}});
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
  first.join();
  EXPECT_EQ(post("/v1/completions", {{"prompt", kPrompt}})->status, 200);
}

TEST_F(GenerationApiTest, LargeBodiesTakeNoRoomWhileTheirAnswersAreMade) {
  const std::string much(size_t{2} << 20, 'x');  // a fourth of what all may hold, in a field that nobody reads
  std::vector<std::unique_ptr<httplib::Client>> clients;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    httplib::Client& http = *clients.emplace_back(std::make_unique<httplib::Client>("127.0.0.1", server->port()));
    threads.emplace_back([&http, &much] {
      const Json body = {{"prompt", kPrompt}, {"max_tokens", 3'000}, {"ignore_eos", true}, {"more", much}};
      http.Post("/v1/completions", body.dump(), "application/json");
    });
  }
  EXPECT_TRUE(eventually([&] { return metric("num_requests_running") == 2; }));
  const httplib::Result third = post("/v1/completions", {{"prompt", kPrompt}, {"max_tokens", 1}, {"more", much}});
  EXPECT_EQ(third->status, 200) << third->body;
  EXPECT_TRUE(eventually([&] { return metric("num_requests_running") == 2; })) << "they were to run meanwhile";
  for (const auto& http : clients) http->stop();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(GenerationApiTest, RefusesATextThatCannotFitBeforeItIsEncoded) {
  std::string text = "<bos> ";
  while (text.size() < 3'000'000) text += "key acorn = amber ; ";
  const httplib::Result refused = post("/v1/completions", {{"prompt", text}});
  EXPECT_EQ(refused->status, 400);
  const Json error = Json::parse(refused->body).at("error");
  EXPECT_EQ(error.at("param"), "prompt") << error;
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  const Json message = {{"role", "user"}, {"content", text}};
  EXPECT_EQ(Json::parse(post("/v1/chat/completions", {{"messages", {message}}})->body).at("error").at("param"), "messages");
}

TEST(GenerationApi, OutlivesAnEngineThatFails) {
  GenerationOptions options;
  const std::string folder = options.model = write_broken_model();
  options.pool_bytes = size_t{8} << 20;
  options.read_flow = [](const std::string&, const TraceOptions&) -> FlowGraph { throw std::runtime_error("a secret"); };
  GenerationApi api(std::move(options), {"quest"});
  std::filesystem::remove_all(folder);  // it is loaded
  HttpServer server({});
  api.add_routes(server);
  server.start();
  httplib::Client http("127.0.0.1", server.port());
  const auto post = [&](const Json& body) { return http.Post("/v1/completions", body.dump(), "application/json"); };
  for (int i = 0; i < 2; ++i) {  // the second one has an engine of its own
    const httplib::Result failed = post({{"prompt", {1, 4}}});
    EXPECT_EQ(failed->status, 500);
    EXPECT_NE(failed->body.find("logits are not finite"), std::string::npos) << failed->body;
  }
  const httplib::Result streamed = post({{"prompt", {1, 4}}, {"stream", true}});
  EXPECT_NE(streamed->body.find("data: {\"error\""), std::string::npos) << streamed->body;
  const httplib::Result no_flow = post({{"prompt", {1, 4}}, {"flow", "quest"}});
  EXPECT_EQ(no_flow->status, 500);
  EXPECT_EQ(no_flow->body.find("secret"), std::string::npos);
  EXPECT_EQ(http.Get("/health/ready")->status, 200);
}

TEST_F(GenerationApiTest, WholeAnswersEndWithTheServerOrTheirClient) {
  const std::string body = Json{{"prompt", kPrompt}, {"max_tokens", 6000}, {"ignore_eos", true}}.dump();
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  RawClient gone(server->port());
  gone.send(request);
  EXPECT_TRUE(eventually([&] { return metric("num_requests_running") > 0; }));
  gone.close();
  EXPECT_TRUE(eventually([&] { return metric("num_requests_running") == 0; }));
  EXPECT_LT(metric("generation_tokens_total"), 6000);
  const RawClient stopped(server->port());
  stopped.send(request);
  EXPECT_TRUE(eventually([&] { return metric("num_requests_running") > 0; }));
  const auto begun = Clock::now();
  server->stop();  // waits for handlers
  api->engines().stop();
  EXPECT_LT(Clock::now() - begun, 20s);
}

TEST_F(GenerationApiTest, IsNotReadyInTrouble) {
  httplib::Client http("127.0.0.1", server->port());
  trouble = true;
  const httplib::Result refused = http.Get("/health/ready");
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(Json::parse(refused->body)["detail"], "the disk is full");
  EXPECT_EQ(http.Get("/health")->status, 503);
  EXPECT_EQ(http.Get("/v1/health")->status, 503);
  EXPECT_EQ(http.Get("/health/live")->status, 200);
  trouble = false;
  EXPECT_EQ(http.Get("/health/ready")->status, 200);
}

TEST_F(GenerationApiTest, TellsRequestsThatItStops) {
  std::atomic<int> status = 0;
  std::thread client([&] {
    status = post("/v1/completions", {{"prompt", kPrompt}, {"max_tokens", 6000}, {"ignore_eos", true}})->status;
  });
  EXPECT_TRUE(eventually([&] { return metric("num_requests_running") > 0; }));
  api->engines().stop();
  client.join();
  EXPECT_EQ(status, 503);
  httplib::Client http("127.0.0.1", server->port());
  EXPECT_EQ(http.Get("/health/ready")->status, 503);
  EXPECT_EQ(http.Get("/health/live")->status, 200);
}

}  // namespace
}  // namespace sluice::test
