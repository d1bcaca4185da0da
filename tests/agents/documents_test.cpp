#include "agents/evaluation/documents.h"

#include <gtest/gtest.h>

#include "tests/agents/fixtures.h"
#include "tests/agents/mini_solver.h"

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
    DocumentSource source(task_of(task.name, 512, 11, 4), {tokenizer, &mini_vocabulary(), 0}, Seed::parse("x"));
    size_t samples = 0;
    for (JobDocument document = source.next(); !document.empty(); document = source.next()) {
      EXPECT_LE(document.size(), 4U);
      samples += document.size();
    }
    EXPECT_EQ(samples, 11U) << task.name;
  }
}

TEST(DocumentSource, LeavesRoomForTheAnswerInTheModelsContext) {
  const CountingTokenizer tokenizer;
  constexpr int kPositions = 2048;
  for (const Task& task : all_tasks()) {
    DocumentSource source(task_of(task.name, kPositions, 2, 2), {tokenizer, &mini_vocabulary(), kPositions}, Seed::parse("x"));
    for (const Job& job : source.next()) {
      EXPECT_LE(words_of(job.sample.prompt).size() + job.sample.max_tokens, static_cast<size_t>(kPositions)) << task.name;
      EXPECT_NO_THROW(solve_mini(job.sample.prompt));
    }
  }
}

}  // namespace
}  // namespace sluice::test
