// Log-probabilities over HTTP of models that are read from GGUF files.

#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "agents/generation/generation_api.h"
#include "tests/generation/joined_chunks.h"
#include "tests/support/real_model.h"
#include "tests/support/small_gguf.h"
#include "tests/support/temporary_directory.h"

namespace sluice::test {
namespace {

using Json = nlohmann::json;

GenerationOptions options_of(const std::string& model) {
  GenerationOptions options;
  options.model = model;
  options.pool_bytes = size_t{128} << 20;
  options.kv = DataType::kF32;
  return options;
}

/// A server of one model, without flows.
class ModelServer {
 public:
  explicit ModelServer(const std::string& model) : api_(options_of(model), {}), server_({}) {
    api_.add_routes(server_);
    server_.start();
  }
  std::string post(const std::string& path, const Json& body) const {
    httplib::Client http("127.0.0.1", server_.port());
    http.set_read_timeout(std::chrono::seconds(300));
    const httplib::Result result = http.Post(path, body.dump(), "application/json");
    EXPECT_EQ(result->status, 200) << result->body;
    return result->body;
  }
  std::vector<Json> stream(const std::string& path, Json body) const {
    body["stream"] = true;
    std::vector<Json> chunks;
    std::istringstream lines(post(path, body));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("data: {")) chunks.push_back(Json::parse(line.substr(6)));
    }
    return chunks;
  }

 private:
  GenerationApi api_;
  HttpServer server_;
};

int64_t characters_of(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; });
}

/// Tokens of every chunk stand in its text, or beside it; those that have none of the whole text come with the last.
void expect_told_with_their_text(const std::vector<Json>& chunks) {
  int64_t before = 0;
  for (const Json& chunk : chunks) {
    const Json& choice = chunk.at("choices").at(0);
    const int64_t after = before + characters_of(choice.at("text"));
    if (!choice.at("logprobs").is_null() && choice.at("finish_reason").is_null()) {
      for (const Json& offset : choice.at("logprobs").at("text_offset")) {
        EXPECT_LE(before, offset.get<int64_t>());
        EXPECT_LE(offset.get<int64_t>(), after);
      }
    }
    before = after;
  }
}

/// What that model generates, whose tokens are bytes, is rarely a whole character.
TEST(LogProbabilitiesOfBytes, StreamsTellWhatWholeAnswersTell) {
  const testing::TemporaryDirectory folder;
  testing::small_gguf().write(folder.file("small.gguf"));
  const ModelServer server(folder.file("small.gguf"));
  int partial = 0;
  for (int seed = 0; seed < 12; ++seed) {
    const bool echo = seed % 3 == 0;
    const Json common = {{"max_tokens", 40},
                         {"seed", seed},
                         {"ignore_eos", seed % 2 == 0},
                         {"stop", {"a", "\xc3\xa9", "b"}},
                         {"temperature", seed % 4}};
    Json text = {{"prompt", {258, 'a', 0xe2, 0x82}}, {"echo", echo}, {"logprobs", 3}};
    Json chat = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"logprobs", true}, {"top_logprobs", 3}};
    text.update(common);
    chat.update(common);
    const std::vector<Json> chunks = server.stream("/v1/completions", text);
    const Json whole = Json::parse(server.post("/v1/completions", text));
    Json choice = whole.at("choices").at(0);
    choice.erase("index");
    EXPECT_EQ(joined(chunks, 0), choice);
    expect_told_with_their_text(chunks);
    const Json& tokens = choice.at("logprobs").at("tokens");
    EXPECT_EQ(tokens.size(), (echo ? 4 : 0) + whole.at("usage").at("completion_tokens").get<size_t>()) << "none is lost";
    for (const Json& token : tokens) partial += token.get<std::string>().starts_with("bytes:") ? 1 : 0;

    const Json answer = Json::parse(server.post("/v1/chat/completions", chat));
    const Json found = joined(server.stream("/v1/chat/completions", chat), 0);
    EXPECT_EQ(found.at("text"), answer.at("choices").at(0).at("message").at("content"));
    EXPECT_EQ(found.at("logprobs"), answer.at("choices").at(0).at("logprobs"));
    EXPECT_EQ(found.at("logprobs").at("content").size(), answer.at("usage").at("completion_tokens"));
  }
  EXPECT_GT(partial, 0);
}

TEST(LogProbabilitiesOfBytes, APromptMayTakeAllPositions) {
  const testing::TemporaryDirectory folder;
  testing::small_gguf().write(folder.file("small.gguf"));
  const ModelServer server(folder.file("small.gguf"));
  const std::vector<int32_t> prompt(2048, 'x');
  for (const int tokens : {0, 1}) {
    const Json body = {{"prompt", {prompt}}, {"max_tokens", tokens}, {"echo", true}, {"logprobs", 1}, {"ignore_eos", true}};
    const Json answer = Json::parse(server.post("/v1/completions", body));
    EXPECT_EQ(answer.at("choices").at(0).at("logprobs").at("tokens").size(), 2048U + static_cast<size_t>(tokens));
    EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 2048);
  }
}

TEST(LogProbabilitiesOfARealModel, AreThoseOfTransformers) {
  SLUICE_SKIP_WITHOUT_REAL_MODEL();
  const Json wanted = Json::parse(std::ifstream(testing::real_model_file("smollm2.json"))).at("logits");
  const ModelServer server(testing::real_model_file("SmolLM2-135M-Instruct.Q4_1.gguf").string());
  const Json body = {{"prompt", {wanted.at("ids")}}, {"max_tokens", 1}, {"logprobs", 8}, {"echo", true}, {"temperature", 0}};
  const Json choice = Json::parse(server.post("/v1/completions", body)).at("choices").at(0);
  const Json& found = choice.at("logprobs");
  ASSERT_EQ(found.at("tokens").size(), wanted.at("ids").size() + 1);
  for (const auto& [row, values] : wanted.at("rows").items()) {
    std::vector<double> likely;
    for (const Json& value : found.at("top_logprobs").at(std::stoul(row) + 1)) likely.push_back(value);
    std::sort(likely.rbegin(), likely.rend());
    for (size_t i = 0; i < values.at("values").size(); ++i) {
      EXPECT_NEAR(likely.at(i), values.at("values")[i].get<double>() - values.at("logsumexp").get<double>(), 1e-3) << row;
    }
  }
  const std::string text = choice.at("text");
  for (size_t i = 0; i < found.at("tokens").size(); ++i) {  // of English, where characters are bytes
    const std::string token = found.at("tokens")[i];
    EXPECT_EQ(text.substr(found.at("text_offset")[i], token.size()), token);
  }
}

}  // namespace
}  // namespace sluice::test
