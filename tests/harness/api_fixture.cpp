#include "tests/harness/api_fixture.h"

#include <utility>

namespace sluice::testing {

using nlohmann::json;

ApiTest::ApiTest()
    : other_token_(store_->create_agent("bob", store::Role::kAgent, 3).token),
      admin_token_(store_->create_agent("root", store::Role::kAdmin, 0).token) {
  HarnessServiceOptions options;
  options.suite = "verify";
  options.inspect = [this](const FlowScript& script) { return document_of(inspector_.inspect(script)); };
  options.changed = [this] {
    if (orchestrator_) orchestrator_->wake();
  };
  service_.emplace(database_, std::move(options));
  HttpServerOptions http;
  http.gate.authenticate = [this](const std::string& token) { return service_->authenticate(token); };
  server_.emplace(http);
  add_harness_routes(*server_, *service_);
  server_->start();
  checker_.emplace(json::parse(client().Get("/v1/openapi.json")->body));
}

ApiTest::~ApiTest() {
  server_->stop();
  orchestrator_.reset();
}

httplib::Client ApiTest::client(const std::string& token) const {
  constexpr int kPatience = 70;  // seconds: longer than any request waits
  httplib::Client client("127.0.0.1", server_->port());
  client.set_read_timeout(kPatience);
  if (!token.empty()) client.set_bearer_token_auth(token);
  return client;
}

json ApiTest::checked(const std::string& method, const std::string& path, const httplib::Result& result, int status) const {
  EXPECT_TRUE(result) << method << " " << path << ": " << httplib::to_string(result.error());
  if (!result) return {};
  EXPECT_EQ(result->status, status) << method << " " << path << ": " << result->body;
  EXPECT_EQ(checker_->check(method, path, result->status, result->get_header_value("Content-Type"), result->body), "")
      << method << " " << path << ": " << result->body.substr(0, 2000);
  const json body = json::parse(result->body, nullptr, false);
  return body.is_discarded() ? json() : body;
}

json ApiTest::get(const std::string& path, int status, const std::string& token) {
  return checked("GET", path, client(token).Get(path), status);
}

json ApiTest::post(const std::string& path, const json& body, int status, const std::string& token,
                   const httplib::Headers& headers) {
  return checked("POST", path, client(token).Post(path, headers, body.dump(), "application/json"), status);
}

json ApiTest::post(const std::string& path, int status, const std::string& token) {
  return checked("POST", path, client(token).Post(path), status);
}

json ApiTest::put(const std::string& path, const json& body, int status, const std::string& token) {
  return checked("PUT", path, client(token).Put(path, body.dump(), "application/json"), status);
}

json ApiTest::draft(const std::string& flow, const json& more) {
  json draft = {{"name", flow}, {"script", read_flow(flow).source}};
  draft.update(more);
  return draft;
}

void ApiTest::decide(const store::Verdict& verdict) {
  constexpr store::Time kMinute = 60'000'000;
  store_->complete(store_->claim("a test", kMinute).value(), verdict);
}

}  // namespace sluice::testing
