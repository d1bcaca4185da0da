#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "agents/evaluation/trace_options.h"
#include "agents/repl/heat_map.h"
#include "agents/repl/session.h"
#include "agents/repl/value_text.h"
#include "host/serving/engine.h"
#include "scripting/base/error.h"
#include "scripting/graph/plan.h"
#include "scripting/lua/trace.h"
#include "tests/support/sanitized.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_directory.h"

namespace sluice::repl {
namespace {

const Style plain;

TEST(HeatMap, ShowsLeastAndLargest) {
  EXPECT_EQ(heat_map(std::vector<double>{0, 7, 3.5, NAN, HUGE_VAL, -HUGE_VAL}, plain), "     0 .@+?@.\n");
  EXPECT_EQ(heat_map(std::vector<double>{2, 2}, plain), "     0 ==\n");
  EXPECT_EQ(heat_map(std::vector<double>{NAN}, plain), "     0 ?\n");
  EXPECT_EQ(heat_map(std::vector<double>{-1e308, 1e308}, plain), "     0 .@\n");
}

TEST(HeatMap, WrapsAndJoinsPages) {
  const std::string wrapped = heat_map(std::vector<double>(65), plain);
  EXPECT_EQ(wrapped, "     0 " + std::string(64, '=') + "\n    64 =\n");
  std::vector<double> many(2000);
  many[1999] = 1;
  const std::string joined = heat_map(many, plain);
  EXPECT_NE(joined.find("a cell is the largest of 2 pages\n"), std::string::npos) << joined;
  EXPECT_NE(joined.find("@\n"), std::string::npos) << joined;
}

TEST(HeatMap, HasALineForEveryRow) {
  EXPECT_EQ(heat_map(std::vector<double>{0, 7, 7, 0, 0, 7}, 2, plain), "     0 .@.\n     1 @.@\n");
  const std::string joined = heat_map(std::vector<double>(64), 64, plain);
  EXPECT_NE(joined.find("a cell is the largest of 4 rows\n"), std::string::npos) << joined;
}

TEST(HeatMap, UsesBlocksAndColorsWhereTheTerminalHasThem) {
  EXPECT_EQ(heat_map(std::vector<double>{0, 7}, {true, false, 80}), "     0 ▁█\n");
  EXPECT_EQ(heat_map(std::vector<double>{7, 0}, {false, true, 80}), "     0 \x1b[38;5;196m@\x1b[0m\x1b[38;5;17m.\x1b[0m\n");
  EXPECT_EQ(page_strip(std::vector<int32_t>{0, 2}, 4, {true, false, 80}), "     0 █·█·\n");
  EXPECT_EQ(page_strip(std::vector<int32_t>{0, 16}, 17, {false, false, 23}), "     0 #...............\n    16 #\n");
}

TEST(ValueText, CountsWhatIsNoNumber) {
  const ShownTensor tensor{"f32", {{Axis::kDim, 6}}, {1, 3, NAN, HUGE_VAL, -HUGE_VAL, 5}, {true, true, true, true, true, false}};
  EXPECT_EQ(describe(tensor, plain),
            "f32 [dim 6]  min 1  mean 2  max 3  1 NaN  2 infinite  1 of tokens still to come\n  1 3 nan inf -inf -\n");
  EXPECT_EQ(describe({"f32", {}, {-0.0}, {true}}, plain), "f32 []  0\n");
  EXPECT_EQ(summary({"f32", {{Axis::kDim, 1}}, {NAN}, {true}}), "f32 [dim 1]  1 NaN\n");
}

/// The mini model with a short prompt; loaded once.
class ReplSession : public ::testing::Test {
 protected:
  static constexpr const char* kPrompt =
      "<bos> key apple = 01 02 03 04 ; also river = 07 anchor winter cloud ; key river = 11 12 13 14 ; also anchor = 21 22 "
      "winter "
      "cloud ; key winter = 31 32 33 34 ; ask apple =";

  static void SetUpTestSuite() {
    device = create_cpu_device({2, true});
    const std::string directory = testing::source_path("host/models/mini").string();
    tokenizer = load_tokenizer(directory);
    model = load_model(directory, *device);
  }
  static void TearDownTestSuite() {
    model.reset();
    tokenizer.reset();
    device.reset();
  }

