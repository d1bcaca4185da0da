#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "agents/evaluation/flow_script.h"
#include "agents/harness/flow_inspector.h"
#include "agents/harness/harness_routes.h"
#include "agents/http/http_server.h"
#include "tests/harness/answer_checker.h"
#include "tests/harness/harness_test.h"

namespace sluice::testing {

/// A server with the routes of the harness over a store with the agents "ada", "bob" (three submissions a day) and "root" (an
/// administrator). Every answer is held against the OpenAPI document that the server gives.
class ApiTest : public HarnessTest {
 protected:
  using json = nlohmann::json;

  ApiTest();
  ~ApiTest() override;

  /// Begins to judge.
  void judge() { orchestrator_.emplace(database_, options()); }

  httplib::Client client(const std::string& token = {}) const;

  /// Sends a request and gives the body of the answer, which must have that status; null where it is no JSON.
  json get(const std::string& path, int status = 200, const std::string& token = {});
  json post(const std::string& path, const json& body, int status, const std::string& token,
            const httplib::Headers& headers = {});
  /// Without a body.
  json post(const std::string& path, int status, const std::string& token);
  json put(const std::string& path, const json& body, int status, const std::string& token);

  /// As ada unless told otherwise.
  json submit(const json& draft, int status = 201, const std::string& token = {}, const httplib::Headers& headers = {}) {
    return post("/v1/submissions", draft, status, token.empty() ? token_ : token, headers);
  }

  /// A shipped flow as a submission.
  static json draft(const std::string& flow, const json& more = json::object());

  /// Puts a verdict on the submission that waits longest.
  void decide(const store::Verdict& verdict);

  std::string other_token_;  // of "bob"
  std::string admin_token_;  // of "root"
  FlowInspector inspector_{SLUICE_SOURCE_DIR "/host/models/mini", "cpu"};
  std::optional<HarnessService> service_;
  std::optional<HttpServer> server_;
  std::optional<AnswerChecker> checker_;
  std::optional<Orchestrator> orchestrator_;

 private:
  json checked(const std::string& method, const std::string& path, const httplib::Result& result, int status) const;
};

}  // namespace sluice::testing
