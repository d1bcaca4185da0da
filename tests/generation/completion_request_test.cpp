#include "agents/generation/completion_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agents/generation/stop_strings.h"
#include "agents/http/http_problem.h"
#include "host/text/token_text.h"
#include "tests/generation/byte_tokenizer.h"

namespace sluice::test {
namespace {

using Json = nlohmann::json;

CompletionRequest parse(const Json& body, CompletionKind kind = CompletionKind::kText) {
  return parse_completion_request(body.dump(), kind);
}

/// The field that a refusal names, or "accepted".
std::string refused_field(const std::string& body, CompletionKind kind = CompletionKind::kText) {
  try {
    parse_completion_request(body, kind);
    return "accepted";
  } catch (const HttpProblem& problem) {
    EXPECT_EQ(problem.status(), 400) << body;
    return problem.members().at("param");
  }
}

TEST(CompletionRequest, ReadsEveryFormOfPrompt) {
  EXPECT_EQ(parse({{"prompt", "a b"}}).texts, std::vector<std::string>{"a b"});
  EXPECT_EQ(parse({{"prompt", {"a", "b"}}}).texts.size(), 2U);
  EXPECT_EQ(parse({{"prompt", {1, 2, 3}}}).tokens, (std::vector<std::vector<int32_t>>{{1, 2, 3}}));
  EXPECT_EQ(parse(Json::parse(R"({"prompt": [[1], [2, 3]]})")).tokens, (std::vector<std::vector<int32_t>>{{1}, {2, 3}}));
}

TEST(CompletionRequest, TakesWhatClientsWithToolsSendAndAsksForNothing) {
  const auto accepted = [](const char* body) { return refused_field(body, CompletionKind::kChat) == "accepted"; };
  EXPECT_TRUE(accepted(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[]},
                                       {"role":"user","content":"b"}]})"));
  EXPECT_TRUE(accepted(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":null}]})"));
  EXPECT_TRUE(accepted(R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}],"tool_choice":"none"})"));
  EXPECT_TRUE(accepted(R"({"messages":[{"role":"user","content":"a"}],"functions":[{"name":"f"}],"function_call":"none"})"));
  EXPECT_FALSE(accepted(R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}],"tool_choice":"auto"})"));
  EXPECT_FALSE(accepted(R"({"messages":[{"role":"user","content":"a"}],"functions":[{"name":"f"}],"tool_choice":"none"})"));
  EXPECT_FALSE(accepted(R"({"messages":[{"role":"user","content":null}]})"));
  EXPECT_FALSE(accepted(R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]})"));
}

TEST(CompletionRequest, JoinsTextsOfAMessageByLines) {
  const auto content = [](const Json& parts) {
    return parse({{"messages", {{{"role", "user"}, {"content", parts}}}}}, CompletionKind::kChat).messages.at(0);
  };
  const auto text = [](const char* said) { return Json{{"type", "text"}, {"text", said}}; };
  const Json segment = {{"type", "segment"}, {"text", "[s]"}};
  EXPECT_EQ(content({text("a"), text("b"), text("")}).content, "a\nb\n");
  const ChatMessage mixed = content({text("a"), segment, text("b"), text("c"), segment});
  EXPECT_EQ(mixed.content, "a[s]b\nc[s]") << "whoever marks segments writes what stands between";
  EXPECT_EQ(mixed.segments.at(1).first, 7U);
}

