// Log-probabilities over HTTP, against the logits that an engine keeps.

#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "agents/evaluation/trace_options.h"
#include "host/transformer/model.h"
#include "tests/generation/generation_api_fixture.h"
#include "tests/generation/joined_chunks.h"
#include "tests/harness/answer_checker.h"
#include "tests/support/log_softmax.h"

namespace sluice::test {
namespace {

using Ids = std::vector<int32_t>;
using Json = nlohmann::json;

constexpr double kTolerance = 1e-4;

/// Tokens that an engine of its own generates, and what its logits give to every token.
struct Reference {
  Ids tokens;                                   // prompt and generated
  std::vector<std::vector<double>> of_rows;     // [tokens - 1]: of all that may follow
  std::vector<std::vector<int32_t>> of_likely;  // [tokens - 1, 20]
};

Reference reference_of(const Ids& prompt, int count, const std::string& flow) {
  const auto device = create_device("cpu");
  const auto model = load_model(mini(), *device);
  std::optional<Plan> plan;
  if (!flow.empty()) plan = compile(shipped(flow).trace(trace_options(model->config()))).plan;
  EngineOptions options;
  options.pages = 64;
  Engine engine(*device, *model, plan ? &*plan : nullptr, options);
  Request request;
  request.prompt = prompt;
  request.max_tokens = count;
  request.ignore_eos = true;
  request.want_logits = true;
  engine.submit(std::move(request));
  const RequestResult result = engine.run_all().at(0);
  Reference reference;
  reference.tokens = prompt;
  reference.tokens.insert(reference.tokens.end(), result.tokens.begin(), result.tokens.end());
  const auto columns = static_cast<size_t>(model->config().vocabulary);
  for (size_t row = 0; row + 1 < reference.tokens.size(); ++row) {
    const auto logits = std::span(result.logits).subspan(row * columns, columns);
    reference.of_rows.push_back(testing::log_softmax(logits));
    reference.of_likely.push_back(testing::likely_tokens(logits, kMostLikely));
  }
  return reference;
}

class LogProbabilitiesApi : public GenerationApiTest {
 protected:
  static Json greedy(int tokens, const Json& more) {
    Json body = {{"prompt", kPrompt}, {"max_tokens", tokens}, {"temperature", 0}, {"ignore_eos", true}};
    body.update(more);
    return body;
  }
  Json chat(const Json& body) const {
    const httplib::Result result = post("/v1/chat/completions", body);
    EXPECT_EQ(result->status, 200) << result->body;
    return Json::parse(result->body);
  }
  std::string name_of(int32_t token) const { return api->tokenizer().bytes_of(token); }