  static Session session(SessionOptions options = {}) {
    if (options.prompt.empty()) options.prompt = kPrompt;
    return {*device, *model, *tokenizer, std::move(options)};
  }
  static std::vector<int32_t> prompt() { return tokenizer->encode(kPrompt); }
  static FlowGraph traced(const std::string& script) { return trace(script, "flow", trace_options(model->config())); }

  /// The message and hint of a refusal.
  static std::string refusal(Session& session, const std::string& input) {
    try {
      return "accepted: " + session.run(input);
    } catch (const InputError& error) {
      return std::string(error.what()) + " / " + error.hint();
    }
  }

  static inline std::unique_ptr<Device> device;
  static inline std::unique_ptr<Tokenizer> tokenizer;
  static inline std::unique_ptr<Model> model;
};

TEST_F(ReplSession, ShowsWhatTheReferenceComputesForTheSameFlow) {
  const Capture capture(*device, *model, prompt(), DataType::kBF16, [] {});
  const FlowGraph graph = traced(
      "local flow = sluice.flow{name = 'x', page = 8}\n"
      "function flow.cache(c) c.hi = c.k:max('token') c.lo = c.k:min('token') end\n"
      "function flow.index(q, c)\n"
      "  local s = (q * c.hi):maximum(q * c.lo):sum('dim'):max('head')\n"
      "  return sluice.topk(s, {k = 2, last = 1}) end\n"
      "return flow");
  SessionOptions options;
  options.place = {3, 1};
  Session typed = session(options);
  typed.run(":page 8");
  typed.run("c.hi = c.k:max('token')");
  typed.run("c.lo = c.k:min('token')");
  typed.run("s = (q * c.hi):maximum(q * c.lo):sum('dim'):max('head')");
  oracle::States none;
  const oracle::Result expected = oracle::run(graph, capture.row(3, 1), none);
  ShownTensor scores{"f32", {{Axis::kPage, expected.pages}}, {}, {}};
  for (const oracle::Bounded& score : expected.scores.at(0).values) scores.values.push_back(score.value);
  scores.exists.assign(scores.values.size(), true);
  EXPECT_EQ(typed.run("s"), describe(scores, plain));
  const std::string selected = typed.run("sluice.topk(s, {k = 2, last = 1})");
  EXPECT_NE(selected.find(page_strip(expected.selected, expected.pages, plain)), std::string::npos) << selected;
}

// Lines that name what attention gave, and those that follow from them, are of the after stage.
TEST_F(ReplSession, ShowsWhatAttentionGave) {
  Session typed = session();
  typed.run("c.heavy = sluice.cfill(0)");
  EXPECT_EQ(refusal(typed, "mass:sum('token', 'head')").substr(0, 40), "what attention gives follows from what t");
  typed.run("return sluice.topk(c.heavy, {k = 2, last = 1})");
  typed.run("given = mass:sum('token')");
  EXPECT_EQ(typed.run("given:sum('page'):min('head')"), "f32 []  1\n");
  EXPECT_EQ(typed.run("given:sum('page'):max('head')"), "f32 []  1\n");
  typed.run("c.heavy:save(c.heavy + given:sum('head'))");
  EXPECT_EQ(typed.run("c.heavy:sum('page')"), "f32 []  0\n");
  typed.run(":step");
  typed.run(":step");
  const std::string heads = std::to_string(model->config().group() * 2);
  EXPECT_EQ(typed.run("c.heavy:sum('page')"), "f32 []  " + heads + "\n");
  EXPECT_NE(typed.run(":flow").find("function flow.after(q, c, mass)"), std::string::npos);
}

TEST_F(ReplSession, StatesAreWhatTheStepsBeforeHaveSaved) {
  Session typed = session();
  typed.run("c.seen = sluice.cfill(1, {\"head\"})");
  typed.run("c.seen:save(c.seen * 2)");
  EXPECT_EQ(typed.run("c.seen:mean('head', 'page')"), "f32 []  1\n");
  typed.run(":step");
  typed.run(":step");
  // Four times after two steps, but for the page that is there for the first time.
  EXPECT_NE(typed.run("c.seen:max('head')").find("max 4\n"), std::string::npos);
}

/// What an engine reports for a flow that is sparse in one layer alone: that layer's queries are those of dense attention.
double engine_mass(Device& device, const Model& model, const std::vector<int32_t>& prompt, FlowGraph graph, int layer) {
  graph.layers.rest_sparse = false;
  graph.layers.sparse = {{layer, true}};
  const Plan plan = compile(std::move(graph)).plan;
  Engine engine(device, model, &plan, {.pages = 64, .max_batch = 1});
  Request request;
  request.prompt = prompt;
  request.max_tokens = 1;
  request.ignore_eos = true;
  request.probe_every = 1;
  engine.submit(std::move(request));
  return engine.run_all().at(0).mass.at(static_cast<size_t>(layer));
}

TEST_F(ReplSession, ReturnsNothingButSelections) {
  Session typed = session();
  typed.run(":load block_topk");
  const std::string before = typed.run(":flow");
  for (const std::string line : {"return 5", "return nil", "return", "return score", "return 'x'"}) {
    EXPECT_THROW(typed.run(line), FlowError) << line;
    EXPECT_EQ(typed.run(":flow"), before) << line;
  }
}

/// The share that `:mass` tells of a layer.
double told_mass(const std::string& text, int layer) {
  const size_t at = text.find("layer  " + std::to_string(layer) + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + 9));
}

TEST_F(ReplSession, MassIsThatOfTheEngine) {
  for (const std::string last :
       {"return sluice.topk(score, {k = 2})", "return sluice.union(sluice.topk(score, {k = 2}), sluice.pattern.window(21))"}) {
    Session typed = session();
    typed.run(":load block_topk");
    typed.run(last);
    const FlowGraph graph = traced(typed.run(":flow"));
    const std::string mass = typed.run(":mass");
    for (int layer = 0; layer < model->config().layers; ++layer)
      EXPECT_NEAR(told_mass(mass, layer), 100 * engine_mass(*device, *model, prompt(), graph, layer), 0.2)
          << last << " " << layer;
  }
}

TEST_F(ReplSession, MassUnderPatternsIsWhatTheirTokensHave) {
  struct Case {
    std::vector<std::string> inputs;
    bool (*sees)(int i, int j, int head);
  };
  const std::string declared = "local flow = sluice.flow { name = 'pattern' }";
  const std::vector<Case> cases = {
      {{"return sluice.pattern.sink(3) | sluice.pattern.window(7)"}, [](int i, int j, int) { return j < 3 || i - j < 7; }},
      {{declared, "flow.pattern = sluice.pattern.dilated(9, 5)"},
       [](int i, int j, int) { return i - j < 45 && (i - j) % 5 == 0; }},
      {{declared, "flow.pattern = sluice.pattern.by_head { sluice.pattern.window(20), sluice.pattern.sink(30) }"},
       [](int i, int j, int head) { return head % 2 == 0 ? i - j < 20 : j < 30; }},
  };
  Capture capture(*device, *model, prompt(), DataType::kBF16, [] {});
  for (const Case& each : cases) {
    Session typed = session();
    for (const std::string& input : each.inputs) typed.run(input);
    const std::string mass = typed.run(":mass");
    for (int layer = 0; layer < model->config().layers; ++layer) {
      double share = 0;
      for (int head = 0; head < model->config().kv_heads; ++head) {
        const std::vector<double> of_tokens = page_mass(capture.row(layer, head), 1);
        const auto last = static_cast<int>(of_tokens.size()) - 1;
        for (int j = 0; j <= last; ++j) share += each.sees(last, j, head) ? of_tokens[static_cast<size_t>(j)] : 0;
      }
      EXPECT_NEAR(told_mass(mass, layer), 100 * share / model->config().kv_heads, 0.06) << each.inputs.back() << " " << layer;
    }
  }
}

TEST_F(ReplSession, FlowsThatArePatternsAreTyped) {
  Session typed = session();
  typed.run("local p = sluice.pattern");
  typed.run("wide = p.window(40)");
  typed.run("flow.pattern = wide | p.sink(2)");
  EXPECT_NE(typed.run(":plan").find("42 tokens"), std::string::npos) << typed.run(":plan");
  typed.run("flow.pattern = p.sink(9)");
  EXPECT_NE(typed.run(":plan").find("9 tokens"), std::string::npos) << typed.run(":plan");
  EXPECT_EQ(typed.run(":flow").find("wide | p.sink(2)"), std::string::npos) << "it was replaced";
  EXPECT_NE(refusal(typed, "flow.pattern = 5").find("input 5:1"), std::string::npos);
  EXPECT_NE(refusal(typed, "return p.window(3)").find("flow.pattern is another"), std::string::npos);
  typed.run("flow.pattern = nil");
  typed.run("return p.window(3)");
  EXPECT_NE(refusal(typed, "flow.pattern = p.sink(9)").find("flow.pattern is another"), std::string::npos);
  typed.run("flow.pattern = nil");
  typed.run("return sluice.window { last = 1 }");
  // What stands in the stage and needs nothing of it goes along, and functions may name patterns.
  Session other = session();
  other.run("n = 40");
  other.run("local p = sluice.pattern");
  other.run("function mine(w) return p.window(w) end");
  other.run("flow.pattern = mine(n + 2)");
  EXPECT_NE(other.run(":plan").find("keeps 42 tokens"), std::string::npos) << other.run(":flow");
  // Those of a flow that was loaded are replaced, too.
  other.run(":load sink_window");
  other.run("flow.pattern = sluice.pattern.window(17)");
  EXPECT_NE(other.run(":plan").find("keeps 17 tokens"), std::string::npos) << other.run(":flow");
  // What joins patterns with something of the stage stands in the stage.
  typed.run("s = q:dot(c.k:mean('token')):mean('head')");
  EXPECT_NE(typed.run("return sluice.union(sluice.topk(s, {k = 2}), p.window(5))").find("pages"), std::string::npos);
  EXPECT_NE(typed.run(":flow").find("  return sluice.union"), std::string::npos);
}

TEST_F(ReplSession, PatternsAreNoOperators) {
  Session typed = session();
  for (const char* pattern : {"sluice.pattern.window(3)", "sluice.pattern.window(3) | sluice.pattern.sink(2)",
                              "sluice.pattern.by_head{sluice.pattern.window(3), sluice.pattern.sink(4)}"})
    EXPECT_NE(refusal(typed, std::string(":graph ") + pattern).find("no tensor and no selection"), std::string::npos) << pattern;
  typed.run("s = q:dot(c.k:mean('token')):mean('head')");
  const std::string graph = typed.run(":graph sluice.union(sluice.topk(s, {k = 2}), sluice.pattern.window(5))");
  EXPECT_NE(graph.find("window(5)"), std::string::npos) << graph;
}

TEST_F(ReplSession, ASelectionIsShownWithThePatternBesideOrAroundIt) {
  Session typed = session();
  typed.run("s = q:dot(c.k:mean('token')):mean('head')");
  const std::string all = typed.run("return sluice.union(sluice.topk(s, {k = 1}), sluice.pattern.causal())");
  EXPECT_NE(all.find("with the pattern beside them"), std::string::npos) << all;
  EXPECT_NE(all.find("100.0% of the dense attention mass"), std::string::npos) << all;
  Session around = session();
  around.run("flow.pattern = sluice.pattern.window(1)");
  const std::string one = around.run("return sluice.window{first = 64}");
  EXPECT_NE(one.find("with the pattern around them 1 of "), std::string::npos) << one;
}

TEST_F(ReplSession, ValuesThatWereLookedAtAreNoIndexStageOfAPattern) {
  Session typed = session();
  typed.run("s = q:sum('dim')");
  typed.run("flow.pattern = sluice.pattern.window(4)");
  EXPECT_NE(typed.run(":mass").find("layer"), std::string::npos);
  typed.run("return sluice.topk(q:dot(c.k:mean('token')):mean('head'), {k = 2})");
  EXPECT_NE(typed.run(":flow").find("s = q:sum('dim')"), std::string::npos);
}

TEST_F(ReplSession, PatternsAreShownAndKept) {
  Session typed = session();
  EXPECT_EQ(typed.run("p = sluice.pattern.sink(3) | sluice.pattern.window(7)"), "p = a pattern: sink(3) | window(7)\n");
  EXPECT_NE(typed.run("return p").find("a pattern: "), std::string::npos);
  EXPECT_NE(refusal(typed, "return q").find("no selection of pages"), std::string::npos);
  EXPECT_NE(typed.run(":flow").find("return p\n"), std::string::npos);
  EXPECT_NE(typed.run(":plan").find("pattern"), std::string::npos);
  for (const char* name : {"pattern.strided", "strided", "sluice.pattern.strided"})
    EXPECT_NE(typed.run(std::string(":help ") + name).find("sluice.pattern.strided(w, s)"), std::string::npos) << name;
  EXPECT_NE(typed.run(":help window").find("first"), std::string::npos) << "the operator has the shorter name";
  EXPECT_NE(typed.run(":help window").find("see also: sluice.pattern.window(w)"), std::string::npos);
  EXPECT_NE(typed.run(":help pattern").find("sluice.pattern.fixed(b)"), std::string::npos);
  EXPECT_NE(typed.run(":help").find(" pattern.window"), std::string::npos);
  EXPECT_NE(refusal(typed, ":help pattern.strides").find("pattern.strided"), std::string::npos);
}

TEST_F(ReplSession, FollowsTheModelsOwnTokens) {
  Engine engine(*device, *model, nullptr, {.pages = 64, .max_batch = 1});
  Request request;
  request.prompt = prompt();
  request.max_tokens = 3;
  request.ignore_eos = true;
  engine.submit(std::move(request));
  const std::vector<int32_t> generated = engine.run_all().at(0).tokens;
  Capture capture(*device, *model, prompt(), DataType::kBF16, [] {});
  for (const int32_t token : generated) EXPECT_EQ(capture.step(), token);
  EXPECT_EQ(capture.tokens(), static_cast<int>(prompt().size() + generated.size()));
}

TEST_F(ReplSession, RefusalsChangeNothing) {
  Session typed = session();
  typed.run("s = q:max('dim')");
  const std::string before = typed.run(":flow");
  EXPECT_EQ(refusal(typed, "t = s:max('dim')"),
            "input 2:1: max: got [head 4], which has no axis \"dim\" / its axes are \"head\"");
  EXPECT_NE(refusal(typed, "c.s = q"), "");
  EXPECT_NE(refusal(typed, "local flow = sluice.flow { name = 'bad name!' }").find("input 4:1"), std::string::npos);
  EXPECT_NE(refusal(typed, ":load no_such_flow").find("no_such_flow"), std::string::npos);
  EXPECT_NE(refusal(typed, ":load -").find("the session itself"), std::string::npos);
  EXPECT_NE(refusal(typed, ":load luka_mixed").find("several programs"), std::string::npos);
  EXPECT_NE(typed.run("q:mean('dim')").find("[head"), std::string::npos) << "the session is as it was";
  EXPECT_NE(refusal(typed, ":page 3").find("page = 3"), std::string::npos);
  EXPECT_NE(refusal(typed, ":layer 8").find("0 to 7"), std::string::npos);
  EXPECT_NE(refusal(typed, ":head one").find("no whole number"), std::string::npos);
  EXPECT_NE(refusal(typed, ":hepl").find("\":help\""), std::string::npos);
  EXPECT_NE(refusal(typed, ":mass").find("selects pages, has a pattern, or says who leaves"), std::string::npos);
  EXPECT_NE(refusal(typed, ":shape s = 1").find("an expression is wanted"), std::string::npos);
  EXPECT_EQ(typed.run(":flow"), before);
  EXPECT_EQ(typed.run(":shape s"), "[head 4]\n");
}

TEST_F(ReplSession, RefusesWhoLeavesWhereItIsTyped) {
  Session typed = session();
  typed.run("heavy = mass:sum('head')");
  const std::string before = typed.run(":flow");
  const std::pair<const char*, const char*> wrong[] = {
      {"sluice.evict(heavy, {budget = 4, first = 4, recent = 4})", "no room for first = 4 and recent = 4"},
      {"heavy:evict({budget = 8, chunk = 64})", "a chunk of 64 rows"},
      {"sluice.evict(heavy, {budget = 8, keep = sluice.pattern.window(9)})", "the budget is 8"},
  };
  for (const auto& [line, why] : wrong) {
    EXPECT_NE(refusal(typed, line).find(why), std::string::npos) << line << "\n" << refusal(typed, line);
    EXPECT_EQ(typed.run(":flow"), before) << line;
  }
  typed.run("c.weight = sluice.cfill(0)");
  typed.run("c.weight:save(c.weight + heavy:mean('token'))");
  EXPECT_NE(refusal(typed, "sluice.evict(heavy, {budget = 64})").find("kept by page"), std::string::npos);
  typed.run(":reset");
  typed.run("heavy = mass:sum('head')");
  typed.run("sluice.evict(heavy, {budget = 64})");
  EXPECT_NE(refusal(typed, "flow.pattern = sluice.pattern.window(512)").find("evict"), std::string::npos);
}

TEST_F(ReplSession, AFlowThatForgetsIsWholeWithoutASelection) {
  Session typed = session();
  typed.run("c.heavy = sluice.cfill(0, {'token'})");
  typed.run("q:mean('dim')");  // a value that somebody looks at
  typed.run("looked = q:mean('dim')");
  typed.run("heavy = c.heavy + mass:sum('head')");
  typed.run("c.heavy:save(heavy)");
  EXPECT_NE(refusal(typed, "mass:sum('head')").find("selects nothing yet"), std::string::npos);
  typed.run("sluice.evict(heavy, {budget = 64, recent = 16})");
  const std::string masses = typed.run("mass:sum('head')");
  EXPECT_NE(masses.find("page"), std::string::npos) << masses;
  EXPECT_NE(masses.find("as if no token had left"), std::string::npos) << masses;
  EXPECT_NE(typed.run("c.heavy:load()").find("as if no token had left"), std::string::npos);
  EXPECT_NE(typed.run(":plan").find("evict by"), std::string::npos);
  for (const char* command : {":mass", ":time"})
    EXPECT_NE(refusal(typed, command).find("input 7:1: flow \"repl\" evicts tokens"), std::string::npos)
        << refusal(typed, command);
  const testing::TemporaryDirectory folder;
  const std::string path = folder.file("mine.lua");
  EXPECT_NE(typed.run(":save " + path).find("without lines whose values nothing returns"), std::string::npos);
  EXPECT_TRUE(trace_file(path, trace_options(model->config())).eviction);
  for (const char* shipped : {"h2o_tokens", "tova", "snapkv"}) {
    typed.run(std::string(":load ") + shipped);
    EXPECT_NE(typed.run(":plan").find("evict by"), std::string::npos) << shipped;
  }
}

TEST_F(ReplSession, LinesStandWhereTheFlowWantsThem) {
  const auto typed = [&](std::initializer_list<const char*> lines) {
    auto written = std::make_unique<Session>(session());
    for (const char* line : lines) written->run(line);
    return written;
  };
  const auto is_flow = [&](Session& written) {
    try {
      written.run(":plan");
      const std::string flow = written.run(":flow");
      return traced(flow).name == "repl";
    } catch (const InputError& error) {
      ADD_FAILURE() << error.what() << "\n" << written.run(":flow");
      return false;
    }
  };
  // A state that is saved twice is refused, and nothing else is.
  const auto twice =
      typed({"sluice.evict(mass:sum('head'), {budget = 300})", "c.t = sluice.cfill(0, {'token'})", "c.t:save(c.t + 1)"});
  EXPECT_NE(refusal(*twice, "c.t:save(c.t + mass:sum('head'))").find("saved already"), std::string::npos);
  EXPECT_EQ(twice->run("5"), "5\n");
  EXPECT_TRUE(is_flow(*twice));
  const auto under = typed({"flow.pattern = sluice.pattern.window(100)", "c.h = sluice.cfill(0, {'dim'})", "c.h:save(c.h + 1)"});
  EXPECT_NE(refusal(*under, "c.h:save(c.h + 2)").find("saved already"), std::string::npos);
  EXPECT_EQ(under->run("5"), "5\n");
  // Who leaves need not follow from masses, and may be told before or after what it needs.
  EXPECT_TRUE(is_flow(*typed({"sluice.evict(c.k:l2norm('dim'), {budget = 300})"})));
  EXPECT_TRUE(is_flow(
      *typed({"d = c.k:l2norm('dim')", "e = d * 2", "q:mean('dim')", "sluice.evict(e + mass:sum('head'), {budget = 300})"})));
  EXPECT_TRUE(is_flow(
      *typed({"c.age = sluice.cfill(0, {'token'})", "age = c.age - 1", "c.age:save(age)", "sluice.evict(age, {budget = 300})"})));
  EXPECT_TRUE(is_flow(
      *typed({"c.age = sluice.cfill(0, {'token'})", "sluice.evict(c.age:load(), {budget = 300})", "c.age:save(c.age - 1)"})));
  // A summary behind a tail is made once attention has run.
  EXPECT_TRUE(is_flow(
      *typed({"c.ks = c.k:mean('token')", "c.vs = sluice.cfill(0, {'dim'})",
              "return sluice.cover{refine = 'none', k = c.ks, v = c.vs}", "c.vs:save(c.v:mean('token'), {tail = 128})"})));
  // Selections beside what leaves keep their states where they are.
  EXPECT_TRUE(is_flow(*typed({"c.heat = sluice.cfill(0, {'token'})", "heat = c.heat + 1", "c.heat:save(heat)",
                              "return sluice.topk_tokens(heat, {k = 64})", "sluice.evict(mass:sum('head'), {budget = 300})"})));
}

TEST_F(ReplSession, ALineThatSaysWhoLeavesTakesThePlaceOfTheOneBefore) {
  Session typed = session();
  typed.run("sluice.evict(mass:sum('head'), {budget = 300})");
  EXPECT_NE(refusal(typed, "sluice.evict(mass:sum('head'), {budget = 10, first = 5, recent = 6})").find("no room for first = 5"),
            std::string::npos);
  typed.run("sluice.evict(mass:max('head'), {budget = 200})");
  const std::string flow = typed.run(":flow");
  EXPECT_EQ(flow.find("300"), std::string::npos) << flow;
  EXPECT_NE(flow.find("200"), std::string::npos) << flow;
  EXPECT_NE(refusal(typed, "return sluice.pattern.window(9)").find("evict"), std::string::npos);
  EXPECT_EQ(typed.run(":flow"), flow);
}

TEST_F(ReplSession, NamesBelongToTheStageThatDefinedThemLast) {
  Session typed = session();
  typed.run("x = mass:sum('head')");
  typed.run("s = q:dot(c.k:mean('token')):max('head')");
  EXPECT_NE(refusal(typed, "return x").find("follows attention"), std::string::npos);
  typed.run("x = sluice.topk(s, {k = 3})");
  EXPECT_NE(typed.run("return x").find("3 of"), std::string::npos);
  typed.run(":load h2o_tokens");
  EXPECT_NE(typed.run("heavy").find("as if no token had left"), std::string::npos) << "names of a function that was loaded";
}

TEST_F(ReplSession, RefusesATailThatCoversLeaveUncovered) {
  Session typed = session();
  typed.run("c.ks = c.k:mean('token')");
  typed.run("c.vs = sluice.cfill(0, {'dim'})");
  typed.run("c.vs:save(c.v:mean('token'), {tail = 64})");
  EXPECT_NE(refusal(typed, "return sluice.cover{refine = 'none', k = c.ks, v = c.vs, tail = 16}").find("tail of 5 pages"),
            std::string::npos);
  typed.run("return sluice.cover{refine = 'none', k = c.ks, v = c.vs, tail = 64}");
  const std::string help = typed.run(":help");
  for (const char* name : {" cover", " evict", " cfill", " variant", " mass"})
    EXPECT_NE(help.find(name), std::string::npos) << name;
  EXPECT_NE(typed.run(":help mass").find("[page, token, head]"), std::string::npos);
}

TEST_F(ReplSession, SaysWhatIsWrongWithWhatItSaves) {
  Session typed = session();
  const testing::TemporaryDirectory folder;
  const std::string save = ":save " + folder.file("mine.lua");
  EXPECT_NE(typed.run(save).find("it selects no pages yet"), std::string::npos);
  typed.run("c.credit = sluice.cfill(0)");
  typed.run("return sluice.topk(c.credit:load(), {k = 2})");
  EXPECT_NE(typed.run(save).find("it is no flow yet: input 1:1: state \"credit\" is never saved"), std::string::npos)
      << typed.run(save);
  typed.run("c.credit:save(c.credit + q:dot(c.k:mean('token')):max('head'))");
  EXPECT_EQ(typed.run(save).find("no flow yet"), std::string::npos) << typed.run(save);
}

TEST_F(ReplSession, EndsWhatIsTooMuch) {
  SessionOptions options;
  options.seconds = test::kLooksForRaces ? 2 : 0.2;  // more than all instructions take
  options.prompt = kPrompt;
  for (int i = 0; i < 200; ++i) options.prompt += " anchor winter cloud";
  Session typed = session(options);
  EXPECT_NE(refusal(typed, "while true do end").find("too many instructions"), std::string::npos);
  EXPECT_NE(refusal(typed, "string.rep('x', 1e9)").find("1 MiB"), std::string::npos);
  typed.run("y = q * c.k");
  typed.run("taps = {} for i = 1, 129 do taps[i] = 1 end");
  const std::string slow = refusal(typed, "y:conv1d(taps, 'dim'):conv1d(taps, 'dim'):conv1d(taps, 'dim'):conv1d(taps, 'dim')");
  EXPECT_NE(slow.find(fmt::format("{} s", options.seconds)), std::string::npos) << slow;
  typed.run("z = sluice.fill(1, {'page', {'sub', 4096}}) * sluice.position()");
  typed.run("for i = 1, 400 do z = (z * 2):softmax('page') end");  // each is kept for all pages
  EXPECT_NE(refusal(typed, "z * 3").find("MiB, and may take 512 MiB"), std::string::npos);
  EXPECT_EQ(typed.run("1 + 1"), "2\n");
}

TEST_F(ReplSession, TellsANameThatNothingHasFromOneWithoutValue) {
  Session typed = session();
  typed.run("score = q:max('head')");
  typed.run("empty = nil");
  EXPECT_EQ(refusal(typed, "scroe"), "input 3:1: nothing has the name \"scroe\" / did you mean \"score\"?");
  EXPECT_EQ(refusal(typed, "topk -- the best"), "input 4:1: nothing has the name \"topk\" / did you mean \"sluice.topk\"?");
  EXPECT_EQ(refusal(typed, "unlike_any"), "input 5:1: nothing has the name \"unlike_any\" / ");
  EXPECT_EQ(refusal(typed, "scroe -- (of a page)"), "input 6:1: nothing has the name \"scroe\" / did you mean \"score\"?");
  EXPECT_EQ(typed.run("empty"), "nothing\n");
  typed.run("first, second = nil, 1");
  EXPECT_EQ(typed.run("first"), "nothing\n");
  EXPECT_EQ(typed.run("second"), "1\n");
  EXPECT_EQ(typed.run("nil"), "nothing\n");
}

TEST_F(ReplSession, CanBeInterrupted) {
  bool interrupted = false;
  SessionOptions options;
  options.interrupted = [&] { return interrupted; };
  Session typed = session(options);
  interrupted = true;
  EXPECT_THROW(typed.run("q * c.k"), Interrupted);
  EXPECT_THROW(typed.run("kept = q * c.k"), Interrupted);
  interrupted = false;
  EXPECT_NE(refusal(typed, "kept").find("nothing"), std::string::npos);
  EXPECT_EQ(typed.run("1 + 1"), "2\n");
}

TEST_F(ReplSession, TimesTheFlowBesideDenseAttention) {
  Session typed = session();
  typed.run("return sluice.topk(sluice.position(), {k = 2})");
  const std::string times = typed.run(":time");
  for (const char* row : {"dense attention", "the flow", "its attention", "its index stage"}) {
    EXPECT_NE(times.find(row), std::string::npos) << times;
  }
  EXPECT_NE(times.find("us  2 pages"), std::string::npos) << times;
}

}  // namespace
}  // namespace sluice::repl
