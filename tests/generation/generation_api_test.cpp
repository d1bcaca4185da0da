#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/trace_options.h"
#include "host/transformer/model.h"
#include "tests/generation/generation_api_fixture.h"
#include "tests/http/open_api_checker.h"
#include "tests/support/eventually.h"

namespace sluice::test {
namespace {

using Json = nlohmann::json;
using testing::eventually;

/// What an engine of its own generates.
std::vector<int32_t> engine_tokens(const std::vector<int32_t>& prompt, int count, const std::string& flow) {
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
  engine.submit(std::move(request));
  return engine.run_all().at(0).tokens;
}

TEST_F(GenerationApiTest, GeneratesWhatTheEngineDoes) {
  const std::vector<int32_t> prompt = api->tokenizer().encode(kPrompt);
  for (const char* flow : {"", "quest"}) {
    const std::string wanted = api->tokenizer().decode(engine_tokens(prompt, 24, flow));
    Json body = {{"prompt", kPrompt}, {"max_tokens", 24}, {"temperature", 0}, {"ignore_eos", true}, {"flow", flow}};
    EXPECT_EQ(text_of(body), wanted);
    body["prompt"] = prompt;
    EXPECT_EQ(text_of(body), wanted);
    std::string streamed;
    for (const Json& chunk : stream("/v1/completions", body)) streamed += chunk.at("choices").at(0).at("text").get<std::string>();
    EXPECT_EQ(streamed, wanted);
  }
}

TEST_F(GenerationApiTest, CountsTokensAndSaysWhyItEnded) {
  const Json answer = complete({{"prompt", {1, 4, 27, 13}}, {"max_tokens", 5}, {"ignore_eos", true}, {"seed", 3}});
  EXPECT_EQ(answer.at("object"), "text_completion");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 4);
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 5);
  EXPECT_EQ(answer.at("usage").at("total_tokens"), 9);
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "length");
}

TEST_F(GenerationApiTest, StreamsAsOpenAiDoes) {
  const Json body = {{"messages", {{{"role", "user"}, {"content", kPrompt}}}},
                     {"max_tokens", 6},
                     {"temperature", 0},
                     {"ignore_eos", true},
                     {"stream_options", {{"include_usage", true}}}};
  const std::vector<Json> chunks = stream("/v1/chat/completions", body);
  ASSERT_GE(chunks.size(), 4U);
  EXPECT_EQ(chunks.front().at("object"), "chat.completion.chunk");
  EXPECT_EQ(chunks.front().at("choices").at(0).at("delta"), Json({{"role", "assistant"}, {"content", ""}}));
  EXPECT_TRUE(chunks.back().at("choices").empty());
  EXPECT_EQ(chunks.back().at("usage").at("completion_tokens"), 6);
  const Json& last = chunks[chunks.size() - 2].at("choices").at(0);
  EXPECT_EQ(last.at("finish_reason"), "length");
  EXPECT_EQ(last.at("delta"), Json::object());
  std::string text;
  for (const Json& chunk : chunks) {
    EXPECT_EQ(chunk.at("id"), chunks.front().at("id"));
    if (!chunk.at("choices").empty()) text += chunk.at("choices").at(0).at("delta").value("content", "");
  }
  Json whole = body;
  whole.erase("stream_options");
  const Json answer = Json::parse(post("/v1/chat/completions", whole)->body);
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("content"), text);
}

TEST_F(GenerationApiTest, CountsCachedTokensOfEachPromptOnce) {
  std::string prompt = "<bos>";
  for (int i = 0; i < 12; ++i) prompt += " key acorn = amber ; key album = almond ;";
  Json body = {{"prompt", prompt + " ask acorn ="}, {"max_tokens", 24}, {"temperature", 0}, {"ignore_eos", true}};
  const auto cached = [&] { return complete(body).at("usage").at("prompt_tokens_details").at("cached_tokens").get<int>(); };
  cached();
  const int whole = cached();
  EXPECT_GT(whole, 0);
  const std::string text = text_of(body);
  body["stop"] = text.substr(text.size() / 2, 1);
  EXPECT_EQ(cached(), whole);
  body["n"] = 3;  // answers to one prompt
  EXPECT_EQ(cached(), whole);
  body["prompt"] = {body.at("prompt"), body.at("prompt")};
  EXPECT_EQ(cached(), 2 * whole);
}

