// sluice.cover as scripts say it: what it becomes, and what is refused.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "scripting/base/error.h"
#include "scripting/graph/text.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

FlowGraph flow_with(const std::string& index, const std::string& options = "") {
  return trace("local flow = sluice.flow{name = \"x\"" + options + R"(}
    function flow.cache(c)
      c.ksum = c.k:mean("token")
      c.vsum = c.v:mean("token")
      c.four = c.k:mean_interleave("token", 4)
    end
    function flow.index(q, c)
      local s = q:dot(c.ksum):max("head")
      )" + index + R"(
    end
    return flow)",
               "x.lua");
}

std::string sources_of(const std::string& index) {
  const std::string text = to_text(flow_with(index));
  return text.substr(text.find("  attend"));
}

std::string refusal(const std::string& index, const std::string& options = "") {
  try {
    flow_with(index, options);
  } catch (const FlowError& error) {
    return error.message();
  }
  return "accepted";
}

std::string cover(const std::string& options) { return "return sluice.cover{k = c.ksum, v = c.vsum, " + options + "}"; }

TEST(Cover, IsTokensAndTheOtherPagesThroughTheirSummaries) {
  // Eight pages of 16 and one: wherever in its page the newest token lies, the last 128 are raw.
  const std::string tail = "window(first = 0, last = 9)";
  const FlowGraph preserving = flow_with(cover("refine = sluice.topk(s, {k = 3})"));
  ASSERT_EQ(preserving.sources.size(), 2U);
  EXPECT_TRUE(preserving.sources[0].is_plain());
  const AttentionSource& summaries = preserving.sources[1];
  EXPECT_EQ(summaries.keys, "ksum");
  EXPECT_EQ(summaries.values, "vsum");
  EXPECT_TRUE(summaries.others);
  EXPECT_TRUE(summaries.shares);
  const Node& older_than = preserving.nodes[static_cast<size_t>(summaries.selection)];
  EXPECT_EQ(older_than.op, Op::kWindow);
  EXPECT_EQ(older_than.attributes.last, 9);
  const Node& bias = preserving.nodes[static_cast<size_t>(summaries.bias)];
  EXPECT_FLOAT_EQ(static_cast<float>(bias.attributes.value), 2.7725887F) << "log 16";

  const FlowGraph normalised =
      flow_with(cover("refine = sluice.topk(s, {k = 3}), mass = 'renormalise', bias = 'none', tail = 17"));
  EXPECT_EQ(normalised.sources[1].selection, normalised.selection());
  EXPECT_FALSE(normalised.sources[1].shares);
  EXPECT_EQ(normalised.sources[1].bias, kNoNode);
  EXPECT_EQ(sources_of(cover("refine = 'none', tail = 1, bias = s")),
            "  attend %12 by k, v\n  attend others of %12 by ksum, vsum + %9 shared\n");
}

TEST(Cover, HasSummariesOfSummaries) {
  const FlowGraph grouped = flow_with(cover("refine = sluice.topk(s, {k = 3}), levels = 2, open = sluice.topk(s, {k = 20})"));
  EXPECT_EQ(grouped.sources[1].group_pages, 8) << "as a user who says no number gets";
  ASSERT_NE(grouped.sources[1].opened, kNoNode);
  EXPECT_EQ(grouped.nodes[static_cast<size_t>(grouped.sources[1].opened)].attributes.k, 20);
  const FlowGraph closed = flow_with(cover("refine = 'none', levels = 2, group = 3"));
  EXPECT_EQ(closed.sources[1].group_pages, 3);
  EXPECT_EQ(closed.sources[1].opened, kNoNode);
  EXPECT_EQ(flow_with(cover("refine = 'none', levels = 2, group = 1")).sources, flow_with(cover("refine = 'none'")).sources);
  EXPECT_EQ(sources_of(cover("refine = 'none', tail = 1, bias = s, levels = 2, group = 3, open = sluice.window{last = 4}")),
            "  attend %13 by k, v\n  attend others of %13 by ksum, vsum + %9 shared, 3 pages together but those of %12\n");
}

TEST(Cover, IsSavedForWhenPagesLeaveItsTail) {
  const auto message = [](int saved) -> std::string {
    try {
      trace(
          "local flow = sluice.flow{name = 'x'} function flow.cache(c) c.a = c.k:mean('token') c.b = sluice.cfill(0, {'dim'}) "
          "end function flow.index(q, c) return sluice.cover{k = c.a, v = c.b, refine = sluice.window{last = 1}, tail = 40} end "
          "function flow.after(q, c, mass) c.b:save(c.v:mean('token'), {tail = " +
              std::to_string(saved) + "}) end return flow",
          "x.lua");
      return "accepted";
    } catch (const FlowError& error) {
      return error.message();
    }
  };
  for (const int saved : {1, 39, 40, 49}) EXPECT_EQ(message(saved), "accepted") << saved;  // four pages of 16, as the cover's
  EXPECT_EQ(
      message(50),
      "save: \"b\" is there once pages leave a tail of 5 pages, and the cover's has 4: those between would be attended to as "
      "the state began");
}

TEST(Cover, OpensWhatItIsTold) {
  const auto opened = [](const std::string& refine) {
    const FlowGraph graph = flow_with(cover("refine = " + refine));
    return graph.nodes[static_cast<size_t>(graph.selection())];
  };
  EXPECT_EQ(opened("'none'").op, Op::kWindow);
  EXPECT_EQ(opened("'all'").op, Op::kWindow);
  EXPECT_EQ(opened("sluice.threshold(s, {above = 0})").op, Op::kUnion);
}

