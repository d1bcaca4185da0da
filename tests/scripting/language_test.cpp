#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "scripting/base/suggest.h"
#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

FlowGraph trace_index(const std::string& body, const std::string& options = "", const std::string& cache = "") {
  return trace("local flow = sluice.flow{name = \"x\"" + options + "}\nfunction flow.cache(c) " + cache +
                   " end\nfunction flow.index(q, c) " + body + " end\nreturn flow",
               "x.lua");
}

/// Text of the index stage.
std::string index_text(const std::string& body, const std::string& cache = "") {
  const std::string text = to_text(trace_index(body, "", cache));
  return text.substr(text.find("index\n"));
}

/// The message of the error that `run` throws.
template <typename Run>
std::string message_of(const Run& run) {
  try {
    run();
  } catch (const FlowError& error) {
    return error.message();
  }
  return "accepted";
}

std::string refusal(const std::string& body, const std::string& options = "", const std::string& cache = "") {
  return message_of([&] { trace_index(body, options, cache); });
}

TEST(Language, FilesMayBeginWithAByteOrderMarkAndALineForTheShell) {
  const std::string flow =
      "local flow = sluice.flow{name = \"x\"}\nfunction flow.index() return sluice.window{last = 1} end\nreturn flow";
  const std::string plain = to_text(trace(flow, "x.lua"));
  for (const std::string mark : {"\xef\xbb\xbf", "#!/usr/bin/env lua\n", "\xef\xbb\xbf#!lua\n"}) {
    EXPECT_EQ(to_text(trace(mark + flow, "x.lua")), plain);
    try {
      trace(mark + "\nerror('here')", "x.lua");
      FAIL();
    } catch (const FlowError& error) {
      EXPECT_EQ(error.where().line, mark.ends_with('\n') ? 3 : 2);
    }
  }
  EXPECT_THROW(trace("#", "x.lua"), FlowError);
  EXPECT_THROW(trace("\xef\xbb\xbf\x1bLua", "x.lua"), FlowError);
}

TEST(Language, ArithmeticTakesNumbersOnEitherSide) {
  const std::string text = index_text("local p = sluice.position() return sluice.topk(2 * p + 1 - p / 4, {k = 1})");
  EXPECT_EQ(
      text,
      index_text(
          "local p = sluice.position() return sluice.topk(sluice.sub(sluice.add(sluice.mul(2, p), 1), p:div(4)), {k = 1})"));
}

TEST(Language, PatternsStandBesideSelections) {
  const auto selected = [](const std::string& body) {
    const std::string text = index_text(body);
    return text.substr(text.find("  select "));
  };
  const std::string with = "local p, w = sluice.pattern, sluice.window{last = 1} ";
  EXPECT_EQ(selected(with + "return sluice.union(w, p.window(9))"), "  select %1 and window(9)\n");
  EXPECT_EQ(selected(with + "return sluice.union(p.window(9), w, p.sink(2))"), "  select %1 and window(9) | sink(2)\n");
  EXPECT_EQ(selected(with + "local u = sluice.union(w, p.window(9)) return sluice.union(u, sluice.window{first = 1})"),
            "  select %3 and window(9)\n");
  EXPECT_EQ(selected(with + "local u = sluice.union(w, p.window(9)) return sluice.union(u, u)"),
            "  select %2 and window(9) | window(9)\n");
  EXPECT_EQ(selected(with + "local u = sluice.union(w, p.window(9)) return w"), "  select %1\n");
  EXPECT_EQ(selected(with + "return w:union(p.window(9))"), "  select %1 and window(9)\n");
  const auto pattern = [](const std::string& body) {
    const std::string text = to_text(trace_index("local p = sluice.pattern return " + body));
    const size_t second = text.find('\n') + 1;
    return text.substr(second, text.find('\n', second) + 1 - second);
  };
  EXPECT_EQ(pattern("p.window(9)"), "pattern window(9) prefill dense\n");
  EXPECT_EQ(pattern("sluice.union(p.window(9), p.sink(1))"), "pattern window(9) | sink(1) prefill dense\n");
  EXPECT_EQ(refusal(with + "local u = sluice.union(w, p.window(9)) return u + 1"),
            "add: operand 1 must be a tensor or a number and is a selection of pages");
  EXPECT_EQ(refusal(with + "local u = w for i = 1, 2000 do u = sluice.union(w, p.window(9)) end return u"),
            "the script makes more than 1000 patterns");
  EXPECT_EQ(refusal(with + "local n = p.window(9) local u = w for i = 1, 2000 do u = sluice.union(w, n) end return u"),
            "the script makes covers, and unites patterns with selections, more than 1000 times");
}