  /// Tokens of a text's choice from `first` on against `wanted` from its token `from` on.
  void expect_values(const Json& found, size_t first, const Reference& wanted, size_t from, size_t likely) const {
    for (size_t i = first; i < found.at("tokens").size(); ++i) {
      const size_t at = from + i - first;
      const int32_t token = wanted.tokens.at(at);
      EXPECT_EQ(found.at("tokens")[i], name_of(token));
      if (at == 0) continue;
      const std::vector<double>& row = wanted.of_rows.at(at - 1);
      EXPECT_NEAR(found.at("token_logprobs")[i], row.at(static_cast<size_t>(token)), kTolerance) << at;
      Json names = Json::object();
      for (size_t place = 0; place < likely; ++place) {
        const int32_t other = wanted.of_likely.at(at - 1).at(place);
        names[name_of(other)] = row.at(static_cast<size_t>(other));
      }
      names[name_of(token)] = row.at(static_cast<size_t>(token));
      ASSERT_EQ(found.at("top_logprobs")[i].size(), names.size());
      for (const auto& [name, value] : names.items()) EXPECT_NEAR(found.at("top_logprobs")[i].at(name), value, kTolerance);
    }
  }
};

TEST_F(LogProbabilitiesApi, OfTextsAreThoseOfTheLogits) {
  const Ids prompt = api->tokenizer().encode(kPrompt);
  for (const char* flow : {"", "quest"}) {
    const Reference wanted = reference_of(prompt, 8, flow);
    for (const size_t likely : {0, 5, 20}) {
      const Json found = complete(greedy(8, {{"logprobs", likely}, {"flow", flow}})).at("choices").at(0).at("logprobs");
      ASSERT_EQ(found.at("tokens").size(), 8U);
      expect_values(found, 0, wanted, prompt.size(), likely);
      EXPECT_FALSE(found.contains("prompt_attention"));
    }
  }
}

TEST_F(LogProbabilitiesApi, OfARepeatedPromptStandBeforeThoseOfTheAnswer) {
  const Ids prompt = api->tokenizer().encode(kPrompt);
  for (const char* flow : {"", "quest"}) {
    const Reference wanted = reference_of(prompt, 8, flow);
    for (const Json& given : {Json(kPrompt), Json(prompt), Json::array({prompt})}) {
      const Json answer = complete(greedy(8, {{"prompt", given}, {"logprobs", 3}, {"echo", true}, {"flow", flow}}));
      const Json& choice = answer.at("choices").at(0);
      const Json& found = choice.at("logprobs");
      ASSERT_EQ(found.at("tokens").size(), prompt.size() + 8);
      EXPECT_TRUE(found.at("token_logprobs")[0].is_null() && found.at("top_logprobs")[0].is_null());
      expect_values(found, 0, wanted, 0, 3);
      EXPECT_EQ(found.at("prompt_attention"), "dense");
      EXPECT_EQ(answer.at("usage").at("completion_tokens"), 8);
      const std::string text = choice.at("text");
      for (size_t i = given.is_string() ? 0 : 1; i < found.at("tokens").size(); ++i) {  // of ids, <bos> has no text
        const std::string token = found.at("tokens")[i];
        if (token == "<eos>" || token == "<unk>") continue;
        EXPECT_EQ(text.substr(found.at("text_offset")[i], token.size()), token) << i;
      }
    }
  }
}

TEST_F(LogProbabilitiesApi, OfChatsAreThoseOfTheSameText) {
  Json body = greedy(6, {{"messages", {{{"role", "user"}, {"content", kPrompt}}}}, {"logprobs", true}, {"top_logprobs", 2}});
  body.erase("prompt");
  const Json choice = chat(body).at("choices").at(0);
  EXPECT_TRUE(choice.at("message").at("refusal").is_null() && choice.at("logprobs").at("refusal").is_null());
  const Json& content = choice.at("logprobs").at("content");
  const Json text = complete(greedy(6, {{"logprobs", 2}})).at("choices").at(0).at("logprobs");
  ASSERT_EQ(content.size(), 6U);
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string token = content[i].at("token");
    EXPECT_EQ(token, text.at("tokens")[i]);
    EXPECT_EQ(content[i].at("bytes"), Json(std::vector<uint8_t>(token.begin(), token.end())));
    EXPECT_NEAR(content[i].at("logprob"), text.at("token_logprobs")[i].get<double>(), kTolerance);
    ASSERT_EQ(content[i].at("top_logprobs").size(), 2U);
    EXPECT_EQ(content[i].at("top_logprobs")[0].at("token"), token) << "greedy: the most likely";
    EXPECT_EQ(content[i].at("top_logprobs")[0].at("logprob"), content[i].at("logprob"));
  }
  body["top_logprobs"] = 0;
  EXPECT_TRUE(chat(body).at("choices").at(0).at("logprobs").at("content").at(0).at("top_logprobs").empty());
  body.erase("top_logprobs");
  EXPECT_EQ(chat(body).at("choices").at(0).at("logprobs").at("content").size(), 6U);
  body["logprobs"] = false;
  EXPECT_TRUE(chat(body).at("choices").at(0).at("logprobs").is_null());
}

TEST_F(LogProbabilitiesApi, NothingButThePromptIsToldWhereNoTokenIsWanted) {
  const Json body = greedy(0, {{"logprobs", 1}, {"echo", true}, {"stop", "amber"}});
  const Json answer = complete(body);
  const Json& choice = answer.at("choices").at(0);
  EXPECT_EQ(choice.at("text"), kPrompt);
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(choice.at("logprobs").at("tokens").size(), api->tokenizer().encode(kPrompt).size());
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 0);
  EXPECT_EQ(joined(stream("/v1/completions", body), 0).at("logprobs"), choice.at("logprobs"));
  Json plain = body;
  plain.erase("logprobs");
  EXPECT_EQ(text_of(plain), kPrompt);
  plain.erase("echo");
  EXPECT_EQ(Json::parse(post("/v1/completions", plain)->body).at("error").at("param"), "max_tokens");
}