TEST(Cover, IsRefusedWithOneMessage) {
  EXPECT_EQ(refusal("return sluice.cover()"), "cover: wants a table of options");
  EXPECT_EQ(refusal("return sluice.cover{}"), "cover: wants k = a cached field, or a state, that stands for its page");
  EXPECT_EQ(refusal("return sluice.cover{k = c.ksum, refine = 'all'}"),
            "cover: wants v = a cached field, or a state, that stands for its page");
  EXPECT_EQ(refusal("return sluice.cover{k = c.ksum + 1, v = c.vsum, refine = 'all'}"),
            "cover: k wants a cached field as flow.cache assigned it, or a state, and got a tensor [page B, dim 64]");
  EXPECT_EQ(refusal("return sluice.cover{k = c.four, v = c.vsum, refine = 'all'}"),
            "cover: k wants [dim 64] of a page and got a tensor [page B, sub 4, dim 64]");
  EXPECT_EQ(refusal("return sluice.cover{k = 3, v = c.vsum, refine = 'all'}"),
            "cover: k wants a cached field as flow.cache assigned it, or a state, and got the number 3");
  EXPECT_EQ(refusal("return sluice.cover{keys = c.ksum, v = c.vsum, refine = 'all'}"), "cover: no option is called \"keys\"");
  EXPECT_EQ(refusal(cover("refined = 'all'")), "cover: no option is called \"refined\"");
  EXPECT_EQ(refusal(cover("")), "cover: wants refine = a selection of the pages to open, \"all\" or \"none\"");
  EXPECT_EQ(refusal(cover("refine = s")),
            "cover: refine wants a selection of pages, \"all\" or \"none\" and got a tensor [page B]");
  EXPECT_EQ(refusal(cover("refine = sluice.pattern.window(4)")),
            "cover: refine wants a selection of pages, \"all\" or \"none\" and got a pattern");
  EXPECT_EQ(refusal(cover("refine = 'some'")),
            "cover: refine wants a selection of pages, \"all\" or \"none\" and got the text \"some\"");
  EXPECT_EQ(refusal(cover("refine = 'all', tail = 0")), "cover: tail = 0 is not between 1 and 2^30 tokens");
  EXPECT_EQ(refusal(cover("refine = 'all', tail = 2^31")), "cover: tail = 2147483648 is too large");
  EXPECT_EQ(refusal(cover("refine = 'all', mass = 'kept'")), "cover: no mass is called \"kept\"");
  EXPECT_EQ(refusal(cover("refine = 'all', bias = 'log'")), "cover: no bias is called \"log\"");
  EXPECT_EQ(refusal(cover("refine = 'all', bias = q")), "cover: bias wants [page] or [page, head] and got [head 4, dim 64]");
  EXPECT_EQ(refusal(cover("refine = 'all', levels = 3")), "cover: levels = 3 is neither 1 nor 2");
  EXPECT_EQ(refusal(cover("refine = 'all', levels = 0")), "cover: levels = 0 is neither 1 nor 2");
  EXPECT_EQ(refusal(cover("refine = 'all', group = 4")), "cover: group and open are of two levels of summaries");
  EXPECT_EQ(refusal(cover("refine = 'all', levels = 1, open = 'all'")), "cover: group and open are of two levels of summaries");
  EXPECT_EQ(refusal(cover("refine = 'all', levels = 2, group = 0")), "cover: group = 0 is not between 1 and 16777216 pages");
  EXPECT_EQ(refusal(cover("refine = 'all', levels = 2, open = s")),
            "cover: open wants a selection of pages, \"all\" or \"none\" and got a tensor [page B]");
  EXPECT_EQ(refusal(cover("refine = 'all', levels = 2, open = 'some'")),
            "cover: open wants a selection of pages, \"all\" or \"none\" and got the text \"some\"");
  EXPECT_EQ(refusal(cover("refine = 'all', levels = 2, opens = 'all'")), "cover: no option is called \"opens\"");
  EXPECT_EQ(
      refusal("local u = sluice.cover{k = c.ksum, v = c.vsum, refine = 'all'} return sluice.union(u, sluice.window{last = 1})"),
      "union: a cover has all pages already");
  EXPECT_EQ(refusal("local u = sluice.cover{k = c.ksum, v = c.vsum, refine = 'all'} return sluice.cover{k = c.ksum, v = c.vsum, "
                    "refine = u}"),
            "cover: refine wants a selection of pages, \"all\" or \"none\" and got one that has more");
}

TEST(Cover, ConstantBiasesAreNumbersInBaseTwo) {
  const auto bias_of = [](const std::string& value) {
    const FlowGraph graph = flow_with(cover("refine = 'all', bias = sluice.fill(" + value + ", {'page'})"));
    return graph.nodes[static_cast<size_t>(graph.sources.at(1).bias)].attributes.value;
  };
  EXPECT_EQ(bias_of("1.5"), 1.5);
  EXPECT_EQ(bias_of("3e38"), 2e38);
  EXPECT_EQ(bias_of("-3.4e38"), -2e38);
  EXPECT_EQ(bias_of("-math.huge"), -std::numeric_limits<double>::infinity()) << "hides a page";
}

TEST(Cover, StandsInNoPattern) {
  const std::string script = R"(
    local flow = sluice.flow{name = "x"}
    flow.pattern = sluice.pattern.window(512)
    function flow.cache(c) c.a = c.k:mean("token") c.b = c.v:mean("token") end
    function flow.index(q, c) return sluice.cover{k = c.a, v = c.b, refine = "none"} end
    return flow)";
  EXPECT_THROW(trace(script, "x.lua"), FlowError);
}

}  // namespace
}  // namespace sluice