TEST(CompletionRequest, ReadsOptionsAndTheirDefaults) {
  const CompletionRequest plain = parse({{"prompt", "a"}});
  EXPECT_EQ(plain.sampling.temperature, 1);
  EXPECT_EQ(plain.sampling.top_p, 1);
  EXPECT_FALSE(plain.max_tokens || plain.seed);
  const CompletionRequest full = parse({{"prompt", "a"},
                                        {"max_completion_tokens", 7},
                                        {"temperature", 0.5},
                                        {"top_p", 0.25},
                                        {"top_k", -1},
                                        {"seed", -3},
                                        {"stop", {"x", "y"}},
                                        {"n", 3},
                                        {"ignore_eos", true},
                                        {"stream", true},
                                        {"flow", "quest"},
                                        {"echo", true},
                                        {"stop_token_ids", {5}},
                                        {"stream_options", {{"include_usage", true}}}});
  EXPECT_EQ(full.max_tokens, 7);
  EXPECT_EQ(full.sampling.temperature, 0.5F);
  EXPECT_EQ(full.sampling.top_k, 0);
  EXPECT_EQ(full.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(full.stop.size(), 2U);
  EXPECT_EQ(full.stop_tokens, std::vector<int32_t>{5});
  EXPECT_EQ(full.n, 3);
  EXPECT_EQ(full.flow, "quest");
  EXPECT_TRUE(full.ignore_eos && full.stream && full.echo && full.include_usage);
  EXPECT_TRUE(full.add_special_tokens);
  EXPECT_FALSE(parse({{"prompt", "a"}, {"add_special_tokens", false}}).add_special_tokens);
}

TEST(CompletionRequest, ReadsWhichLogProbabilitiesAreWanted) {
  EXPECT_EQ(parse({{"prompt", "a"}}).likely, -1);
  EXPECT_EQ(parse({{"prompt", "a"}, {"logprobs", 0}}).likely, 0);
  EXPECT_EQ(parse({{"prompt", "a"}, {"logprobs", 20}}).likely, 20);
  EXPECT_EQ(parse({{"prompt", "a"}, {"echo", true}, {"max_tokens", 0}}).max_tokens, 0);
  const auto chat = [](Json more) {
    more["messages"] = {{{"role", "user"}, {"content", "a"}}};
    return parse(more, CompletionKind::kChat).likely;
  };
  EXPECT_EQ(chat({}), -1);
  EXPECT_EQ(chat({{"logprobs", false}, {"top_logprobs", 0}}), -1);
  EXPECT_EQ(chat({{"logprobs", true}}), 0);
  EXPECT_EQ(chat({{"logprobs", true}, {"top_logprobs", 20}}), 20);
}

TEST(CompletionRequest, IgnoresNullsUnknownFieldsAndWhatChangesNothing) {
  EXPECT_EQ(refused_field(R"({"prompt":"a","logprobs":null,"presence_penalty":0.0,"user":"me","best_of":1,"what":[{}]})"),
            "accepted");
  EXPECT_EQ(refused_field(R"({"messages":[{"role":"user","content":"a"}],"logprobs":false,"tools":[]})", CompletionKind::kChat),
            "accepted");
}

TEST(CompletionRequest, ReadsHowAChatBecomesAPrompt) {
  const std::string messages = R"("messages":[{"role":"user","content":"a"}])";
  const auto options = [&](const std::string& more) {
    return parse_completion_request("{" + messages + more + "}", CompletionKind::kChat).chat;
  };
  EXPECT_TRUE(options("").add_generation_prompt);
  EXPECT_FALSE(options("").continue_final_message);
  EXPECT_TRUE(options("").variables.empty());
  EXPECT_FALSE(options(R"(,"add_generation_prompt":false)").add_generation_prompt);
  EXPECT_TRUE(options(R"(,"continue_final_message":true)").continue_final_message);
  EXPECT_FALSE(options(R"(,"continue_final_message":true)").add_generation_prompt);
  const ChatOptions full =
      options(R"(,"chat_template_kwargs":{"z":{"b":1,"a":2},"enable_thinking":false},"reasoning_effort":"low")");
  EXPECT_EQ(full.variables.dump(), R"({"z":{"b":1,"a":2},"enable_thinking":false,"reasoning_effort":"low"})");
}

TEST(CompletionRequest, ReadsSegmentsOfIdsAndOfMessages) {
  const CompletionRequest ids = parse(Json::parse(
      R"({"prompt": [1, 2, 3, 4, 5], "segments": [{"start": 0, "end": 2, "extra_key": "docs"}, {"start": 2, "end": 5}],
          "recompute": {"rule": "cacheblend", "share": 0.5, "boundary": 3}})"));
  ASSERT_EQ(ids.segments.size(), 2U);
  EXPECT_EQ(ids.segments[0].extra_key, "docs");
  EXPECT_EQ(ids.segments[1].first, 2);
  EXPECT_EQ(ids.segments[1].end, 5);
  EXPECT_EQ(ids.recompute.rule, "cacheblend");
  EXPECT_EQ(ids.recompute.share, 0.5);
  EXPECT_EQ(ids.recompute.boundary, 3);
  const CompletionRequest chat = parse(Json::parse(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "See "},
        {"type": "segment", "text": "a page", "extra_key": "k"}, {"type": "text", "text": "!"}]}], "recompute": "none"})"),
                                       CompletionKind::kChat);
  EXPECT_EQ(chat.messages[0].content, "See a page!");
  ASSERT_EQ(chat.messages[0].segments.size(), 1U);
  EXPECT_EQ(chat.messages[0].segments[0].first, 4U);
  EXPECT_EQ(chat.messages[0].segments[0].size, 6U);
  EXPECT_EQ(chat.messages[0].segments[0].extra_key, "k");
  EXPECT_EQ(chat.recompute.rule, "none");
  EXPECT_FALSE(chat.answer_extra_key);
  EXPECT_EQ(parse({{"prompt", "a"}, {"answer_extra_key", "team"}}).answer_extra_key, "team");
  EXPECT_EQ(refused_field(R"({"prompt": "a", "answer_extra_key": 3})"), "answer_extra_key");
  EXPECT_EQ(parse({{"prompt", "a"}, {"recompute", "sparsex_nohybrid"}}).recompute.rule, "sparsex_nohybrid");
  EXPECT_EQ(parse({{"prompt", "a"}}).recompute.rule, "") << "the flow's, or the usual one";
}