TEST_F(LogProbabilitiesApi, OfSeveralPromptsAreThoseOfEach) {
  const Ids first = api->tokenizer().encode(kPrompt);
  const Ids second = {1, 4, 27, 13};
  const auto wanted = [&](const Ids& prompt) {
    return complete(greedy(3, {{"prompt", prompt}, {"logprobs", 2}, {"echo", true}})).at("choices").at(0);
  };
  const Json body = greedy(3, {{"prompt", {first, second, first}}, {"n", 2}, {"logprobs", 2}, {"echo", true}});
  const Json choices = complete(body).at("choices");
  const std::vector<Json> chunks = stream("/v1/completions", body);
  ASSERT_EQ(choices.size(), 6U);
  for (int i = 0; i < 6; ++i) {
    const Json one = wanted(i / 2 == 1 ? second : first);
    EXPECT_EQ(choices.at(i).at("index"), i);
    EXPECT_EQ(choices.at(i).at("text"), one.at("text"));
    const Json streamed = joined(chunks, i);
    for (const char* list : {"tokens", "text_offset"}) {
      EXPECT_EQ(choices.at(i).at("logprobs").at(list), one.at("logprobs").at(list));
      EXPECT_EQ(streamed.at("logprobs").at(list), one.at("logprobs").at(list));
    }
    for (size_t token = 1; token < one.at("logprobs").at("tokens").size(); ++token) {
      EXPECT_NEAR(choices.at(i).at("logprobs").at("token_logprobs")[token],
                  one.at("logprobs").at("token_logprobs")[token].get<double>(), kTolerance);
    }
  }
}

TEST_F(LogProbabilitiesApi, CoverStopStringsAndEndTokens) {
  const Json whole = complete(greedy(24, {{"logprobs", 0}})).at("choices").at(0);
  const std::string text = whole.at("text");
  const std::string stop = text.substr(text.find(' ', text.size() / 2) - 1, 3);  // across two tokens
  for (const Json& more :
       {Json({{"stop", {"never", stop}}}), Json({{"stop_token_ids", {api->tokenizer().id_of("at")}}, {"prompt", {1, 4, 27}}})}) {
    Json body = greedy(24, {{"logprobs", 0}});
    body.update(more);
    const Json answer = complete(body);
    const Json& choice = answer.at("choices").at(0);
    const Json& found = choice.at("logprobs");
    const std::string cut = choice.at("text");
    if (more.contains("stop")) {
      EXPECT_EQ(cut, text.substr(0, text.find(stop)));
      EXPECT_EQ(found.at("tokens").back(), whole.at("logprobs").at("tokens")[found.at("tokens").size() - 1]);
    } else {
      EXPECT_EQ(found.at("tokens"), Json({"at"})) << "what stopped the answer";
      EXPECT_EQ(cut, "");
    }
    EXPECT_EQ(choice.at("finish_reason"), "stop");
    EXPECT_EQ(found.at("tokens").size(), answer.at("usage").at("completion_tokens")) << "each that was generated";
    const Json streamed = joined(stream("/v1/completions", body), 0);
    EXPECT_EQ(streamed.at("text"), cut);
    EXPECT_EQ(streamed.at("logprobs").at("tokens"), found.at("tokens"));
    EXPECT_EQ(streamed.at("finish_reason"), choice.at("finish_reason"));
  }
}

/// What lm-evaluation-harness (its `local-completions`) sends for a context and what may follow it, and what it makes of the
/// answer.
struct Likelihood {
  double sum = 0;
  bool greedy = true;
};

