#include "agents/tasks/math_answer.h"

#include <gtest/gtest.h>

#include <random>

#include "agents/tasks/scoring.h"

namespace sluice::test {
namespace {

TEST(LastBoxed, TakesTheLastWithNestedBraces) {
  EXPECT_EQ(last_boxed("so \\boxed{1} or rather \\boxed{\\frac{1}{2}}."), "\\frac{1}{2}");
  EXPECT_EQ(last_boxed("\\boxed {7}"), "7");
  EXPECT_EQ(last_boxed("\\fbox{9}"), "9");
  EXPECT_EQ(last_boxed("\\boxed{\\{1, 2\\}}"), "\\{1, 2\\}");
}

TEST(LastBoxed, IgnoresOneThatIsCutOff) {
  EXPECT_EQ(last_boxed("\\boxed{1} and \\boxed{\\frac{1}{2"), "1");
  EXPECT_EQ(last_boxed("\\boxed{1"), std::nullopt);
  EXPECT_EQ(last_boxed("no box"), std::nullopt);
  EXPECT_EQ(last_boxed("\\boxed"), std::nullopt);
  EXPECT_EQ(last_boxed(""), std::nullopt);
}

TEST(SameAnswer, AcceptsOtherSpellingsOfTheSame) {
  for (const auto& [left, right] : {std::pair("27", "27.0"),
                                    {"027", "27"},
                                    {"1,234,567", "1234567"},
                                    {"1{,}000", "1000"},
                                    {"\\frac{1}{2}", "0.5"},
                                    {"\\dfrac12", "1/2"},
                                    {"-\\frac{3}{4}", "-0.75"},
                                    {"$42$", "42"},
                                    {"\\text{Even}", "even"},
                                    {"90^\\circ", "90"},
                                    {"50\\%", "50"},
                                    {"{5}", "5"},
                                    {" 7 . ", "7"},
                                    {"\\left(1, 2\\right)", "(1,2)"},
                                    {"+3", "3"},
                                    {"0", "-0"},
                                    {"12345678901234567890", "012345678901234567890.0"},
                                    {"2\\sqrt{3}", "2 \\sqrt{3}"}}) {
    EXPECT_TRUE(same_answer(left, right)) << left << " and " << right;
    EXPECT_TRUE(same_answer(right, left)) << right << " and " << left;
  }
}

TEST(SameAnswer, TellsDifferentOnesApart) {
  for (const auto& [left, right] : {std::pair("27", "28"),
                                    {"1/3", "0.333"},
                                    {"(1,2)", "(2,1)"},
                                    {"1,2", "12"},
                                    {"", ""},
                                    {"", "1"},
                                    {"x", "y"},
                                    {"1/0", "2/0"},
                                    {"nan", "inf"},
                                    {"-1", "1"},
                                    {"12345678901", "12345678902"},
                                    {"12345678901.0", "12345678902"},
                                    {"123456789012345678901234567890", "-123456789012345678901234567890"},
                                    {"(1,234)", "(1234)"}}) {
    EXPECT_FALSE(same_answer(left, right)) << left << " and " << right;
  }
}

TEST(MathAnswer, AnyTextIsHandledWithoutHarm) {
  std::mt19937 random(1);
  const std::string pieces[] = {"\\boxed", "{", "}", "\\frac", "\\text{", "\\", "1", ",",
                                "234",     "/", " ", "-",      "\\{",     "$",  ".", "e"};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    const int length = static_cast<int>(random() % 12);
    for (int j = 0; j < length; ++j) text += pieces[random() % std::size(pieces)];
    const auto boxed = last_boxed(text);
    if (boxed) {
      EXPECT_NE(text.find(*boxed), std::string::npos);
    }
    EXPECT_TRUE(normalised_answer(text).empty() || same_answer(text, text)) << text;
  }
}

TEST(Score, BoxedComparesAsMathematics) {
  Sample sample;
  sample.answer = "1/2";
  sample.scoring = Scoring::kBoxed;
  sample.must_end = false;
  EXPECT_TRUE(score(sample, "Therefore \\boxed{\\frac{1}{2}}", false).is_whole());
  EXPECT_FALSE(score(sample, "Therefore 1/2", true).is_whole()) << "not boxed";
  EXPECT_FALSE(score(sample, "\\boxed{1/2} no, \\boxed{2}", true).is_whole());
}

}  // namespace
}  // namespace sluice::test
