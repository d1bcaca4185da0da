#include "agents/evaluation/documents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "scripting/base/error.h"
#include "tests/tasks/fixtures.h"
#include "tests/tasks/mini_solver.h"

namespace sluice::test {
namespace {

SuiteTask task_of(const std::string& name, int tokens, int samples, int questions) {
  SuiteTask task;
  task.task = name;
  task.tokens = tokens;
  task.samples = samples;
  task.questions = questions;
  return task;
}

TEST(DocumentSource, GivesExactlyTheSamplesAskedFor) {
  const CountingTokenizer tokenizer;
  for (const Task& task : all_tasks()) {
    if (!task.in_mini) continue;
    DocumentSource source(task_of(task.name, 1024, 11, 4), {tokenizer, &mini_vocabulary(), 0}, Seed::parse("x"));
    size_t samples = 0;
    for (JobDocument document = source.next(); !document.empty(); document = source.next()) {
      EXPECT_LE(document.size(), 4U);
      samples += document.size();
    }
    EXPECT_EQ(samples, 11U) << task.name;
  }
}

TEST(DocumentBatches, HoldWholeDocumentsInTheirOrder) {
  const CountingTokenizer tokenizer;
  const TaskContext context{tokenizer, &mini_vocabulary(), 0};
  const SuiteTask task = task_of("needle_multiquery", 512, 11, 4);
  const auto sizes = [&](int capacity) {
    DocumentSource source(task, context, Seed::parse("x"));
    DocumentBatches batches(task, context, Seed::parse("x"), capacity);
    const size_t count = batches.count();
    std::vector<std::vector<size_t>> all;
    for (auto batch = batches.next(); !batch.empty(); batch = batches.next()) {
      all.emplace_back();
      for (const JobDocument& document : batch) {
        EXPECT_EQ(document.front().sample.prompt, source.next().front().sample.prompt);
        all.back().push_back(document.size());
      }
    }
    EXPECT_EQ(count, all.size()) << capacity;
    return all;
  };
  using Sizes = std::vector<std::vector<size_t>>;
  EXPECT_EQ(sizes(1), (Sizes{{4}, {4}, {3}})) << "a document stays whole";
  EXPECT_EQ(sizes(7), (Sizes{{4}, {4, 3}}));
  EXPECT_EQ(sizes(16), (Sizes{{4, 4, 3}}));
  for (const int capacity : {2, 3, 4, 5, 8, 9, 10, 11, 12}) sizes(capacity);
}

// Many tasks ask less of a document than a suite does: of a short one, or because there is one thing to ask.
TEST(DocumentBatches, GiveEverySampleWhateverATaskAsksOfADocument) {
  const CountingTokenizer tokenizer;
  const TaskContext context{tokenizer, &mini_vocabulary(), 0};
  for (const Task& task : all_tasks()) {
    if (!task.in_mini) continue;
    for (const int tokens : {600, 1024}) {
      for (const int capacity : {1, 6, 12, 16}) {
        DocumentBatches batches(task_of(task.name, tokens, 50, 8), context, Seed::parse("x"), capacity);
        const size_t count = batches.count();
        size_t samples = 0;
        for (size_t i = 0; i < count; ++i) {
          const auto batch = batches.next();
          EXPECT_FALSE(batch.empty()) << task.name << " " << tokens << ", " << capacity << " together: batch " << i;
          for (const JobDocument& document : batch) samples += document.size();
        }
        EXPECT_EQ(samples, 50U) << task.name << " " << tokens << ", " << capacity << " together";
        EXPECT_TRUE(batches.next().empty());
      }
    }
  }
}

TEST(DocumentSource, LeavesRoomForTheAnswerInTheModelsContext) {
  const CountingTokenizer tokenizer;
  constexpr int kPositions = 2048;
  for (const Task& task : all_tasks()) {
    if (!task.in_mini) continue;
    DocumentSource source(task_of(task.name, kPositions, 2, 2), {tokenizer, &mini_vocabulary(), kPositions}, Seed::parse("x"));
    for (const Job& job : source.next()) {
      EXPECT_LE(words_of(job.sample.prompt).size() + job.sample.max_tokens, static_cast<size_t>(kPositions)) << task.name;
      EXPECT_NO_THROW(solve_mini(job.sample.prompt));
    }
  }
}

/// A token a character, but none for small digits: numbers of as many digits differ in length, as they do where BPE joins some.
class CharacterTokenizer : public CountingTokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    std::copy_if(text.begin(), text.end(), std::back_inserter(tokens), [](char c) { return c < '0' || c > '4'; });
    return tokens;
  }
};

