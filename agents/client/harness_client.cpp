#include "agents/client/harness_client.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "host/json_object.h"
#include "scripting/graph/error.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kMostWait = 50;  // seconds of one request
constexpr int kReadSeconds = kMostWait + 20;

std::string text_of(const json& problem, const char* member) {
  return problem.is_object() && problem.contains(member) && problem[member].is_string() ? problem[member].get<std::string>()
                                                                                        : std::string();
}

[[noreturn]] void refuse(int status, const std::string& body) {
  const json problem = json::parse(body, nullptr, false);
  const std::string detail = text_of(problem, "detail");
  std::string hint = text_of(problem, "hint");
  if (status == 401 && hint.empty()) hint = "set SLUICE_TOKEN, or give --token; sluice agent add makes one";
  throw InputError(fmt::format("the server answers {}{}{}", status, detail.empty() ? "" : ": ", detail), hint);
}

}  // namespace

HarnessClient::HarnessClient(const std::string& address, std::string token) : address_(address), token_(std::move(token)) {
  while (address_.ends_with('/')) address_.pop_back();
  if (!address_.starts_with("http://")) {
    throw InputError(fmt::format("\"{:.100}\" is no address of a server", address), "--server http://127.0.0.1:8080");
  }
}

json HarnessClient::answer(const std::string& method, const std::string& path, const std::string& body) {
  httplib::Client client(address_);
  client.set_read_timeout(kReadSeconds);
  if (!token_.empty()) client.set_bearer_token_auth(token_);
  const httplib::Result result =
      method == "GET" ? client.Get(path) : client.Post(path, body, body.empty() ? "" : "application/json");
  if (!result) {
    throw InputError(fmt::format("{} does not answer: {}", address_, httplib::to_string(result.error())),
                     "is sluice serve --data running there?");
  }
  if (result->status >= 300) refuse(result->status, result->body);
  return parse_json(result->body, address_ + path);
}

json HarnessClient::submit(const json& draft) {
  return answer("POST", "/v1/submissions", draft.dump(-1, ' ', false, json::error_handler_t::replace));
}

json HarnessClient::get(const std::string& path) { return answer("GET", path, {}); }

json HarnessClient::submission(int64_t id, int wait_seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(wait_seconds);
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(deadline - std::chrono::steady_clock::now()).count();
    const int64_t wait = std::clamp<int64_t>(left, 0, kMostWait);
    json document = get(fmt::format("/v1/submissions/{}?wait={}", id, wait));
    const std::string status = text_of(document, "status");
    if ((status != "queued" && status != "running") || wait == 0) return document;
  }
}

}  // namespace sluice