TEST_F(GenerationApiTest, TextThatStoodElsewhereIsCopied) {
  const auto ids = [](int first, int count) {
    std::vector<int> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(40 + (first + i * 7) % 400);
    return tokens;
  };
  const auto body_of = [&](std::vector<int> before, const std::string& extra_key) {
    const auto start = before.size();
    const std::vector<int> text = ids(3, 200);
    before.insert(before.end(), text.begin(), text.end());
    for (const int token : {1, 2, 3}) before.push_back(token);
    const Json segments = {{{"start", start}, {"end", start + text.size()}, {"extra_key", extra_key}}};
    return Json{{"prompt", before}, {"segments", segments}, {"max_tokens", 4}, {"temperature", 0}, {"ignore_eos", true}};
  };
  const auto cached = [&](const Json& body) {
    return complete(body).at("usage").at("prompt_tokens_details").at("cached_tokens").get<int>();
  };
  EXPECT_EQ(cached(body_of(ids(1, 30), "docs")), 0);
  Json elsewhere = body_of(ids(2, 51), "docs");
  elsewhere["recompute"] = "none";
  EXPECT_EQ(cached(elsewhere), 192) << "twelve pages";
  Json some = body_of(ids(5, 45), "docs");
  some["recompute"] = {{"rule", "sparsex"}, {"share", 0.25}};
  const int left = cached(some);
  EXPECT_LT(left, 192 - 48);
  EXPECT_GT(left, 90);
  EXPECT_EQ(cached(body_of(ids(9, 37), "other")), 0);
  // With everything computed again the answer is that of a server which knows nothing.
  Json all = body_of(ids(11, 33), "docs");
  all["recompute"] = "all";
  Json plain = all;
  plain.erase("segments");
  EXPECT_EQ(text_of(all), text_of(plain));
  httplib::Client http("127.0.0.1", server->port());
  const std::string metrics = http.Get("/metrics")->body;
  EXPECT_NE(metrics.find("sluice:segment_copied_tokens_total"), std::string::npos);
  EXPECT_EQ(metrics.find("sluice:segment_copied_tokens_total{model_name=\"mini\"} 0\n"), std::string::npos) << metrics;
}

TEST_F(GenerationApiTest, AFlowsOwnRuleSaysWhatIsComputedAgain) {
  GenerationOptions options;
  options.model = mini();
  options.pool_bytes = size_t{32} << 20;
  options.read_flow = [](const std::string&, const TraceOptions& trace) {
    return sluice::trace(R"(
      local flow = sluice.flow { name = "mine", page = 32, layers = { rest = "full" } }
      function flow.recompute(r)
        return sluice.topk(r.position:min("token"), { k = 2 })
      end
      return flow)",
                         "mine.lua", trace);
  };
  GenerationApi own(std::move(options), {"mine"});
  HttpServer serving({});
  own.add_routes(serving);
  serving.start();
  httplib::Client http("127.0.0.1", serving.port());
  std::vector<int> prompt(20, 41);
  for (int i = 0; i < 200; ++i) prompt.push_back(40 + i * 7 % 400);
  const auto ask = [&](int before, const Json& recompute) {
    std::vector<int> moved(static_cast<size_t>(before), 42 + before);
    moved.insert(moved.end(), prompt.begin() + 20, prompt.end());
    moved.insert(moved.end(), {1, 2, 3});
    const Json segments = {{{"start", before}, {"end", before + 200}}};
    Json body = {{"prompt", moved}, {"flow", "mine"}, {"segments", segments}, {"max_tokens", 1}, {"ignore_eos", true}};
    if (!recompute.is_null()) body["recompute"] = recompute;
    return http.Post("/v1/completions", body.dump(), "application/json");
  };
  const auto cached = [&](int before, const Json& recompute) {
    const httplib::Result answer = ask(before, recompute);
    EXPECT_EQ(answer->status, 200) << answer->body;
    return Json::parse(answer->body).at("usage").at("prompt_tokens_details").at("cached_tokens").get<int>();
  };
  EXPECT_EQ(cached(20, nullptr), 0);
  EXPECT_EQ(cached(31, nullptr), 192 - 64) << "of six blocks of 32 two are computed again";
  EXPECT_EQ(cached(33, "none"), 192) << "another rule, for blocks of the flow's size";
  EXPECT_EQ(cached(35, "all"), 0);
  EXPECT_GT(cached(37, "sparsex"), 0);
  for (const Json& wrong : {Json{{"rule", "none"}, {"share", 0.5}}, Json{{"rule", "epic"}, {"boundary", 1}},
                            Json{{"rule", "sparsex"}, {"boundary", 8}}}) {
    const httplib::Result answer = ask(39, wrong);
    EXPECT_EQ(answer->status, 400) << answer->body;
    EXPECT_NE(answer->body.find("recompute"), std::string::npos) << answer->body;
  }
  serving.stop();
}