TEST(Language, PatternsDifferByHead) {
  const auto pattern = [](const std::string& value) {
    const std::string text =
        to_text(trace("local p = sluice.pattern local f = sluice.flow{name = 'f'} f.pattern = " + value + " return f", "f.lua"));
    const size_t second = text.find('\n') + 1;
    return text.substr(second, text.find('\n', second) - second);
  };
  EXPECT_EQ(pattern("p.by_head{p.window(9), p.sink(1)}"), "pattern by_head{window(9), sink(1)}");
  EXPECT_EQ(pattern("p.by_head{p.window(9), p.window(9)}"), "pattern window(9)");
  EXPECT_EQ(pattern("p.sink(2) | p.by_head{p.window(9), p.window(5)}"),
            "pattern by_head{sink(2) | window(9), sink(2) | window(5)}");
  EXPECT_EQ(pattern("p.by_head{p.window(9), p.window(5)} & p.by_head{p.sink(1), p.sink(2), p.window(7)}"),
            "pattern by_head{window(9) & sink(1), window(5) & sink(2), window(9) & window(7), window(5) & sink(1), "
            "window(9) & sink(2), window(5) & window(7)}");
  EXPECT_EQ(pattern("~p.by_head{p.window(9), p.window(5)}"), "pattern by_head{~window(9), ~window(5)}");
  EXPECT_EQ(pattern("{[0] = p.by_head{p.window(9), p.sink(1)}, rest = p.window(3)}"),
            "pattern {0: by_head{window(9), sink(1)}, rest: window(3)}");
  const std::string with = "local p, w = sluice.pattern, sluice.window{last = 1} ";
  EXPECT_EQ(refusal(with + "return sluice.union(w, p.by_head{p.window(9), p.sink(1)})"),
            "union: what stands beside a selection is the same for every head");
  EXPECT_EQ(refusal(with + "return p.window(9):complement(p.window(2))"), "complement: got 2 arguments and wants at most 1");
  EXPECT_EQ(refusal(with + "return p.complement(p.window(9), 5)"), "complement: got 2 arguments and wants at most 1");
  EXPECT_EQ(refusal(with + "return p.rect{at = 0/0}"),
            "rect: at must be a whole number from -2^30 to 2^30 and is the number nan");
  EXPECT_EQ(refusal(with + "return p.rect{at = math.huge}"),
            "rect: at must be a whole number from -2^30 to 2^30 and is the number inf");
  EXPECT_EQ(refusal(with + "return p.by_head{}"), "by_head: patterns of no head");
  EXPECT_EQ(refusal(with + "return p.by_head(p.window(9))"), "by_head: wants a list of patterns and got a pattern");
  EXPECT_EQ(refusal(with + "return p.by_head{p.window(9), 4}"), "by_head: element 2 must be a pattern and is the number 4");
  EXPECT_EQ(refusal(with + "return p.by_head{a = p.window(9)}"), "by_head: wants a list, without names or gaps");
  EXPECT_EQ(refusal(with + "return p.by_head{p.by_head{p.window(9), p.sink(1)}}"),
            "by_head: element 1 is itself a list of patterns by head");
  EXPECT_EQ(refusal(with + "local t = {} for i = 1, 17 do t[i] = p.window(i) end return p.by_head(t)"),
            "by_head: patterns of 17 heads, at most 16 are told apart");
  const std::string heads =
      "local function heads(n) local t = {} for i = 1, n do t[i] = p.window(i) end return p.by_head(t) end ";
  EXPECT_EQ(refusal(with + heads + "return heads(3) | heads(7)"),
            "|: patterns of 3 heads and of 7 make 21 together, and at most 16 are told apart");
}

