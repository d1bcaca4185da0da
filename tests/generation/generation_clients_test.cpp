// What clients and proxies of all kinds meet at the endpoints of completions.

#include <fmt/format.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/generation/generation_api_fixture.h"
#include "tests/http/raw_client.h"

namespace sluice::test {
namespace {

TEST_F(GenerationApiTest, WhoeverAsksForWhatIsNotThereIsToldInOpenAisWords) {
  const auto expect_error = [&](const std::string& request, int status) {
    const std::string answer = exchange(server->port(), request);
    EXPECT_EQ(status_of(answer), status) << answer;
    const Json body = Json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
    EXPECT_TRUE(body.at("error").at("message").is_string()) << body;
    EXPECT_TRUE(body.at("error").contains("type") && body.at("error").contains("code")) << body;
  };
  const std::string host = "Host: localhost\r\n";
  const std::string close = host + "Connection: close\r\n\r\n";
  expect_error("GET /v1/files HTTP/1.1\r\n" + close, 404);
  expect_error("POST /v1/embeddings HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\n{}", 404);
  expect_error("DELETE /v1/models HTTP/1.1\r\n" + close, 405);
  expect_error("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 421);
  expect_error("GET /v1/models HTTP/1.1\r\n" + host + "Origin: https://evil.example\r\nConnection: close\r\n\r\n", 403);
  expect_error("POST /v1/completions HTTP/1.1\r\n" + host + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415);
  expect_error("POST /v1/completions HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501);
  expect_error("GET /v1/models HTTP/3.0\r\n" + close, 505);
  const std::string other = exchange(server->port(), "GET /metric HTTP/1.1\r\n" + close);
  EXPECT_FALSE(Json::parse(other.substr(other.find("\r\n\r\n") + 4)).contains("error")) << "no address of OpenAI's";
}

TEST_F(GenerationApiTest, OldClientsAndThoseThatSendChunksGenerate) {
  const Json body = {{"prompt", kPrompt}, {"max_tokens", 4}, {"temperature", 0}, {"ignore_eos", true}, {"stream", true}};
  std::string wanted;
  for (const Json& chunk : stream("/v1/completions", body)) wanted += chunk.at("choices").at(0).at("text").get<std::string>();
  const std::string text = body.dump();
  const std::string head = "Host: localhost\r\nContent-Type: application/json\r\n";
  const std::string old = exchange(
      server->port(), fmt::format("POST /v1/completions HTTP/1.0\r\n{}Content-Length: {}\r\n\r\n{}", head, text.size(), text));
  EXPECT_EQ(status_of(old), 200) << old;
  EXPECT_EQ(old.find("chunked"), std::string::npos) << "HTTP/1.0 has no chunks: " << old;
  EXPECT_TRUE(old.ends_with("data: [DONE]\n\n")) << old;
  std::string said;
  std::istringstream lines(old);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("data: {")) said += Json::parse(line.substr(6)).at("choices").at(0).at("text").get<std::string>();
  }
  EXPECT_EQ(said, wanted);
  std::string chunks;
  for (size_t at = 0; at < text.size(); at += 7) {
    const std::string piece = text.substr(at, 7);
    chunks += fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
  }
  const std::string answer = exchange(
      server->port(), fmt::format("POST /v1/completions HTTP/1.1\r\n{}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n{}"
                                  "0\r\n\r\n",
                                  head, chunks));
  EXPECT_EQ(status_of(answer), 200) << answer;
  EXPECT_NE(answer.find("[DONE]"), std::string::npos) << answer;
}

TEST_F(GenerationApiTest, TheRoleOfAChatComesWithItsFirstToken) {
  const Json body = {{"messages", {{{"role", "user"}, {"content", kPrompt}}}},
                     {"max_tokens", 3},
                     {"ignore_eos", true},
                     {"n", 2},
                     {"stream", true}};
  httplib::Client http("127.0.0.1", server->port());
  std::vector<std::string> pieces;
  const auto take = [&](const char* data, size_t size) {
    pieces.emplace_back(data, size);
    return true;
  };
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.body = body.dump();
  request.headers = {{"Content-Type", "application/json"}};
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) { return take(data, size); };
  ASSERT_TRUE(http.send(request));
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  std::map<int, int> roles;
  std::map<int, int> told;
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: {")) continue;
    const Json choice = Json::parse(line.substr(6)).at("choices").at(0);
    const int index = choice.at("index");
    roles[index] += static_cast<int>(choice.at("delta").contains("role"));
    told[index] += 1;
    EXPECT_EQ(roles[index], 1) << "the role comes first, and once: " << line;
  }
  EXPECT_EQ(roles.size(), 2U);
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (size_t at = pieces.front().find(part); at != std::string::npos; at = pieces.front().find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_GT(count("data: {"), count("\"role\"")) << "no role goes ahead of its first token: " << pieces.front();
}

}  // namespace
}  // namespace sluice::test
