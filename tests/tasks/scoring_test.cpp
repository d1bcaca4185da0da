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
  EXPECT_TRUE(score(fact, "11 07 93 20", true).is_whole());
  EXPECT_FALSE(score(fact, "11 07 93 20", false).is_whole()) << "cut off";
  EXPECT_FALSE(score(fact, "11 07 93 20 20", true).is_whole()) << "one too many";
  EXPECT_FALSE(score(fact, "11 07 93", true).is_whole());
  EXPECT_FALSE(score(fact, "07 11 93 20", true).is_whole());
  EXPECT_FALSE(score(fact, "", true).is_whole());
}

TEST(Score, MiniComparesSignsToo) {
  const Sample query = sample("acorn = 11 ; album = 12", Scoring::kExact, Items::kWords, true);
  EXPECT_TRUE(score(query, "acorn = 11 ; album = 12", true).is_whole());
  EXPECT_FALSE(score(query, "acorn = 11 album = 12", true).is_whole());
}

TEST(Score, CreditIsTheShareOfPartsBeforeTheFirstMistake) {
  Sample query = sample("acorn = 11 ; album = 12 ; arrow = 13", Scoring::kExact, Items::kWords, true);
  query.part_words = 4;
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 12 ; arrow = 13", true).credit(), 1);
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 12 ; arrow = 14", true).credit(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 13 ; arrow = 13", true).credit(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(score(query, "acorn = 10 ; album = 12 ; arrow = 13", true).credit(), 0) << "names of the question are no part";
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 12 ; arrow = 13", false).credit(), 2.0 / 3) << "cut off";
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 12 ; arrow = 13 ;", false).credit(), 2.0 / 3) << "does not end";
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 12 ; arrow = 13 ; acorn = 11", true).credit(), 2.0 / 3) << "too many";
  EXPECT_DOUBLE_EQ(score(query, "", true).credit(), 0);
  query.drawn_parts = 2;
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 12 ; arrow = 13", true).credit(), 1);
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 12 ; arrow = 14", true).credit(), 1.0 / 3) << "one of three pairs";
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 13 ; arrow = 13", true).credit(), 0);
  query.drawn_parts = 5;
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 12 ; arrow = 13", true).credit(), 1) << "as many as there are";
  EXPECT_DOUBLE_EQ(score(query, "acorn = 11 ; album = 12 ; arrow = 14", true).credit(), 0);
}

TEST(Score, AMistakeInTheLastWordCostsOnePart) {
  Sample values = sample("11 07 93 20", Scoring::kExact, Items::kWords, true);
  values.part_words = 1;
  EXPECT_DOUBLE_EQ(score(values, "11 07 93 21 20", false).credit(), 3.0 / 4);
  EXPECT_DOUBLE_EQ(score(values, "11 07 93 20 20", false).credit(), 3.0 / 4);
  EXPECT_DOUBLE_EQ(score(values, "11 07 93 20", true).credit(), 1);
}

TEST(Score, AnAnswerOfOnePartIsWholeOrNothing) {
  const Sample fact = sample("11 07 93 20", Scoring::kExact, Items::kWords, true);
  EXPECT_DOUBLE_EQ(score(fact, "11 07 93 21", true).credit(), 0);
  EXPECT_DOUBLE_EQ(score(fact, "11 07 93 20", true).credit(), 1);
}

TEST(Score, SetsIgnoreOrderButNotRepetition) {
  Sample words = sample("able abroad absent", Scoring::kSet, Items::kWords, true);
  words.part_words = 1;
  EXPECT_TRUE(score(words, "absent able abroad", true).is_whole());
  EXPECT_FALSE(score(words, "absent able able", true).is_whole());
  EXPECT_FALSE(score(words, "absent able abroad abroad", true).is_whole());
  EXPECT_DOUBLE_EQ(score(words, "absent able able", true).credit(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score(words, "absent able abroad abroad", true).credit(), 3.0 / 4) << "a list of guesses is no answer";
}

TEST(Score, EnglishIgnoresCasePunctuationAndWhatComesAfterTheStop) {
  const Sample words = sample("apple barn", Scoring::kSet, Items::kWords, false);
  EXPECT_TRUE(score(words, " Barn, and APPLE.\nQuestion: another", false).is_whole());
  EXPECT_FALSE(score(words, " Barn, apple and clock.", false).is_whole());
  const Sample code = sample("4829105", Scoring::kExact, Items::kNumbers, false);
  EXPECT_TRUE(score(code, " **4829105**.", false).is_whole());
  EXPECT_TRUE(score(code, " the code is 4829105", false).is_whole());
  EXPECT_FALSE(score(code, " 4829105 or 4829106", false).is_whole());
  EXPECT_FALSE(score(code, "\n4829105", false).is_whole()) << "after the stop";
}

TEST(NormalisedWords, KeepsTheItemsAskedFor) {
  EXPECT_EQ(normalised_words("Going from XQWZX to ZZTOP: 48291!", Items::kNames), (Strings{"xqwzx", "zztop", "48291"}));
  EXPECT_EQ(normalised_words("a1 22, 3.", Items::kNumbers), (Strings{"22", "3"}));
  EXPECT_EQ(normalised_words("", Items::kWords), Strings{});
}

}  // namespace
}  // namespace sluice::test
