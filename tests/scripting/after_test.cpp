// flow.after as scripts say it: what it becomes, and what is refused.
#include <gtest/gtest.h>

#include <string>

#include "scripting/base/error.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

/// Line 2 begins flow.cache, line 6 flow.index and line 11 flow.after.
FlowGraph flow_with(const std::string& after, const std::string& options = "", const std::string& index = "") {
  return trace("local flow = sluice.flow{name = \"x\"" + options + R"(}
function flow.cache(c)
  c.mean = c.k:mean("token")
  c.heavy = sluice.cfill(0)
end
function flow.index(q, c)
  local s = q:dot(c.mean):max("head") + c.heavy
  )" + index + R"(
  return sluice.topk(s, {k = 3})
end
function flow.after(q, c, mass)
  )" + after + R"(
end
return flow)",
               "x.lua");
}

const std::string kSum = "c.heavy:save(c.heavy + mass:sum(\"token\", \"head\"))";

/// "line: message" of what is refused.
std::string refusal(const std::string& after, const std::string& options = "", const std::string& index = "") {
  try {
    flow_with(after, options, index);
  } catch (const FlowError& error) {
    return std::to_string(error.where().line) + ": " + error.message();
  }
  return "accepted";
}

std::string refusal_of(const std::string& script, int layers = 0) {
  try {
    trace(script, "x.lua", {.layers = layers});
  } catch (const FlowError& error) {
    return std::to_string(error.where().line) + ": " + error.message();
  }
  return "accepted";
}

TEST(After, IsAStageWithStepsOfItsOwn) {
  const FlowGraph graph = flow_with(kSum);
  EXPECT_EQ(graph.mass_rows, kToEnd);
  EXPECT_TRUE(graph.reads_mass());
  EXPECT_FALSE(graph.saves_in(Stage::kIndex));
  EXPECT_TRUE(graph.saves_in(Stage::kAfter));
  const std::string text = to_text(graph);
  EXPECT_EQ(text.substr(text.find("after")),
            "after prompts all\n"
            "  %9 = query                           [head 4, dim 64]\n"
            "  %10 = mass                           [page B, token 16, head 4]\n"
            "  %11 = sum %10 over token             [page B, head 4]\n"
            "  %12 = sum %11 over head              [page B]\n"
            "  %13 = load heavy                     [page B]\n"
            "  %14 = add %13 %12                    [page B]\n"
            "  %15 = save %14 heavy\n");
  const Plan plan = compile(graph).plan;
  ASSERT_EQ(plan.after.size(), 2U);
  EXPECT_EQ(plan.after[0].kind, StepKind::kPages);
  EXPECT_EQ(plan.after[1].kind, StepKind::kSave);
  for (const PlanStep& step : plan.index) EXPECT_NE(step.kind, StepKind::kSave);
}

/// A cover whose summaries are states; `after` follows what flow.after saves of them.
std::string kept_cover(const std::string& keys, const std::string& values, const std::string& more = "") {
  return "local flow = sluice.flow{name = 'x'} function flow.cache(c) c.heavy = sluice.cfill(0, {'token'}) "
         "c.a = sluice.cfill(0, {'dim'}) c.b = sluice.cfill(0, {'dim'}) end "
         "function flow.index(q, c) " +
         more +
         " return sluice.cover{k = c.a, v = c.b, refine = 'none', tail = 40} end "
         "function flow.after(q, c, mass) local heavy = c.heavy + mass:sum('head') c.heavy:save(heavy) " +
         keys + " " + values + " end return flow";
}

TEST(After, SavesPagesThatLeaveATailInAStepOfTheirOwn) {
  const std::string keys = "c.a:save((c.k * heavy):sum('token'), {tail = 40})";
  const std::string values = "c.b:save((c.v * heavy):sum('token'), {tail = 40})";
  const FlowGraph graph = trace(kept_cover(keys, values), "x.lua");
  EXPECT_NE(to_text(graph).find("a last=4\n"), std::string::npos) << to_text(graph);
  EXPECT_EQ(graph.sources.at(1).keys, "a");
  EXPECT_EQ(graph.sources.at(1).values, "b");
  const Plan plan = compile(graph).plan;
  EXPECT_EQ(plan.attend.sources.at(1).keys.state, 1);
  EXPECT_EQ(plan.attend.sources.at(1).keys.field, -1);
  EXPECT_NE(plan.attend.sources.at(1).logits, kNoNode);
  std::vector<bool> leaving;
  for (const PlanStep& step : plan.after) {
    if (step.kind == StepKind::kPages) leaving.push_back(step.is_of_leaving_pages);
  }
  EXPECT_EQ(leaving, (std::vector{false, true}));
  // Where all pages are saved there is one step, of all pages.
  const Plan whole = compile(trace(kept_cover("c.a:save((c.k * heavy):sum('token'))", values), "x.lua")).plan;
  int steps = 0;
  for (const PlanStep& step : whole.after) steps += step.kind == StepKind::kPages && !step.is_of_leaving_pages ? 1 : 0;
  EXPECT_EQ(steps, 1);
}