TEST(CompletionRequest, RefusesSegmentsThatAreNone) {
  for (const char* list : {R"([{"start": 0, "end": 4}])", R"([{"start": 2, "end": 2}])", R"([{"start": -1, "end": 2}])",
                           R"([{"start": 1, "end": 3}, {"start": 2, "end": 3}])", R"([{"start": 3, "end": 4}])",
                           R"([{"start": 0}])", R"([{"end": 1}])", R"([3])", R"({})", R"("all")", R"([{"start": 0.5, "end": 1}])",
                           R"([{"start": 0, "end": 1, "extra_key": 3}])", R"([{"start": 0, "end": 1, "extrakey": "docs"}])"})
    EXPECT_EQ(refused_field(std::string(R"({"prompt": [1, 2, 3], "segments": )") + list + "}"), "segments") << list;
  const std::string key(257, 'k');
  EXPECT_EQ(refused_field(R"({"prompt": [1, 2, 3], "segments": [{"start": 0, "end": 1, "extra_key": ")" + key + "\"}]}"),
            "segments");
  EXPECT_EQ(refused_field(R"({"prompt": "a b", "segments": [{"start": 0, "end": 1}]})"), "segments");
  EXPECT_EQ(refused_field(R"({"prompt": [[1], [2]], "segments": [{"start": 0, "end": 1}]})"), "segments");
  for (const char* rule :
       {R"("sparse")", R"({})", R"({"rule": "sparsex", "share": 2})", R"({"rule": "none", "boundary": -1})", "3"})
    EXPECT_EQ(refused_field(std::string(R"({"prompt": "a", "recompute": )") + rule + "}"), "recompute") << rule;
  const auto chat = [&](const std::string& part) {
    return refused_field(R"({"messages": [{"role": "user", "content": [)" + part + "]}]}", CompletionKind::kChat);
  };
  EXPECT_EQ(chat(R"({"type": "segment", "text": "a"})"), "accepted");
  EXPECT_EQ(chat(R"({"type": "segment", "text": ""})"), "messages");
  EXPECT_EQ(chat(R"({"type": "segment"})"), "messages");
  EXPECT_EQ(chat(R"({"type": "segments", "text": "a"})"), "messages");
  EXPECT_EQ(chat(R"({"type": "segment", "text": "a", "extrakey": "docs"})"), "messages");
  EXPECT_EQ(chat(R"({"type": "text", "text": "a", "extra_key": "docs"})"), "messages");
  std::string many = R"({"type": "segment", "text": "a"})";
  for (int i = 0; i < 4096; ++i) many += R"(,{"type": "segment", "text": "a"})";
  EXPECT_EQ(chat(many), "messages") << "4097 of them";
  EXPECT_EQ(refused_field(R"({"messages": [{"role": "user", "content": "a"}], "segments": []})", CompletionKind::kChat),
            "segments");
}

TEST(CompletionRequest, SaysWhatIsWrongWithSegments) {
  const auto refusal = [](const std::string& segments) -> std::string {
    try {
      parse_completion_request(R"({"prompt": [1, 2, 3, 4], "segments": )" + segments + "}", CompletionKind::kText);
      return "accepted";
    } catch (const HttpProblem& problem) {
      return problem.what();
    }
  };
  EXPECT_EQ(refusal(R"([{"start": 0, "end": 3}, {"start": 2, "end": 4}])"),
            "body, segments[1]: \"start\" is 2; the segment before ends at 3: segments stand in order, and do not overlap");
  EXPECT_EQ(refusal(R"([{"start": 1, "end": 1}])"),
            "body, segments[0]: \"end\" is 1; a segment has a token at least, and starts at 1");
  EXPECT_EQ(refusal(R"([{"start": 1, "end": 5}])"), "body, segments[0]: \"end\" is 5; the prompt has 4 tokens");
  EXPECT_EQ(refusal(R"([{"start": 1, "end": 2, "extrakey": "a"}])"),
            "body, segments[0]: \"extrakey\" is not known here; did you mean \"extra_key\"?");
}