TEST_F(GenerationApiTest, SegmentsOfMessagesAreCopied) {
  std::string page;
  for (int i = 0; i < 30; ++i) page += " key acorn = amber ;";
  const auto body_of = [&](const std::string& question) {
    const Json content = {{{"type", "text"}, {"text", question}},
                          {{"type", "segment"}, {"text", page}, {"extra_key", "pages"}},
                          {{"type", "text"}, {"text", " ask acorn ="}}};
    return Json{
        {"messages", {{{"role", "user"}, {"content", content}}}}, {"max_tokens", 2}, {"temperature", 0}, {"recompute", "none"}};
  };
  const auto cached = [&](const Json& body) {
    return Json::parse(post("/v1/chat/completions", body)->body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  cached(body_of("key album = almond ;"));
  EXPECT_GT(cached(body_of("key apple = amber ; key album = almond ;")), 100);
}

TEST_F(GenerationApiTest, FrozenTextsAreKnownBeforeAnybodyAsks) {
  std::string page;
  for (int i = 0; i < 30; ++i) page += " key acorn = amber ;";
  httplib::Client http("127.0.0.1", server->port());
  const auto texts = [&](const std::string& query) { return Json::parse(http.Get("/v1/frozen" + query)->body).at("data"); };
  EXPECT_TRUE(texts("").empty());
  const httplib::Result made = post("/v1/frozen", {{"prompt", page}, {"extra_key", "pages"}});
  ASSERT_EQ(made->status, 200) << made->body;
  const Json frozen = Json::parse(made->body);
  EXPECT_EQ(frozen.at("object"), "frozen_text");
  EXPECT_GT(frozen.at("tokens"), 100);
  EXPECT_EQ(frozen.at("found"), 0);
  EXPECT_EQ(Json::parse(post("/v1/frozen", {{"prompt", page}, {"extra_key", "pages"}})->body), frozen) << "it is there once";

  const Json content = {{{"type", "text"}, {"text", "key apple = amber ;"}},
                        {{"type", "segment"}, {"text", page}, {"extra_key", "pages"}},
                        {{"type", "text"}, {"text", " ask acorn ="}}};
  const Json chat = {
      {"messages", {{{"role", "user"}, {"content", content}}}}, {"max_tokens", 2}, {"temperature", 0}, {"recompute", "none"}};
  const auto cached = [&](const Json& body) {
    return Json::parse(post("/v1/chat/completions", body)->body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached(chat), frozen.at("tokens")) << "all of its blocks, at the first request";
  ASSERT_EQ(texts("?extra_key=pages").size(), 1U);
  EXPECT_EQ(texts("?extra_key=pages").at(0).at("found"), 1);
  EXPECT_TRUE(texts("?extra_key=other").empty());
  EXPECT_NE(http.Get("/metrics")->body.find("sluice:frozen_pages"), std::string::npos);

  const std::string address = "/v1/frozen/" + frozen.at("id").dump();
  EXPECT_EQ(http.Delete(address)->status, 200);
  EXPECT_EQ(http.Delete(address)->status, 404);
  EXPECT_EQ(http.Delete("/v1/frozen/1x")->status, 404);
  EXPECT_TRUE(texts("").empty());
}

TEST_F(GenerationApiTest, TextsThatCannotBeFrozenAreRefused) {
  const auto refusal = [&](const Json& body) {
    const httplib::Result result = post("/v1/frozen", body);
    EXPECT_EQ(result->status, 400) << body << result->body;
    EXPECT_EQ(result->get_header_value("Content-Type"), "application/problem+json");
    return Json::parse(result->body).at("detail").get<std::string>();
  };
  refusal({{"extra_key", "pages"}});
  refusal({{"prompt", 7}});
  refusal({{"prompt", ""}});
  refusal({{"prompt", {40, -1}}});
  refusal({{"prompt", {40, 1 << 30}}});
  EXPECT_NE(refusal({{"prompt", {40, 41, 42}}}).find("blocks of 16"), std::string::npos);
  refusal({{"prompt", std::vector<int>(64, 40)}, {"extra_key", std::string(257, 'x')}});
  EXPECT_NE(refusal({{"prompt", std::vector<int>(64, 40)}, {"agent", "ada"}}).find("agents"), std::string::npos);
  EXPECT_NE(refusal({{"prompt", std::vector<int>(64, 40)}, {"extrakey", "pages"}}).find("extra_key"), std::string::npos);
}

TEST_F(GenerationApiTest, StopsAtStringsAcrossTokens) {
  const Json body = {{"prompt", kPrompt}, {"max_tokens", 24}, {"temperature", 0}, {"ignore_eos", true}};
  const std::string whole = text_of(body);
  const size_t space = whole.find(' ', whole.size() / 2);
  ASSERT_NE(space, std::string::npos);
  const std::string stop = whole.substr(space - 1, 3);  // the end of a word, the space and the beginning of the next
  Json stopped = body;
  stopped["stop"] = {"never", stop};
  const Json answer = complete(stopped).at("choices").at(0);
  EXPECT_EQ(answer.at("text"), whole.substr(0, whole.find(stop)));
  EXPECT_EQ(answer.at("finish_reason"), "stop");
  std::string streamed;
  for (const Json& chunk : stream("/v1/completions", stopped))
    streamed += chunk.at("choices").at(0).at("text").get<std::string>();
  EXPECT_EQ(streamed, whole.substr(0, whole.find(stop)));
}

TEST_F(GenerationApiTest, AnswersSeveralPromptsSeveralTimes) {
  const Json body = {{"prompt", {kPrompt, "<bos> key apple ="}},
                     {"n", 2},
                     {"max_tokens", 6},
                     {"seed", 5},
                     {"temperature", 3},
                     {"ignore_eos", true},
                     {"echo", true}};
  const Json first = complete(body).at("choices");
  ASSERT_EQ(first.size(), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(first.at(i).at("index"), i);
  EXPECT_TRUE(first.at(3).at("text").get<std::string>().starts_with("<bos> key apple ="));
  EXPECT_NE(first.at(0).at("text"), first.at(1).at("text"));
  EXPECT_EQ(complete(body).at("choices"), first);  // the same seed
}

TEST_F(GenerationApiTest, GoesOnBehindAPromptThatItRepeats) {
  const std::string prompt = "<bos> key acorn = 11 22 33 44 ; key album = 5 6 7 8 ; ask acorn =";
  const Json body = {{"prompt", prompt}, {"max_tokens", 4}, {"temperature", 0}, {"echo", true}};
  EXPECT_EQ(complete(body).at("choices").at(0).at("text"), prompt + " 11 22 33 44");
  std::string streamed;
  for (const Json& chunk : stream("/v1/completions", body)) {
    if (!chunk.at("choices").empty()) streamed += chunk.at("choices").at(0).at("text").get<std::string>();
  }
  EXPECT_EQ(streamed, prompt + " 11 22 33 44");
}

TEST_F(GenerationApiTest, RefusesInOpenAisWords) {
  const auto refused = [&](const Json& body, int status, const std::string& field) {
    const httplib::Result result = post("/v1/completions", body);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, status) << body;
    const Json error = Json::parse(result->body).at("error");
    EXPECT_TRUE(error.at("message").is_string() && error.at("type").is_string() && error.contains("code"));
    EXPECT_TRUE(field.empty() || error.at("param") == field) << error;
  };
  refused({{"prompt", "a"}, {"model", "gpt-5"}}, 404, "model");
  refused({{"prompt", "a"}, {"flow", "../../etc/passwd"}}, 400, "flow");
  refused({{"prompt", "a"}, {"logprobs", 21}}, 400, "logprobs");
  refused({{"prompt", {99999}}}, 400, "");                         // outside the vocabulary
  refused({{"prompt", "a"}, {"max_tokens", 1'000'000}}, 400, "");  // beyond the model's positions
  refused({{"prompt", "a"}, {"max_tokens", 1 << 20}}, 400, "");
  refused({{"prompt", ""}}, 400, "");
  refused({{"prompt", "a"}, {"stream", true}, {"max_tokens", 1 << 20}}, 400, "");  // before the stream begins
  refused(Json::array(), 400, "body");
  httplib::Client http("127.0.0.1", server->port());
  EXPECT_TRUE(Json::parse(http.Post("/v1/completions", "{}", "text/plain")->body).contains("error"));
  const auto read = http.Get("/v1/completions");
  EXPECT_EQ(read->status, 405);
  EXPECT_EQ(read->get_header_value("Allow"), "OPTIONS, POST");
  EXPECT_TRUE(Json::parse(read->body).at("error").at("message").is_string());
  EXPECT_EQ(http.Get("/v1/models/other")->status, 404);
  EXPECT_EQ(http.Get("/v1/models/mini")->status, 200);
}

TEST(GenerationApi, TakesFlowsOffTheListThatItsOwnerAllows) {
  GenerationOptions options;
  options.model = mini();
  options.pool_bytes = size_t{8} << 20;
  options.most_engines = 1;
  options.check_flow = [](const std::string& name) {
    if (name == "submission:9") throw HttpProblem(404, "there is no submission 9").with("param", "flow");
  };
  options.read_flow = [](const std::string& name, const TraceOptions& trace) {
    if (name == "submission:8") throw HttpProblem(400, "submission 8 is queued");  // since it was checked
    return shipped(name == "submission:7" ? "quest" : name).trace(trace);
  };
  GenerationApi api(std::move(options), {"quest"});
  HttpServer server({});
  api.add_routes(server);
  server.start();
  httplib::Client http("127.0.0.1", server.port());
  const auto post = [&](const std::string& flow) {
    const Json body = {{"prompt", kPrompt}, {"flow", flow}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}};
    return http.Post("/v1/completions", body.dump(), "application/json");
  };
  const auto text = [&](const std::string& flow) { return Json::parse(post(flow)->body).at("choices").at(0).at("text"); };
  EXPECT_EQ(text("submission:7"), text("quest")) << "with one engine at a time";
  EXPECT_EQ(text("submission:7"), text("quest"));
  const httplib::Result missing = post("submission:9");
  EXPECT_EQ(missing->status, 404);
  EXPECT_EQ(Json::parse(missing->body).at("error").at("param"), "flow") << missing->body;
  EXPECT_EQ(post("submission:8")->status, 400);
  EXPECT_EQ(post("other")->status, 400);
  EXPECT_EQ(Json::parse(http.Get("/v1/models")->body).at("data").at(0).at("flows"), Json({"quest"}));
}

TEST_F(GenerationApiTest, SaysThatAPromptIsTooLongHoweverLittleIsAskedFor) {
  const std::vector<int> tokens(static_cast<size_t>(load_config(mini()).max_positions) + 1, 5);
  const Json error = Json::parse(post("/v1/completions", {{"prompt", tokens}, {"max_tokens", 1}})->body).at("error");
  EXPECT_EQ(error.at("code"), "context_length_exceeded") << error;
  const Json echo = {{"prompt", tokens}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}};
  const std::string alone = Json::parse(post("/v1/completions", echo)->body).at("error").at("message");
  const int most = load_config(mini()).max_positions;
  EXPECT_EQ(alone, fmt::format("This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the "
                               "prompt, 0 to generate).",
                               most, most + 1, most + 1))
      << "the words that OpenAI's clients look for";
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) text += "key ";
  const Json message = {{"role", "user"}, {"content", text}};
  const httplib::Result chat = post("/v1/chat/completions", {{"messages", {message}}});
  EXPECT_EQ(chat->status, 400);
  EXPECT_EQ(Json::parse(chat->body).at("error").at("code"), "context_length_exceeded") << chat->body;
  EXPECT_NE(chat->body.find("This model's maximum context length is"), std::string::npos) << chat->body;
  EXPECT_EQ(chat->body.find("bytes"), std::string::npos) << "refused for its bytes: " << chat->body;
  for (const std::string& path : {std::string("/v1/completions"), std::string("/v1/chat/completions")}) {
    const std::string large(size_t{900} << 10, 'a');
    const Json body = path.ends_with("/chat/completions") ? Json{{"messages", {{{"role", "user"}, {"content", large}}}}}
                                                          : Json{{"prompt", large}, {"max_tokens", 1}};
    const Json told = Json::parse(post(path, body)->body).at("error");
    EXPECT_EQ(told.at("code"), "context_length_exceeded") << told;
    EXPECT_NE(told.at("message").get<std::string>().find("This model's maximum context length is"), std::string::npos) << told;
  }
}

