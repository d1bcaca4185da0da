// evict(...): what it makes of a flow, and what it refuses.
#include <gtest/gtest.h>

#include "scripting/graph/plan.h"
#include "scripting/graph/text.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

FlowGraph evicting(const std::string& call, const std::string& options = "", const std::string& index = "") {
  return trace("local flow = sluice.flow{name = 'e', page = 16" + options + "}\n" + index +
                   "\nfunction flow.after(q, c, mass)\n  " + call + "\nend\nreturn flow\n",
               "e.lua");
}

std::string error_of(const std::string& call, const std::string& options = "", const std::string& index = "") {
  try {
    compile(evicting(call, options, index));
  } catch (const FlowError& error) {
    return std::string(error.what()).substr(6);  // without "e.lua:"
  }
  return "";
}

TEST(Evict, TheScoreIsKeptUnderANameOfItsOwn) {
  const FlowGraph graph = evicting("sluice.evict(mass:sum('head'), {budget = 512, first = 4, recent = 256})");
  ASSERT_TRUE(graph.eviction);
  EXPECT_EQ(graph.eviction->budget, 512);
  EXPECT_EQ(graph.eviction->first, 4);
  EXPECT_EQ(graph.eviction->recent, 256);
  EXPECT_EQ(graph.eviction->chunk, 254);
  EXPECT_EQ(graph.eviction->where.line, 4);
  ASSERT_EQ(graph.states.size(), 1U);
  EXPECT_EQ(graph.states[0].name, graph.eviction->score);
  EXPECT_TRUE(graph.attends_plainly());
  const Plan plan = compile(graph).plan;
  EXPECT_EQ(plan.graph.states.size(), 1U) << "nobody loads it, and it stays";
  EXPECT_EQ(plan.after.back().kind, StepKind::kSave);
  EXPECT_NE(to_text(plan).find("evict by evict_score budget 512 first 4 recent 256 chunk 254"), std::string::npos);
}

TEST(Evict, OptionsHaveDefaults) {
  const Eviction usual = *evicting("sluice.evict(mass:sum('head'), {budget = 64})").eviction;
  EXPECT_EQ(usual.first, 0);
  EXPECT_EQ(usual.recent, 1);
  EXPECT_EQ(usual.chunk, 32);
  EXPECT_FALSE(usual.keep);
  EXPECT_EQ(evicting("sluice.evict(mass:sum('head'), {budget = 5000})").eviction->chunk, 256);
  EXPECT_EQ(evicting("sluice.evict(mass:sum('head'), {budget = 1})").eviction->chunk, 1);
  EXPECT_EQ(evicting("sluice.evict(mass:sum('head'), {budget = 64, compress = 'prompt'})").eviction->chunk, 0);
  EXPECT_EQ(evicting("mass:sum('head'):evict{budget = 64, chunk = 7}").eviction->chunk, 7);
  EXPECT_TRUE(evicting("sluice.evict(mass:sum('head'), {budget = 64, keep = sluice.pattern.window(9)})").eviction->keep);
}

TEST(Evict, ScoresNeedNoMasses) {
  const FlowGraph graph = evicting("sluice.evict(c.k:l2norm('dim') * -1, {budget = 64})");
  EXPECT_FALSE(graph.reads_mass());
  EXPECT_EQ(graph.prompt_rows_wanted(), 1);
}

TEST(Evict, ChunksEndWhereTheyDo) {
  Eviction eviction;
  eviction.chunk = 10;
  EXPECT_EQ(eviction.chunk_end(0, 35), 10);
  EXPECT_EQ(eviction.chunk_end(9, 35), 10);
  EXPECT_EQ(eviction.chunk_end(10, 35), 20);
  EXPECT_EQ(eviction.chunk_end(34, 35), 35);
  eviction.chunk = 0;
  EXPECT_EQ(eviction.chunk_end(3, 35), 35);
}