TEST(Language, StagesAreAssignedOutsideOfStages) {
  const auto refused = [](const std::string& line) {
    return message_of([&] {
      trace("local f = sluice.flow{name = 'f'} function f.index() " + line + " return sluice.window{last = 1} end return f",
            "f.lua");
    });
  };
  EXPECT_EQ(refused("f.index = function() end"), "flow.index is assigned at the top of the file, not inside a stage");
  EXPECT_EQ(refused("function f.cache(c) end"), "flow.cache is assigned at the top of the file, not inside a stage");
  EXPECT_EQ(refused("f.pattern = sluice.pattern.window(4)"),
            "flow.pattern is assigned at the top of the file, not inside a stage");
}

TEST(Language, AListOfPatternsIsNoTableByLayer) {
  const auto refused = [](const std::string& table) -> std::string {
    try {
      trace("local p = sluice.pattern local f = sluice.flow{name = 'f'} f.pattern = " + table + " return f", "f.lua");
      return "";
    } catch (const FlowError& error) {
      return error.message();
    }
  };
  EXPECT_EQ(refused("{p.window(4), p.window(8)}"), "flow.pattern is a list, which begins with layer 1 of layers 0 to 2");
  for (const char* table : {"{[0] = p.window(4), p.window(8)}", "{[1] = p.window(4), [3] = p.window(8)}", "{p.window(4)}",
                            "{p.window(4), p.window(8), rest = 'full'}", "{[1] = p.window(4), [-1] = p.window(8)}"})
    EXPECT_EQ(refused(table), "") << table;
}

TEST(Language, ErrorsThatAreNoTextsHaveALine) {
  const auto refused = [](const std::string& source) -> std::string {
    try {
      trace(source, "f.lua");
    } catch (const FlowError& error) {
      return std::to_string(error.where().line) + ": " + error.message();
    }
    return "accepted";
  };
  EXPECT_EQ(refused("local p = sluice.pattern\nerror(p.sink(1))"), "2: the script raised a sluice pattern as an error");
  EXPECT_EQ(refused("local p = sluice.pattern\n\nassert(false, {})"), "3: the script raised a table as an error");
  EXPECT_EQ(refused("local x = 1\nlocal y = " + std::string(300, '(') + "x" + std::string(300, ')')),
            "2: expressions are nested too deeply");
  EXPECT_EQ(refused("local x = 1\nlocal y = 2\nlocal z = " + std::string(300, '~') + "x"),
            "3: expressions are nested too deeply");
  EXPECT_EQ(refused("-- " + std::string(400, '-') + "\nlocal s = '" + std::string(400, '(') + "'\nlocal z = {\n" +
                    std::string(300, '{')),
            "4: expressions are nested too deeply");
  EXPECT_EQ(refused("local s = [[it's\n]]\nlocal z = " + std::string(300, '(')), "3: expressions are nested too deeply");
  EXPECT_EQ(refused("local f = sluice.flow{name = 'f'}\nfunction f.index()\n  error(sluice.random())\nend\nreturn f"),
            "3: the script raised a sluice value as an error");
  EXPECT_EQ(message_of([] { trace("error(tostring(sluice.pattern.sink(1)))", "f.lua"); }), "pattern");
}

TEST(Language, PatternsHaveReaders) {
  const auto refused = [](const std::string& body) { return message_of([&] { verify_readers(trace_index(body)); }); };
  EXPECT_EQ(refused("return sluice.union(sluice.window{last = 1}, ~sluice.pattern.causal())"),
            "no query sees any key under ~causal(), which stands beside the selection");
  EXPECT_EQ(refused("return ~sluice.pattern.causal()"), "no query sees any key under ~causal()");
}