TEST(GenerationApi, WantsATokenIfItsOwnerSaysSo) {
  GenerationOptions options;
  options.model = mini();
  options.pool_bytes = size_t{8} << 20;
  options.token_for_completions = true;
  GenerationApi api(std::move(options), {"quest"});
  HttpServerOptions with_tokens;
  with_tokens.gate.authenticate = [](const std::string& token) {
    return token == "right" ? std::optional(Identity{"ada", Role::kAgent}) : std::nullopt;
  };
  HttpServer server(with_tokens);
  api.add_routes(server);
  server.start();
  httplib::Client http("127.0.0.1", server.port());
  const std::string body = Json{{"prompt", kPrompt}, {"max_tokens", 2}}.dump();
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    const httplib::Result refused = http.Post(path, {{"Authorization", "Bearer wrong"}}, body, "application/json");
    EXPECT_EQ(refused->status, 401);
    EXPECT_EQ(Json::parse(refused->body).at("error").at("type"), "authentication_error") << refused->body;
  }
  EXPECT_EQ(http.Post("/v1/completions", {{"Authorization", "Bearer right"}}, body, "application/json")->status, 200);
  EXPECT_EQ(http.Get("/v1/models")->status, 200);
  const Json paths = Json::parse(http.Get("/v1/openapi.json")->body).at("paths");
  EXPECT_EQ(paths.at("/v1/completions").at("post").at("security").size(), 1U);
  EXPECT_EQ(paths.at("/v1/models").at("get").at("security").size(), 2U);
}

