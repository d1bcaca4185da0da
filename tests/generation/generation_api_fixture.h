#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/generation/generation_api.h"
#include "tests/http/prometheus_text.h"
#include "tests/support/source_path.h"

namespace sluice::test {

inline constexpr const char* kPrompt = "<bos> key acorn = amber ; key album = almond ask acorn =";

inline std::string mini() { return testing::source_path("host/models/mini").string(); }

inline FlowScript shipped(const std::string& name) {
  return read_flow(testing::source_path("scripting/flows/" + name + ".lua").string());
}

/// A server on the mini model with two flows and room for two engines.
class GenerationApiTest : public ::testing::Test {
 protected:
  using Json = nlohmann::json;

  GenerationApiTest() {
    GenerationOptions options;
    options.model = mini();
    options.batch = 8;
    options.pool_bytes = size_t{32} << 20;
    options.most_engines = 2;
    options.most_requests = 40;
    options.read_flow = [](const std::string& name, const TraceOptions& trace) { return shipped(name).trace(trace); };
    options.trouble = [this] { return trouble.load() ? "the disk is full" : ""; };
    api = std::make_unique<GenerationApi>(std::move(options), std::vector<std::string>{"quest", "streaming"});
    server = std::make_unique<HttpServer>(HttpServerOptions{});
    api->add_routes(*server);
    server->start();
  }

  httplib::Result post(const std::string& path, const Json& body) const {
    httplib::Client http("127.0.0.1", server->port());
    http.set_read_timeout(std::chrono::seconds(60));
    return http.Post(path, body.dump(), "application/json");
  }
  Json complete(const Json& body) const {
    const httplib::Result result = post("/v1/completions", body);
    EXPECT_TRUE(result && result->status == 200) << (result ? result->body : "no answer");
    return result ? Json::parse(result->body) : Json();
  }
  std::string text_of(const Json& body) const { return complete(body).at("choices").at(0).at("text"); }
  /// Chunks of a stream, without [DONE].
  std::vector<Json> stream(const std::string& path, Json body) const {
    body["stream"] = true;
    const httplib::Result result = post(path, body);
    EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream");
    EXPECT_TRUE(result->body.ends_with("data: [DONE]\n\n"));
    std::vector<Json> chunks;
    std::istringstream lines(result->body);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("data: {")) chunks.push_back(Json::parse(line.substr(6)));
    }
    return chunks;
  }
  std::map<std::string, double> metrics() const {
    httplib::Client http("127.0.0.1", server->port());
    return parse_prometheus(http.Get("/metrics")->body);
  }
  double metric(const std::string& name) const { return metrics().at("vllm:" + name + "{model_name=\"mini\"}"); }

  std::atomic<bool> trouble = false;
  std::unique_ptr<GenerationApi> api;
  std::unique_ptr<HttpServer> server;
};

}  // namespace sluice::test