TEST(Evict, WhatCannotBeIsRefusedWithItsLine) {
  const std::string score = "mass:sum('head')";
  const auto call = [&](const std::string& rule) { return "sluice.evict(" + score + ", {" + rule + "})"; };
  EXPECT_EQ(error_of(call("first = 3")), "4: evict: wants budget = the tokens that are kept");
  EXPECT_EQ(error_of(call("budgt = 3")), "4: evict: no option is called \"budgt\"");
  EXPECT_EQ(error_of(call("512")), "4: evict: options have names");
  EXPECT_EQ(error_of(call("budget = 0")), "4: evict: budget = 0 is not a number of tokens from 1 to 1073741824");
  EXPECT_EQ(error_of(call("budget = 8, recent = 0")), "4: evict: recent = 0 is not a number of tokens from 1 to 1073741824");
  EXPECT_EQ(error_of(call("budget = 8, first = 5, recent = 4")),
            "4: evict: a budget of 8 tokens has no room for first = 5 and recent = 4");
  EXPECT_EQ(error_of(call("budget = 8, first = 2, chunk = 7")),
            "4: evict: a budget of 8 tokens has no room for first = 2 and a chunk of 7 rows");
  EXPECT_EQ(error_of(call("budget = 8, compress = 'prompts'")), "4: evict: compress = \"prompts\"");
  EXPECT_EQ(error_of(call("budget = 8, compress = 'prompt', chunk = 2")), "4: evict: chunk is for compress = \"chunk\"");
  EXPECT_EQ(error_of(call("budget = 8, keep = 3")), "4: evict: keep wants a pattern and got the number 3");
  EXPECT_EQ(error_of(call("budget = 8, bugdet = 9")).substr(0, 9), "4: evict:");
  EXPECT_EQ(error_of("sluice.evict(mass, {budget = 8})"),
            "4: evict: wants a score [page, token] and got [page B, token 16, head 4]");
  EXPECT_EQ(error_of("sluice.evict(mass:sum('token', 'head'), {budget = 8})"),
            "4: evict: wants a score [page, token] and got [page B]");
  EXPECT_EQ(error_of(call("budget = 8") + " " + call("budget = 9")), "4: evict: the flow says who leaves already, in line 4");
  EXPECT_EQ(error_of(call("budget = 8"), ", prompt_mass = 'none'"),
            "4: evict: prompt_mass = \"none\" leaves the tokens of a prompt without scores");
  EXPECT_EQ(error_of(call("budget = 8"), ", layers = {rest = 'full'}").substr(0, 23), "4: flow.after reads mas");
  EXPECT_EQ(error_of(call("budget = 8"), "", "flow.pattern = sluice.pattern.window(64)"),
            "4: evict: flow.pattern hides tokens by their positions, and slots have none");
  EXPECT_EQ(error_of(call("budget = 8"), "",
                     "function flow.index(q, c) return sluice.union(sluice.window{last = 2}, sluice.pattern.window(9)) end"),
            "4: evict: tokens of a pattern beside a selection have positions, and slots have none");
  EXPECT_EQ(error_of(call("budget = 8"), "",
                     "function flow.index(q, c) sluice.evict(c.k:sum('dim'), {budget = 9}) return sluice.window{last = 2} end"),
            "2: evict: belongs in flow.after");
  EXPECT_EQ(error_of("sluice.save('a', sluice.load('a', {axes = {'page'}}) + 1) " + call("budget = 8")).substr(0, 28),
            "4: state \"a\" is kept by page");
  EXPECT_EQ(error_of("sluice.save('evict_score', sluice.load('evict_score', {axes = {'page', 'token'}})) " + call("budget = 8")),
            "4: evict: \"evict_score\" is the name of what it keeps");
  EXPECT_EQ(error_of("sluice.save('a', sluice.load('a', {axes = {'head'}}))"),
            "3: flow.after follows what flow.index selects, and the flow selects nothing");
}

}  // namespace
}  // namespace sluice