TEST(After, PagesLeaveATailBeforeTheStepThatDoesNotCountThem) {
  EXPECT_EQ(pages_behind_tail(1, 15, 16), 0);
  EXPECT_EQ(pages_behind_tail(1, 16, 16), 1) << "the next token begins a page";
  EXPECT_EQ(pages_behind_tail(9, 8 * 16, 16), 0);
  EXPECT_EQ(pages_behind_tail(9, 9 * 16, 16), 1);
  EXPECT_EQ(pages_behind_tail(9, 9 * 16 + 15, 16), 1);
}

TEST(After, ATailIsRefusedWhereThereIsNone) {
  const std::string b = "c.b:save(c.v:mean('token'))";
  const auto saved = [&](const std::string& keys) { return refusal_of(kept_cover(keys, b)); };
  EXPECT_EQ(saved("c.a:save(c.k:mean('token'), {tail = 40})"), "accepted");
  EXPECT_EQ(saved("c.a:save(c.k:mean('token'), {})"), "accepted");
  EXPECT_EQ(saved("c.a:save(c.k:mean('token'), {tail = 0})"), "1: save: tail = 0 is not between 1 and 2^30 tokens");
  EXPECT_EQ(saved("c.a:save(c.k:mean('token'), {tail = 1.5})"), "1: save: tail must be a whole number and is 1.5");
  EXPECT_EQ(saved("c.a:save(c.k:mean('token'), {tale = 5})").substr(0, 9), "1: save: ");
  EXPECT_EQ(saved("c.a:save(c.k:mean('token'), 5)").substr(0, 9), "1: save: ");
  EXPECT_EQ(refusal(kSum + " local n = sluice.load('n', {axes = {}}) sluice.save('n', n + 1, {tail = 5})"),
            "12: save: state \"n\" [] has no pages that could leave a tail");
  EXPECT_EQ(refusal_of("local f = sluice.flow{name = 'x'} function f.cache(c) c.s = sluice.cfill(0, {'token'}) end "
                       "function f.after(q, c, mass) c.s:save(mass:sum('head'), {tail = 5}) sluice.evict(c.s, {budget = 64}) end "
                       "return f"),
            "1: save: a tail has the newest pages, and where tokens are evicted they lie in slots, in no order");
  EXPECT_EQ(refusal_of(kept_cover("", b, "c.a:save(c.k:mean('token'))")),
            "1: attention reads state \"a\", which flow.after does not save");
  EXPECT_EQ(refusal_of(kept_cover("", b)), "1: state \"a\" is never saved, so it would keep its first value");
}

TEST(After, SaysWhichRowsOfAPromptCount) {
  EXPECT_EQ(flow_with(kSum, ", prompt_mass = \"all\"").mass_rows, kToEnd);
  EXPECT_EQ(flow_with(kSum, ", prompt_mass = \"none\"").mass_rows, 0);
  EXPECT_EQ(flow_with(kSum, ", prompt_mass = 64").mass_rows, 64);
  EXPECT_EQ(flow_with(kSum, ", prompt_mass = 64").prompt_rows_wanted(), 64);
  EXPECT_EQ(flow_with("c.heavy:save(c.heavy * 0.5)", ", prompt_mass = 64").prompt_rows_wanted(), 1)
      << "the query of the last row alone";
  EXPECT_EQ(flow_with("c.heavy:save(c.heavy * 0.5)", ", prompt_mass = \"none\"").prompt_rows_wanted(), 0);
  for (const char* bad : {"0", "-3", "1.5", "2^31", "\"some\"", "{}", "0/0", "math.huge"}) {
    EXPECT_EQ(refusal(kSum, std::string(", prompt_mass = ") + bad).substr(0, 26), "1: flow: prompt_mass: got ") << bad;
  }
  EXPECT_EQ(
      refusal_of("local f = sluice.flow{name = 'x', prompt_mass = 8} function f.index(q, c) return sluice.window{last = 1} end "
                 "return f"),
      "1: sluice.flow: prompt_mass is for flows with flow.after");
}

TEST(After, MayReadWhatTheIndexStageReadsAndNeedNotReadMasses) {
  EXPECT_EQ(refusal("c.heavy:save((q:dot(c.k):sum('token', 'head') + sluice.position()) * sluice.random())"), "accepted");
  EXPECT_EQ(refusal("c.heavy:save((mass * c.v:sum('dim')):max('token'):softmax('head'):sum('head'))"), "accepted");
  EXPECT_EQ(refusal("sluice.save('all', mass) c.heavy:save(sluice.load('all'):sum('token', 'head'))"), "accepted");
}