TEST(Language, SizesOfPatternsAreNamed) {
  EXPECT_EQ(refusal("return sluice.pattern.window(-5)"), "window: the size must be from 1 to 2^30 and is -5");
  EXPECT_EQ(refusal("return sluice.pattern.strided(4, 0)"), "strided: the second number must be from 1 to 2^30 and is 0");
  EXPECT_EQ(refusal("return sluice.pattern.fixed(0)"), "fixed: the size must be from 1 to 2^30 and is 0");
  EXPECT_EQ(refusal("return sluice.pattern.dilated(0, 3)"), "dilated: the first number must be from 1 to 2^30 and is 0");
}

TEST(Language, FunctionsAndMethodsAreTheSame) {
  EXPECT_EQ(index_text("return sluice.topk(sluice.max(sluice.dot(q, c.k), 'head', 'token'), {k = 1})"),
            index_text("return q:dot(c.k):max('head', 'token'):topk{k = 1}"));
  EXPECT_EQ(index_text("return q:gemm(c.k, {axis = 'dim'}):max({axis = 'head'}, 'token'):topk{k = 1}"),
            index_text("return q:dot(c.k, 'dim'):max('head', 'token'):topk{k = 1}"));
}

TEST(Language, MinusMultipliesByMinusOne) {
  EXPECT_EQ(index_text("return (-sluice.position()):topk{k = 1}"), index_text("return (sluice.position() * -1):topk{k = 1}"));
}

TEST(Language, AddMulAddsFirst) {
  const std::string text = index_text("return sluice.position():add_mul(10, 20):topk{k = 1}");
  EXPECT_NE(text.find("%4 = add %1 %2 "), std::string::npos) << text;
  EXPECT_NE(text.find("%5 = mul %4 %3 "), std::string::npos) << text;
}

TEST(Language, ExtentsAreNumbers) {
  const std::string body =
      "assert(q:extent('head') == 4 and q:extent('dim') == 64 and c.k:extent('token') == 32 and sluice.page_size == 32)"
      " return sluice.window{last = 1}";
  EXPECT_EQ(refusal(body, ", page = 32"), "accepted");
}

TEST(Language, StatesLoadInEveryForm) {
  const std::string expected = index_text("c.s:save(c.s + 1) return sluice.topk(c.s * 2, {k = 1})", "c.s = sluice.cfill(3)");
  EXPECT_EQ(expected, index_text("sluice.save('s', sluice.load('s') + 1) return sluice.topk(c.s:load() * 2, {k = 1})",
                                 "c.s = sluice.cfill(3)"));
  EXPECT_EQ(expected, index_text("local s = sluice.load('s', {axes = {'page'}, init = 3}) sluice.save('s', s + 1) "
                                 "return sluice.topk(c.s * 2, {k = 1})"));
}

TEST(Language, SavingANewNameDeclaresIt) {
  const FlowGraph graph =
      trace_index("sluice.save('q', q) return sluice.topk(sluice.load('q'):dot(c.k):max('token', 'head'), {k = 1})");
  ASSERT_EQ(graph.states.size(), 1u);
  EXPECT_EQ(to_string(graph.states[0].shape), "[head 4, dim 64]");
  EXPECT_EQ(graph.states[0].initial, 0);
}

TEST(Language, CfillTakesFurtherAxes) {
  const FlowGraph graph = trace_index("c.s:save(c.s + c.m) return sluice.window{last = 1}", "",
                                      "c.m = c.k:max('token') c.s = sluice.cfill(-math.huge, {'dim'})");
  ASSERT_EQ(graph.states.size(), 1u);
  EXPECT_EQ(to_string(graph.states[0].shape), "[page B, dim 64]");
  EXPECT_EQ(graph.states[0].initial, -HUGE_VAL);
}

