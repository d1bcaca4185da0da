#include "agents/tasks/problem_set.h"

#include <gtest/gtest.h>

#include <random>

#include "scripting/base/error.h"
#include "tests/tasks/fixtures.h"

namespace sluice::test {
namespace {

TEST(ParseProblems, ReadsEveryNameOfTheQuestion) {
  const auto problems = parse_problems(
      "{\"problem\": \"1+1?\", \"answer\": 2}\n\n{\"id\": \"b\", \"question\": \"2+2?\", \"answer\": \"4\"}\r\n{\"prompt\": "
      "\"3?\", "
      "\"answer\": 3.5}",
      "set.jsonl");
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_EQ(problems[0].id, "1");
  EXPECT_EQ(problems[0].answer, "2");
  EXPECT_EQ(problems[1].id, "b");
  EXPECT_EQ(problems[2].question, "3?");
  EXPECT_EQ(problems[2].id, "4") << "the line";
}

TEST(ParseProblems, NamesTheBadLine) {
  const std::string good = "{\"problem\": \"1+1?\", \"answer\": \"2\"}\n";
  for (const std::string bad :
       {"{", "[]", "7", "{\"answer\": \"2\"}", "{\"problem\": \"x\"}", "{\"problem\": 7.5, \"answer\": null}",
        "{\"problem\": \"\", \"answer\": \"2\"}", "{\"id\": \"1\", \"problem\": \"x\", \"answer\": \"2\"}"}) {
    try {
      parse_problems(good + bad, "set.jsonl");
      FAIL() << bad;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("set.jsonl:2: ", 0), 0U) << error.what();
    }
  }
  EXPECT_THROW(parse_problems("", "set.jsonl"), InputError);
  EXPECT_THROW(load_problems("/no/such/file.jsonl"), InputError);
}

TEST(ParseProblems, TwoQuestionsInALineAreRefused) {
  const std::string good = "{\"problem\": \"1+1?\", \"answer\": \"2\"}\n";
  try {
    parse_problems(good + "{\"prompt\": \"x\", \"answer\": 1, \"question\": \"y\"}", "set.jsonl");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()), "set.jsonl:2: both \"question\" and \"prompt\"; one of them is the question");
  }
}

TEST(ParseProblems, MessagesAreShortHoweverLongTheValues) {
  const std::string good = "{\"problem\": \"x\", \"answer\": 1, \"id\": ";
  const std::string id = "\"" + std::string(100000, 'i') + "\"}\n";
  std::string list = "[1";
  for (int i = 0; i < 100000; ++i) list += ",7";
  list += "]}\n";
  for (const std::string& text : {good + id + good + id, good + list}) {
    try {
      parse_problems(text, "set.jsonl");
      FAIL();
    } catch (const InputError& error) {
      EXPECT_LT(std::string(error.what()).size(), 200U);
    }
  }
}

TEST(ParseProblems, DeepNestingIsRefused) {
  const std::string nested = std::string(300000, '[') + std::string(300000, ']');
  EXPECT_THROW(parse_problems("{\"problem\": " + nested + ", \"answer\": 1}", "set.jsonl"), InputError);
}

TEST(LoadProblems, DirectoriesAreRefused) { EXPECT_THROW(load_problems("/tmp"), InputError); }

TEST(ParseProblems, ArbitraryBytesGiveProblemsOrAnInputError) {
  std::mt19937 random(7);
  const std::string good = "{\"problem\": \"1+1?\", \"answer\": \"2\", \"id\": 3}\n{\"question\": \"x\", \"answer\": 1}";
  for (int i = 0; i < 5000; ++i) {
    std::string text = good;
    for (int j = 0; j < 3; ++j) text[random() % text.size()] = static_cast<char>(random());
    try {
      EXPECT_FALSE(parse_problems(text, "set").empty());
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("set:", 0), 0U);
    }
  }
}

TEST(ProblemSample, AsksForABoxedAnswer) {
  const CountingTokenizer tokenizer;
  const Sample sample = problem_sample({"1", "1+1?", "so \\boxed{2}"}, {tokenizer}, 100);
  EXPECT_NE(sample.prompt.find("1+1?"), std::string::npos);
  EXPECT_NE(sample.prompt.find("\\boxed{}"), std::string::npos);
  EXPECT_EQ(sample.answer, "2");
  EXPECT_EQ(sample.max_tokens, 100);
  EXPECT_EQ(sample.scoring, Scoring::kBoxed);
}

}  // namespace
}  // namespace sluice::test
