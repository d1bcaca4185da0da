#include "agents/tasks/scoring.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

using Strings = std::vector<std::string>;

Sample sample(const std::string& answer, Scoring scoring, Items items, bool mini) {
  Sample result;
  result.answer = answer;
  result.scoring = scoring;
  result.items = items;
  result.must_end = mini;
  if (!mini) result.stop = std::string("\n");
  return result;
}

TEST(Score, MiniWantsTheWholeAnswerAndItsEnd) {
  const Sample fact = sample("11 07 93 20", Scoring::kExact, Items::kWords, true);
  EXPECT_TRUE(score(fact, "11 07 93 20", true).correct);
  EXPECT_FALSE(score(fact, "11 07 93 20", false).correct) << "cut off";
  EXPECT_FALSE(score(fact, "11 07 93 20 20", true).correct) << "one too many";
  EXPECT_FALSE(score(fact, "11 07 93", true).correct);
  EXPECT_FALSE(score(fact, "07 11 93 20", true).correct);
  EXPECT_FALSE(score(fact, "", true).correct);
}

TEST(Score, MiniComparesSignsToo) {
  const Sample query = sample("acorn = 11 ; album = 12", Scoring::kExact, Items::kWords, true);
  EXPECT_TRUE(score(query, "acorn = 11 ; album = 12", true).correct);
  EXPECT_FALSE(score(query, "acorn = 11 album = 12", true).correct);
}

TEST(Score, MatchedIsTheShareBeforeTheFirstMistake) {
  const Sample fact = sample("11 07 93 20", Scoring::kExact, Items::kWords, true);
  EXPECT_DOUBLE_EQ(score(fact, "11 07 00 20", true).matched, 0.5);
  EXPECT_DOUBLE_EQ(score(fact, "00 07 93 20", true).matched, 0);
  EXPECT_DOUBLE_EQ(score(fact, "11 07 93 20", true).matched, 1);
}

TEST(Score, SetsIgnoreOrderButNotRepetition) {
  const Sample words = sample("able abroad absent", Scoring::kSet, Items::kWords, true);
  EXPECT_TRUE(score(words, "absent able abroad", true).correct);
  EXPECT_FALSE(score(words, "absent able able", true).correct);
  EXPECT_FALSE(score(words, "absent able abroad abroad", true).correct);
  EXPECT_NEAR(score(words, "absent able able", true).matched, 2.0 / 3, 1e-12);
}

TEST(Score, EnglishIgnoresCasePunctuationAndWhatComesAfterTheStop) {
  const Sample words = sample("apple barn", Scoring::kSet, Items::kWords, false);
  EXPECT_TRUE(score(words, " Barn, and APPLE.\nQuestion: another", false).correct);
  EXPECT_FALSE(score(words, " Barn, apple and clock.", false).correct);
  const Sample code = sample("4829105", Scoring::kExact, Items::kNumbers, false);
  EXPECT_TRUE(score(code, " **4829105**.", false).correct);
  EXPECT_TRUE(score(code, " the code is 4829105", false).correct);
  EXPECT_FALSE(score(code, " 4829105 or 4829106", false).correct);
  EXPECT_FALSE(score(code, "\n4829105", false).correct) << "after the stop";
}

TEST(NormalisedWords, KeepsTheItemsAskedFor) {
  EXPECT_EQ(normalised_words("Going from XQWZX to ZZTOP: 48291!", Items::kNames), (Strings{"xqwzx", "zztop", "48291"}));
  EXPECT_EQ(normalised_words("a1 22, 3.", Items::kNumbers), (Strings{"22", "3"}));
  EXPECT_EQ(normalised_words("", Items::kWords), Strings{});
}

}  // namespace
}  // namespace sluice::test