TEST(CompletionRequest, NamesTheFieldAtFault) {
  const std::vector<std::pair<std::string, std::string>> bodies = {
      {"", "body"},
      {"[]", "body"},
      {"{\"prompt\":\"\xff\"}", "body"},
      {std::string(200, '[') + std::string(200, ']'), "body"},
      {R"({})", "prompt"},
      {R"({"prompt":5})", "prompt"},
      {R"({"prompt":[]})", "prompt"},
      {R"({"prompt":[1,"a"]})", "prompt"},
      {R"({"prompt":[-1]})", "prompt"},
      {R"({"prompt":[1.5]})", "prompt"},
      {R"({"prompt":[18446744073709551615]})", "prompt"},
      {R"({"prompt":"a","max_tokens":0})", "max_tokens"},
      {R"({"prompt":"a","max_tokens":"7"})", "max_tokens"},
      {R"({"prompt":"a","max_tokens":1e9})", "max_tokens"},
      {R"({"prompt":"a","temperature":-1})", "temperature"},
      {R"({"prompt":"a","temperature":"hot"})", "temperature"},
      {R"({"prompt":"a","top_p":0})", "top_p"},
      {R"({"prompt":"a","top_k":-2})", "top_k"},
      {R"({"prompt":"a","seed":1.5})", "seed"},
      {R"({"prompt":"a","n":0})", "n"},
      {R"({"prompt":["a","b"],"n":64})", "n"},
      {R"({"prompt":"a","stop":""})", "stop"},
      {R"({"prompt":"a","stop":[1]})", "stop"},
      {R"({"prompt":"a","stop_token_ids":"x"})", "stop_token_ids"},
      {R"({"prompt":"a","stream":"yes"})", "stream"},
      {R"({"prompt":"a","stream_options":{"include_usage":true}})", "stream_options"},
      {R"({"prompt":"a","logprobs":21})", "logprobs"},
      {R"({"prompt":"a","logprobs":-1})", "logprobs"},
      {R"({"prompt":"a","logprobs":true})", "logprobs"},
      {R"({"prompt":"a","logprobs":1.5})", "logprobs"},
      {R"({"prompt":"a","logprobs":1,"top_logprobs":1})", "top_logprobs"},
      {R"({"prompt":"a","prompt_logprobs":0})", "prompt_logprobs"},
      {R"({"prompt":"a","return_tokens_as_token_ids":true})", "return_tokens_as_token_ids"},
      {R"({"prompt":"a","echo":1})", "echo"},
      {R"({"prompt":"a","add_special_tokens":0})", "add_special_tokens"},
      {R"({"prompt":"a","max_tokens":-1,"echo":true})", "max_tokens"},
      {R"({"prompt":"a","presence_penalty":0.5})", "presence_penalty"},
      {R"({"prompt":"a","logit_bias":{"5":1}})", "logit_bias"},
      {R"({"prompt":"a","allowed_token_ids":[5]})", "allowed_token_ids"},
      {R"({"prompt":"a","bad_words":["11"]})", "bad_words"},
      {R"({"prompt":"a","guided_json":{}})", "guided_json"},
      {R"({"prompt":"a","truncate_prompt_tokens":1})", "truncate_prompt_tokens"},
      {R"({"prompt":"a","suffix":"b"})", "suffix"},
      {R"({"prompt":"a","model":5})", "model"},
      {R"({"prompt":"a","flow":["quest"]})", "flow"},
  };
  for (const auto& [body, name] : bodies) EXPECT_EQ(refused_field(body), name) << body.substr(0, 80);
  const std::vector<std::pair<std::string, std::string>> chats = {
      {R"({"prompt":"a"})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":["a"]})", "messages"},
      {R"({"messages":[{"role":"tool","content":"a"}]})", "messages"},
      {R"({"messages":[{"role":"user"}]})", "messages"},
      {R"({"messages":[{"role":"user","content":"a","name":5}]})", "messages"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "messages"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}]})", "tools"},
      {R"({"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_object"}})", "response_format"},
      {R"({"messages":[{"role":"user","content":"a"}],"logprobs":2})", "logprobs"},
      {R"({"messages":[{"role":"user","content":"a"}],"top_logprobs":2})", "top_logprobs"},
      {R"({"messages":[{"role":"user","content":"a"}],"logprobs":false,"top_logprobs":2})", "top_logprobs"},
      {R"({"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":21})", "top_logprobs"},
      {R"({"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":"2"})", "top_logprobs"},
      {R"({"messages":[{"role":"user","content":"a"}],"max_tokens":0})", "max_tokens"},
      {R"({"messages":[{"role":"user","content":"a"}],"echo":true})", "echo"},
      {R"({"messages":[{"role":"user","content":"a"}],"add_special_tokens":true})", "add_special_tokens"},
      {R"({"messages":[{"role":"user","content":"a"}],"chat_template":"{{ 1 }}"})", "chat_template"},
      {R"({"messages":[{"role":"user","content":"a"}],"documents":[{}]})", "documents"},
      {R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":[]})", "chat_template_kwargs"},
      {R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"tools":[]}})", "chat_template_kwargs"},
      {R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"messages":[]}})", "chat_template_kwargs"},
      {R"({"messages":[{"role":"user","content":"a"}],"reasoning_effort":5})", "reasoning_effort"},
      {R"({"messages":[{"role":"user","content":"a"}],"add_generation_prompt":1})", "add_generation_prompt"},
      {R"({"messages":[{"role":"user","content":"a"}],"continue_final_message":"yes"})", "continue_final_message"},
      {R"({"messages":[{"role":"user","content":"a"}],"continue_final_message":true,"add_generation_prompt":true})",
       "continue_final_message"},
  };
  for (const auto& [body, name] : chats) EXPECT_EQ(refused_field(body, CompletionKind::kChat), name) << body;
}