TEST_F(GenerationApiTest, CountsWhatItDid) {
  int prompt_tokens = 0;
  int generated = 0;
  for (int i = 0; i < 5; ++i) {
    const Json usage = complete({{"prompt", kPrompt}, {"max_tokens", 3 + i}, {"ignore_eos", true}}).at("usage");
    prompt_tokens += usage.at("prompt_tokens").get<int>();
    generated += usage.at("completion_tokens").get<int>();
  }
  EXPECT_TRUE(eventually([&] { return metric("num_requests_running") == 0; }));
  const auto values = metrics();
  const auto value = [&](const std::string& name) { return values.at("vllm:" + name + "{model_name=\"mini\"}"); };
  EXPECT_EQ(value("prompt_tokens_total"), prompt_tokens);
  EXPECT_EQ(value("generation_tokens_total"), generated);
  EXPECT_EQ(value("prefix_cache_queries_total"), prompt_tokens);
  EXPECT_EQ(values.at("vllm:request_success_total{model_name=\"mini\",finished_reason=\"length\"}"), 5);
  EXPECT_EQ(value("time_to_first_token_seconds_count"), 5);
  EXPECT_EQ(value("inter_token_latency_seconds_count"), generated - 5);
  for (const char* name :
       {"e2e_request_latency", "request_queue_time", "request_prefill_time", "request_decode_time", "request_inference_time"}) {
    EXPECT_EQ(value(std::string(name) + "_seconds_count"), 5) << name;
  }
  EXPECT_NEAR(value("request_queue_time_seconds_sum") + value("request_prefill_time_seconds_sum") +
                  value("request_decode_time_seconds_sum"),
              value("e2e_request_latency_seconds_sum"), 1e-6);
  EXPECT_TRUE(values.contains("vllm:time_to_first_token_seconds_bucket{model_name=\"mini\",le=\"0.001\"}"));
  EXPECT_TRUE(values.contains("vllm:time_to_first_token_seconds_bucket{model_name=\"mini\",le=\"2560\"}"));
}

TEST_F(GenerationApiTest, DescribesItsRoutes) {
  httplib::Client http("127.0.0.1", server->port());
  const Json document = Json::parse(http.Get("/v1/openapi.json")->body);
  EXPECT_EQ(check_open_api(document), std::vector<std::string>{});
  EXPECT_TRUE(document.at("paths").at("/v1/chat/completions").contains("post"));
  for (const char* path : {"/health", "/v1/health", "/health/live", "/health/ready"}) {
    EXPECT_EQ(http.Get(path)->status, 200) << path;
  }
}

}  // namespace
}  // namespace sluice::test