TEST(Language, FieldsHaveTheKvTypeUnlessGivenOne) {
  const FlowGraph graph = trace_index("return sluice.window{last = 1}", ", kv = 'e4m3', fields = {b = 'f32'}",
                                      "c.a, c.b = c.k:max('token'), c.k:min('token')");
  EXPECT_EQ(graph.geometry.kv, DataType::kE4M3);
  EXPECT_EQ(graph.find_field("a")->type, DataType::kE4M3);
  EXPECT_EQ(graph.find_field("b")->type, DataType::kF32);
}

TEST(Language, LayersAreChosenFromBothEnds) {
  const LayerChoice layers =
      trace_index("return sluice.window{last = 1}", ", layers = {[0] = 'full', [-1] = 'full', [3] = 'full'}").layers;
  for (int layer = 0; layer < 8; ++layer) EXPECT_EQ(layers.is_sparse(layer, 8), layer != 0 && layer != 3 && layer != 7) << layer;
  const LayerChoice few = trace_index("return sluice.window{last = 1}", ", layers = {[2] = 'sparse', rest = 'full'}").layers;
  for (int layer = 0; layer < 8; ++layer) EXPECT_EQ(few.is_sparse(layer, 8), layer == 2) << layer;
}

TEST(Language, LayersMustBeTheModels) {
  const auto traced = [](int layer, int layers) {
    TraceOptions options;
    options.layers = layers;
    return trace("return sluice.flow{name = 'x', layers = {[" + std::to_string(layer) + "] = 'full', rest = 'full'}}", "x.lua",
                 options);
  };
  for (const int layer : {0, 27, -1, -28}) EXPECT_NO_THROW(traced(layer, 28)) << layer;
  for (const int layer : {28, 99, -29}) EXPECT_THROW(traced(layer, 28), FlowError) << layer;
  EXPECT_NO_THROW(traced(99, 0));  // no model yet
}

TEST(Language, TokensAreReducedBeforePages) {
  EXPECT_EQ(refusal("return sluice.topk(sluice.position() + q:dot(c.k):mean('head', 'token', 'page'), {k = 1})"), "accepted");
  EXPECT_NE(refusal("return sluice.topk(sluice.position() + q:dot(c.k):mean('head', 'page', 'token'), {k = 1})"), "accepted");
  EXPECT_EQ(refusal("return sluice.topk(q:dot(c.k):mask_slice('page', 1):max('head', 'token'), {k = 1})"), "accepted");
}

TEST(Language, ThresholdKeepsTheNewestPageByDefault) {
  const FlowGraph graph = trace_index("return sluice.threshold(sluice.position(), {above = 3})");
  EXPECT_EQ(graph.nodes[static_cast<size_t>(graph.selection())].attributes.last, 1);
  EXPECT_NE(refusal("return sluice.threshold(sluice.position(), {above = 3, last = 0})"), "accepted");
  EXPECT_NE(refusal("return sluice.threshold(sluice.position(), {abov = 3})").find("no option is called \"abov\""),
            std::string::npos);
  EXPECT_NE(refusal("return sluice.topp(sluice.position(), {P = 0.5})").find("no option is called \"P\""), std::string::npos);
  EXPECT_EQ(refusal("return sluice.threshold(sluice.position(), {above = 3, first = 1})"), "accepted");
}

TEST(Language, ThresholdHasNoLimitUnlessGivenOne) {
  EXPECT_EQ(refusal("return sluice.threshold(sluice.position(), {above = 3, max = 8})"), "accepted");
  EXPECT_EQ(refusal("return sluice.threshold(sluice.position(), {above = 3, max = 0})"),
            "threshold: max = 0 leaves no page to attend to");
}

TEST(Language, NumbersThatAreTooLargeAreCalledSo) {
  EXPECT_EQ(refusal("return sluice.position():topk{k = 1e18}"), "topk: k = 1e+18 is too large");
  EXPECT_EQ(refusal("return sluice.position():topk{k = -1e18}"), "topk: k = -1e+18 is too small");
  EXPECT_EQ(refusal("return sluice.position():topk{k = 1e9}"), "topk: k = 1000000000 is too large; at most 16777216 pages");
  EXPECT_EQ(refusal("return sluice.position():topk{k = 1.5}"), "topk: k must be a whole number and is 1.5");
  EXPECT_EQ(refusal("return sluice.position():mask_slice('page', 1e18):topk{k = 1}"), "mask_slice: start = 1e+18 is too large");
}

