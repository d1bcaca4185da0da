#include "agents/mcp/argument_schema.h"

#include <gtest/gtest.h>

#include "agents/mcp/tool_schemas.h"
#include "scripting/base/error.h"

namespace sluice::mcp::test {
namespace {

using nlohmann::json;

json schema() {
  return input_object({{"id", id_property("a number")},
                       {"limit", integer_property("most", 1, 50, 20)},
                       {"text", text_property("some text", 5)},
                       {"kind", choice_property("which", {"family", "ancestors"})},
                       {"parents", {{"type", "array"}, {"items", id_property("a parent")}, {"maxItems", 2}}}},
                      {"id"});
}

std::string only_problem(const json& arguments) {
  const std::vector<std::string> problems = schema_problems(schema(), arguments);
  EXPECT_EQ(problems.size(), 1U) << arguments;
  return problems.empty() ? "" : problems.front();
}

TEST(ArgumentSchema, TakesWhatFollowsIt) {
  EXPECT_TRUE(schema_problems(schema(), {{"id", 1}}).empty());
  EXPECT_TRUE(
      schema_problems(schema(), {{"id", 7}, {"limit", 50}, {"text", "12345"}, {"kind", "family"}, {"parents", {1, 2}}}).empty());
}

TEST(ArgumentSchema, NamesTheMemberThatIsWrong) {
  EXPECT_EQ(only_problem(json::object()), "id is missing");
  EXPECT_EQ(only_problem({{"id", "7"}}), "id is \"7\"; an integer is wanted");
  EXPECT_EQ(only_problem({{"id", 7.5}}), "id is 7.5; an integer is wanted");
  EXPECT_EQ(only_problem({{"id", 0}}), "id is 0; at least 1 is wanted");
  EXPECT_EQ(only_problem({{"id", 1}, {"limit", 51}}), "limit is 51; at most 50 is wanted");
  EXPECT_EQ(only_problem({{"id", 1}, {"text", "123456"}}), "text has 6 bytes; at most 5 are wanted");
  EXPECT_EQ(only_problem({{"id", 1}, {"kind", "uncles"}}), "kind is \"uncles\"; one of \"family\", \"ancestors\" is wanted");
  EXPECT_EQ(only_problem({{"id", 1}, {"parents", 3}}), "parents is 3; an array is wanted");
  EXPECT_EQ(only_problem({{"id", 1}, {"parents", {1, "two"}}}), "parents[1] is \"two\"; an integer is wanted");
  EXPECT_EQ(only_problem({{"id", 1}, {"parents", {1, 2, 3}}}), "parents has 3 items; at most 2 are wanted");
  EXPECT_EQ(only_problem({{"id", 1}, {"submission", 2}}), "\"submission\" is not known here");
}

TEST(ArgumentSchema, NullIsNoArgument) {
  EXPECT_TRUE(schema_problems(schema(), {{"id", 1}, {"limit", nullptr}, {"kind", nullptr}}).empty());
  EXPECT_EQ(only_problem({{"id", nullptr}}), "id is null; an integer is wanted");
}

TEST(ArgumentSchema, TellsAHandfulOfProblems) {
  json wild = json::object();
  for (int i = 0; i < 100; ++i) wild["m" + std::to_string(i)] = i;
  EXPECT_EQ(schema_problems(schema(), wild).size(), 5U);
}

TEST(ArgumentSchema, HugeNumbersAreCompared) {
  EXPECT_EQ(only_problem({{"id", 1}, {"limit", UINT64_MAX}}), "limit is 18446744073709551615; at most 50 is wanted");
  EXPECT_TRUE(schema_problems(schema(), {{"id", INT64_MAX}}).empty());
}

TEST(ArgumentSchema, AnIntegerHasNoFraction) {
  const json arguments = {{"id", 2.0}, {"limit", 7}, {"text", "2.0"}, {"parents", {3.0, 4}}};
  EXPECT_TRUE(schema_problems(schema(), arguments).empty());
  EXPECT_EQ(plain_integers(schema(), arguments).dump(), R"({"id":2,"limit":7,"parents":[3,4],"text":"2.0"})");
  EXPECT_EQ(only_problem({{"id", 2.5}}), "id is 2.5; an integer is wanted");
  EXPECT_EQ(only_problem({{"id", 1e300}}), "id is 1e+300; an integer is wanted");
}

TEST(ArgumentSchema, TellsItsMembers) {
  EXPECT_EQ(
      signature_of(schema()),
      "id (integer), kind (string, optional), limit (integer, optional), parents (array, optional), text (string, optional)");
  EXPECT_EQ(signature_of(input_object(json::object())), "it takes none");
}

TEST(ArgumentSchema, WhatItDoesNotUnderstandIsOurFault) {
  EXPECT_THROW(schema_problems({{"pattern", "a*"}}, "a"), InternalError);
  EXPECT_THROW(schema_problems({{"type", "text"}}, "a"), InternalError);
}

}  // namespace
}  // namespace sluice::mcp::test