TEST(StopStrings, AreFoundAcrossPiecesAndNeverGivenOut) {
  StopStrings stops({"END", "\n\n"});
  EXPECT_EQ(stops.add("a E"), "a ");
  EXPECT_EQ(stops.add("N"), "");
  EXPECT_EQ(stops.add("O\n"), "ENO");
  EXPECT_EQ(stops.add("x E"), "\nx ");
  EXPECT_FALSE(stops.found());
  EXPECT_EQ(stops.add("ND rest"), "");
  EXPECT_TRUE(stops.found());
  EXPECT_EQ(stops.add("more"), "");
}

TEST(StopStrings, TheFirstOneInTheTextCounts) {
  StopStrings stops({"cd", "bc"});
  EXPECT_EQ(stops.add("abcd"), "a");
  StopStrings unfinished({"aab"});
  EXPECT_EQ(unfinished.add("aaa"), "a");
  EXPECT_EQ(unfinished.end(), "aa");
}

TEST(TokenText, GivesWholeCharactersAlone) {
  const ByteTokenizer tokenizer;
  const std::string wanted = "aé€😀z";
  TokenText text(tokenizer);
  std::string all;
  for (const int32_t id : tokenizer.encode(wanted)) {
    const std::string piece = text.add(id);
    EXPECT_EQ(piece.find("\xef\xbf\xbd"), std::string::npos);
    all += piece;
  }
  EXPECT_EQ(all + text.end(), wanted);
}

TEST(TokenText, ACharacterThatBeginsInThePromptIsWhole) {
  const ByteTokenizer tokenizer;
  const std::string wanted = "aé€😀z";
  const std::vector<int32_t> ids = tokenizer.encode(wanted);
  for (size_t prompt = 0; prompt <= ids.size(); ++prompt) {
    TokenText text(tokenizer);
    std::string all = text.begin_with(std::span(ids).first(prompt));
    EXPECT_EQ(all.find("\xef\xbf\xbd"), std::string::npos) << prompt;
    for (size_t i = prompt; i < ids.size(); ++i) all += text.add(ids[i]);
    EXPECT_EQ(all + text.end(), wanted) << prompt;
  }
}

TEST(TokenText, WhatNeverBecomesACharacterIsToldAsItIs) {
  const ByteTokenizer tokenizer;
  for (const size_t bytes : {1, 2, 3, 4, 9}) {
    const std::vector<int32_t> prompt(bytes, 0xf0);
    TokenText text(tokenizer);
    std::string all = text.begin_with(prompt);
    all += text.add('z');
    EXPECT_EQ(all + text.end(), tokenizer.decode(prompt, true) + "z") << bytes;
  }
}

TEST(TokenText, GoesOnWhereNoCharacterEverEnds) {
  const ByteTokenizer tokenizer;
  TokenText text(tokenizer);
  std::string all;
  for (int i = 0; i < 100; ++i) all += text.add(0xe2);
  EXPECT_FALSE(all.empty());
  all += text.end();
  EXPECT_EQ(all.size(), 300U);  // one U+FFFD each
}

}  // namespace
}  // namespace sluice::test