TEST(Language, AStateThatIsSavedMustBeLoaded) {
  EXPECT_EQ(refusal("sluice.save('s', q) return sluice.window{last = 1}"),
            "state \"s\" is saved and never loaded, so it would change nothing");
  EXPECT_EQ(refusal("c.s:save(sluice.position()) return sluice.window{last = 1}", "", "c.s = sluice.cfill(0)"),
            "state \"s\" is saved and never loaded, so it would change nothing");
}

TEST(Language, LimitsHoldBeforeTheGraphGrows) {
  EXPECT_NE(refusal("local s = sluice.position() for i = 1, 5000 do s = s + i end return s:topk{k = 1}").find("4096"),
            std::string::npos);
  EXPECT_NE(
      refusal("return sluice.window{last = 1}", "", "for i = 1, 100 do c['f' .. i] = c.k:max('token') end").find("64 fields"),
      std::string::npos);
  EXPECT_NE(refusal("return q:dot(c.k):max('page')"), "accepted");
}

TEST(Language, RefusesOutOfRangeNumbers) {
  for (const std::string budget : {"k = -1", "k = 1.5", "k = 1e300", "k = 0/0", "ratio = -0.1", "ratio = 0/0", "k = 1 << 62",
                                   "first = 1e9", "k = 2147483647, first = 2147483647"}) {
    EXPECT_NE(refusal("return sluice.position():topk{" + budget + "}"), "accepted") << budget;
  }
  EXPECT_NE(refusal("return (sluice.position() * 1e300):topk{k = 1}"), "accepted");
  EXPECT_NE(refusal("return sluice.position():conv1d({1, 0/0, 1}):topk{k = 1}"), "accepted");
  EXPECT_EQ(refusal("return sluice.position():mask_slice('page', 1, -1, -math.huge):topk{k = 1}"), "accepted");
}

TEST(Language, AFlowOfFullLayersNeedsNoStage) {
  const FlowGraph graph = trace("return sluice.flow{name = 'dense', layers = {rest = 'full'}}", "x.lua");
  EXPECT_EQ(graph.selection(), kNoNode);
  EXPECT_TRUE(graph.nodes.empty());
}

TEST(Language, FaultsOfTheFlowAsAWholeNameItsDeclaration) {
  for (const std::string declaration : {"sluice.flow{name = 'a b', layers = {rest = 'full'}}",
                                        "sluice.flow{name = 'x', layers = {[99999] = 'full', rest = 'full'}}"}) {
    try {
      trace("-- one\n-- two\nreturn " + declaration, "x.lua");
      FAIL() << declaration << " was accepted";
    } catch (const FlowError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, 9), "x.lua:3: ");
    }
  }
}

TEST(Language, RefusesImpossibleHeads) {
  for (const auto& [head_dim, group] : {std::pair{0, 4}, {-5, 4}, {1 << 20, 4}, {64, 0}, {64, 65}}) {
    TraceOptions options;
    options.head_dim = head_dim;
    options.group = group;
    EXPECT_THROW(trace("return sluice.flow{name = 'x', layers = {rest = 'full'}}", "x.lua", options), InputError);
  }
}

TEST(Suggest, CountsASwapAsOneEdit) {
  EXPECT_EQ(closest("frist", {"k", "first", "last"}), "first");
  EXPECT_EQ(closest("cenrtoid", {"centroid"}), "centroid");
  EXPECT_EQ(closest("entirely", {"k", "first", "last"}), "");
  EXPECT_EQ(closest(std::string(100000, 'x'), {"k"}), "");
}

}  // namespace
}  // namespace sluice
