// topk_tokens and topp: what they make of a flow, and what they refuse.
#include <gtest/gtest.h>

#include "scripting/graph/plan.h"
#include "scripting/graph/selections.h"
#include "scripting/graph/text.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

FlowGraph flow_of(const std::string& index) {
  return trace(
      "local flow = sluice.flow{name = 't', page = 16}\nfunction flow.cache(c) c.m = c.k:mean('token') end\n"
      "function flow.index(q, c) local s = q:dot(c.k):max('head') local m = q:dot(c.m):max('head')\n  " +
          index + "\nend\nreturn flow\n",
      "t.lua");
}

std::string error_of(const std::string& index) {
  try {
    compile(flow_of(index));
  } catch (const FlowError& error) {
    return std::string(error.what()).substr(6);  // without "t.lua:"
  }
  return "";
}

TEST(TopKTokens, SelectsTokens) {
  const FlowGraph graph = flow_of("return sluice.topk_tokens(s, {k = 100, first = 4, last = 32})");
  EXPECT_TRUE(graph.selects_tokens());
  EXPECT_TRUE(graph.selects_under_masks());
  EXPECT_TRUE(graph.attends_plainly());
  EXPECT_EQ(scores_a_page(graph), 16);
  EXPECT_NE(to_text(compile(graph).plan).find("topk_tokens %"), std::string::npos);
  EXPECT_NE(to_text(graph).find(" k=100 first=4 last=32"), std::string::npos);
}

TEST(TopKTokens, AUnionWithPagesIsOneOfTokens) {
  const FlowGraph graph = flow_of("return sluice.union(sluice.topk_tokens(s, {k = 9}), sluice.topk(m, {k = 2}))");
  EXPECT_TRUE(is_of_tokens(graph, graph.selection()));
  EXPECT_FALSE(is_of_tokens(graph, graph.nodes[static_cast<size_t>(graph.selection())].inputs[1]));
}

TEST(TopKTokens, WhatCannotBeIsRefusedWithItsLine) {
  EXPECT_EQ(error_of("return sluice.topk_tokens(m, {k = 3})"),
            "4: topk_tokens: wants one score a token, [page B, token 16], and got [page B]");
  EXPECT_EQ(error_of("return sluice.topk_tokens(q:dot(c.k), {k = 3})"),
            "4: topk_tokens: wants one score a token, [page B, token 16], and got [page B, head 4, token 16]");
  EXPECT_EQ(error_of("return sluice.topk_tokens(s, {})"), "4: topk_tokens: the budget is empty");
  EXPECT_EQ(error_of("return sluice.topk_tokens(s, {k = -1})"), "4: topk_tokens: k = -1 is not a number of tokens");
  EXPECT_EQ(error_of("return sluice.topk_tokens(s, {k = 1, method = 'gvr'})").substr(0, 15), "4: topk_tokens:");
  EXPECT_EQ(error_of("return sluice.cover{refine = sluice.topk_tokens(s, {k = 3}), k = c.m, v = c.m}"),
            "4: cover: refine wants pages, and these are tokens");
}

TEST(TopP, WantsAShare) {
  const FlowGraph graph = flow_of("return sluice.topp(m:softmax('page'), {p = 0.75, max = 9})");
  EXPECT_NE(to_text(graph).find(" p=0.75 last=1 max=9"), std::string::npos);
  EXPECT_EQ(error_of("return sluice.topp(m, {})"), "4: topp: wants p = the share of the weights");
  EXPECT_EQ(error_of("return sluice.topp(m, {p = 0})"), "4: topp: p = 0 is no share above 0 and up to 1");
  EXPECT_EQ(error_of("return sluice.topp(m, {p = 1.5})"), "4: topp: p = 1.5 is no share above 0 and up to 1");
  EXPECT_NE(error_of("return sluice.topp(m, {p = 0 / 0})").find("nan is no share"), std::string::npos);
  EXPECT_EQ(error_of("return sluice.topp(m, {p = 1, last = 3, max = 2})"), "4: topp: max = 2 is less than first + last = 3");
  EXPECT_EQ(error_of("return sluice.topp(s, {p = 1})").substr(0, 8), "4: topp:");
  EXPECT_EQ(error_of("return sluice.cover{refine = sluice.topp(m:softmax('page'), {p = 0.5}), k = c.m, v = c.m}"), "");
}

}  // namespace
}  // namespace sluice