TEST(After, IsRefusedWithItsLine) {
  EXPECT_EQ(refusal(""), "11: flow.after saves no state and evicts nobody, so it would change nothing");
  EXPECT_EQ(refusal(kSum + " return mass"), "11: flow.after must return nothing and returned what attention gave");
  EXPECT_EQ(refusal(kSum + " return q"), "11: flow.after must return nothing and returned a tensor [head 4, dim 64]");
  EXPECT_EQ(refusal(kSum + " return nil, 3"), "11: flow.after must return nothing and returned 2 values");
  EXPECT_EQ(refusal(kSum + " return nil"), "accepted");
  EXPECT_EQ(refusal(kSum + " return sluice.topk(c.heavy, {k = 2})"), "12: topk: is not an operator of the after stage");
  EXPECT_EQ(refusal(kSum + " local w = sluice.window{last = 1}"), "12: window: is not an operator of the after stage");
  EXPECT_EQ(refusal(kSum + " c.other = mass"), "12: c.other cannot be assigned in flow.after");
  EXPECT_EQ(refusal(kSum + " " + kSum), "12: save: state \"heavy\" is saved already in line 12");
  EXPECT_EQ(refusal(kSum, "", "c.heavy:save(s)"), "12: save: state \"heavy\" is saved already in line 8");
  EXPECT_EQ(refusal("c.heavy:save(mass)"), "12: save: state \"heavy\" is [page B] and got [page B, token 16, head 4]");
  EXPECT_EQ(refusal("c.heavy:save(kept)", "", "kept = s"), "12: save: operand 2 was computed in flow.index");
}

TEST(After, WhatAttentionGaveIsThereAfterItAlone) {
  EXPECT_EQ(refusal(kSum, "", "local m = mass:sum('token')"), "8: attempt to index a nil value (global 'mass')");
  const std::string full =
      "local f = sluice.flow{name = 'x', layers = {rest = 'full'}}\n"
      "function f.index(q, c) return sluice.topk(sluice.load('m', {axes = {'page'}}), {k = 2}) end\n"
      "function f.after(q, c, mass)\n";
  EXPECT_EQ(refusal_of(full + "sluice.save('m', mass:sum('token', 'head')) end return f"),
            "4: flow.after reads mass, and every layer is \"full\": no attention of the flow's gives it");
  EXPECT_EQ(refusal_of(full + "sluice.save('m', sluice.position()) end return f"), "accepted");
  // Of this model's two layers, both.
  const std::string both =
      "local f = sluice.flow{name = 'x', layers = {[0] = 'full', [1] = 'full'}}" + full.substr(full.find('\n'));
  EXPECT_EQ(refusal_of(both + "sluice.save('m', mass:sum('token', 'head')) end return f"), "accepted");
  EXPECT_EQ(refusal_of(both + "sluice.save('m', mass:sum('token', 'head')) end return f", 2),
            "4: flow.after reads mass, and every layer is \"full\": no attention of the flow's gives it");
}

TEST(After, FollowsASelection) {
  const std::string after = "function f.after(q, c, mass) sluice.save('m', sluice.load('m', {axes = {'page'}}) + 1) end return f";
  EXPECT_EQ(refusal_of("local f = sluice.flow{name = 'x'}\n" + after),
            "2: flow.after follows what flow.index selects, and the flow selects nothing");
  EXPECT_EQ(refusal_of("local f = sluice.flow{name = 'x'} f.pattern = sluice.pattern.window(64)\n" + after),
            "2: flow.after follows what flow.index selects, and the flow selects nothing");
  EXPECT_EQ(refusal_of("local f = sluice.flow{name = 'x'} function f.index(q, c) return sluice.pattern.window(64) end\n" + after),
            "2: flow.after follows what flow.index selects, and the flow selects nothing");
  EXPECT_EQ(refusal_of("local f = sluice.flow{name = 'x'} f.after = 3 return f"), "1: flow.after must be a function");
  EXPECT_EQ(refusal_of("local f = sluice.flow{name = 'x'} function f.aftr() end return f"), "1: a flow has no part \"aftr\"");
}

TEST(After, WhatNoStepReadsGoes) {
  // The state reaches no selection: neither it nor what is computed for it is left.
  const FlowGraph graph = trace(R"(
    local flow = sluice.flow{name = "x"}
    function flow.cache(c) c.mean = c.k:mean("token") end
    function flow.index(q, c) return sluice.topk(q:dot(c.mean):max("head"), {k = 3}) end
    function flow.after(q, c, mass)
      sluice.save("m", sluice.load("m", {axes = {"page"}}) + mass:sum("token", "head"))
    end
    return flow)",
                                "x.lua");
  const Plan plan = compile(graph).plan;
  EXPECT_TRUE(plan.after.empty());
  EXPECT_TRUE(plan.graph.states.empty());
  EXPECT_FALSE(plan.graph.reads_mass());
  EXPECT_EQ(plan.graph.prompt_rows_wanted(), 0);
}

TEST(After, UnionsAreFlattenedBeforeIt) {
  const FlowGraph graph = flow_with(kSum, "",
                                    "do return sluice.union(sluice.union(sluice.topk(s, {k = 2}), sluice.window{last = 1}), "
                                    "sluice.union(sluice.window{last = 1}, sluice.topk(s * 2, {k = 1}))) end");
  const Plan plan = compile(graph).plan;
  EXPECT_EQ(plan.after.size(), 2U);
  EXPECT_LT(plan.graph.nodes.size(), graph.nodes.size());
}

}  // namespace
}  // namespace sluice