TEST_F(LogProbabilitiesApi, AreReadByLmEvaluationHarness) {
  const Ids context = api->tokenizer().encode(kPrompt);
  const Reference wanted = reference_of(context, 4, "");
  const Ids likely(wanted.tokens.begin(), wanted.tokens.end());
  Ids unlikely = likely;
  unlikely.back() = unlikely.back() == 5 ? 6 : 5;
  const Json body = {
      {"model", "mini"}, {"prompt", {likely, unlikely}}, {"temperature", 0}, {"max_tokens", 1}, {"logprobs", 1}, {"seed", 1234},
      {"echo", true}};
  std::vector<Likelihood> read;
  const Json answer = complete(body);
  for (const Json& choice : answer.at("choices")) {
    const Json& found = choice.at("logprobs");
    ASSERT_EQ(found.at("tokens").size(), likely.size() + 1);
    Likelihood& likelihood = read.emplace_back();
    for (size_t i = context.size(); i + 1 < found.at("tokens").size(); ++i) {  // [context:-1]
      likelihood.sum += found.at("token_logprobs")[i].get<double>();
      const Json& top = found.at("top_logprobs")[i];
      const auto best = std::max_element(top.begin(), top.end());  // of objects: by value
      likelihood.greedy = likelihood.greedy && best.key() == found.at("tokens")[i] && *best == found.at("token_logprobs")[i];
    }
  }
  // Of a prompt: where tokens are decoded K and V may be rounded to the neighbours, by processors without AVX-512.
  const Reference of_prompt = reference_of(likely, 1, "");
  double sum = 0;
  for (size_t i = context.size(); i < likely.size(); ++i) sum += of_prompt.of_rows[i - 1][static_cast<size_t>(likely[i])];
  ASSERT_EQ(read.size(), 2U);
  EXPECT_NEAR(read[0].sum, sum, 4 * kTolerance);
  EXPECT_TRUE(read[0].greedy);
  EXPECT_LT(read[1].sum, read[0].sum);
  EXPECT_FALSE(read[1].greedy);
}

TEST_F(LogProbabilitiesApi, AreNotAskedForWithoutBound) {
  const Ids prompt(6000, 5);
  const Json many = {{"prompt", prompt}, {"n", 16}, {"max_tokens", 1}, {"logprobs", 20}, {"echo", true}};
  const Json error = Json::parse(post("/v1/completions", many)->body).at("error");
  EXPECT_EQ(error.at("param"), "logprobs") << error;
  EXPECT_NE(error.at("message").get<std::string>().find("24966"), std::string::npos) << error;
  Json fewer = many;
  fewer["prompt"] = Ids(100, 5);
  const Json choices = complete(fewer).at("choices");
  ASSERT_EQ(choices.size(), 16U);
  EXPECT_EQ(choices.at(15).at("logprobs").at("tokens").size(), 101U);
}

TEST_F(LogProbabilitiesApi, AnswersAreAsTheyAreDescribed) {
  httplib::Client http("127.0.0.1", server->port());
  const testing::AnswerChecker checker(Json::parse(http.Get("/v1/openapi.json")->body));
  const Json message = {{"role", "user"}, {"content", kPrompt}};
  const std::vector<std::pair<std::string, Json>> bodies = {
      {"/v1/completions", {{"prompt", {kPrompt, "<bos>"}}, {"logprobs", 2}, {"echo", true}}},
      {"/v1/completions", {{"prompt", kPrompt}, {"logprobs", 0}}},
      {"/v1/completions", {{"prompt", kPrompt}}},
      {"/v1/chat/completions", {{"messages", {message}}, {"max_tokens", 4}, {"logprobs", true}, {"top_logprobs", 3}}},
      {"/v1/chat/completions", {{"messages", {message}}, {"max_tokens", 4}}}};
  for (const auto& [path, body] : bodies) {
    const httplib::Result result = post(path, body);
    EXPECT_EQ(checker.check("POST", path, result->status, result->get_header_value("Content-Type"), result->body), "") << body;
  }
}

}  // namespace
}  // namespace sluice::test