TEST(DocumentSource, LeavesRoomForLongerAnswersOfTheShorterDocument) {
  const CharacterTokenizer tokenizer;
  constexpr int kPositions = 4000;
  for (int seed = 0; seed < 1300; ++seed) {  // it shows in one of some two hundred
    DocumentSource source(task_of("variable_tracking", kPositions, 2, 2), {tokenizer, nullptr, kPositions},
                          Seed::parse(std::to_string(seed)));
    for (const Job& job : source.next()) {
      ASSERT_LE(tokenizer.encode(job.sample.prompt).size() + job.sample.max_tokens, static_cast<size_t>(kPositions)) << seed;
    }
  }
}

class PrepareSuite : public testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  Suite problems(const std::string& more = {}) const {
    const std::string entry = R"({"task": "jsonl:)" + path_ + R"(", "max_tokens": 100)" + more + "}";
    return parse_suite("[" + entry + ", " + entry + "]", "problems");
  }
  static void expect_refused(Suite suite, int positions, const std::string& part) {
    const CountingTokenizer tokenizer;
    try {
      TextReader texts;
      prepare_suite(suite, {tokenizer, &mini_vocabulary(), positions}, texts);
      ADD_FAILURE() << "accepted; wanted " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  const std::string path_ = testing::TempDir() + "/prepare_suite.jsonl";
};

TEST_F(PrepareSuite, ReadsAProblemSetOnce) {
  const CountingTokenizer tokenizer;
  const TaskContext context{tokenizer, &mini_vocabulary(), 0};
  write("{\"problem\": \"1 + 1?\", \"answer\": 2}\n");
  Suite suite = problems();
  EXPECT_THROW(DocumentSource(suite.stages[0].tasks[0], context, Seed::parse("x")), InternalError);
  TextReader texts;
  prepare_suite(suite, context, texts);
  std::remove(path_.c_str());
  EXPECT_EQ(suite.stages[0].tasks[0].problems, suite.stages[1].tasks[0].problems);
  DocumentSource source(suite.stages[1].tasks[0], context, Seed::parse("x"));
  EXPECT_EQ(source.next().size(), 1U);
  EXPECT_TRUE(source.next().empty());
}

TEST_F(PrepareSuite, RefusesAProblemThatLeavesNoRoomToAnswer) {
  write("{\"problem\": \"1 + 1?\", \"answer\": 2}\n{\"id\": \"long\", \"problem\": \"" + std::string(500, '+') +
        "\", \"answer\": 2}\n");
  expect_refused(problems(), 300, "problem long has");
  Suite first = problems(", \"samples\": 1");
  const CountingTokenizer tokenizer;
  TextReader texts;
  EXPECT_NO_THROW(prepare_suite(first, {tokenizer, &mini_vocabulary(), 300}, texts)) << "the second problem is not asked";
}

TEST_F(PrepareSuite, RefusesTasksThatDoNotFit) {
  expect_refused(parse_suite(R"([{"task": "salad", "tokens": 1024}])", "s"), 512, "1024 tokens exceeds the model's 512");
  expect_refused(parse_suite(R"([{"task": "salad", "tokens": 1024}, {"task": "salad", "tokens": 64}])", "s"), 2048,
                 "salad needs");
}

}  // namespace
}  // namespace sluice::test
