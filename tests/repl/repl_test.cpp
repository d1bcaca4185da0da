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
  request.want_probe = true;
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

TEST_F(ReplSession, MassIsThatOfTheEngine) {
  Session typed = session();
  typed.run(":load block_topk");
  typed.run("return sluice.topk(score, {k = 2})");
  const FlowGraph graph = traced(typed.run(":flow"));
  const std::string mass = typed.run(":mass");
  for (int layer = 0; layer < model->config().layers; ++layer) {
    const size_t at = mass.find("layer  " + std::to_string(layer) + " ");
    ASSERT_NE(at, std::string::npos) << mass;
    EXPECT_NEAR(std::stod(mass.substr(at + 9)), 100 * engine_mass(*device, *model, prompt(), graph, layer), 0.2) << layer;
  }
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
  EXPECT_NE(refusal(typed, ":page 3").find("page = 3"), std::string::npos);
  EXPECT_NE(refusal(typed, ":layer 8").find("0 to 7"), std::string::npos);
  EXPECT_NE(refusal(typed, ":head one").find("no whole number"), std::string::npos);
  EXPECT_NE(refusal(typed, ":hepl").find("\":help\""), std::string::npos);
  EXPECT_NE(refusal(typed, ":mass").find("selects pages"), std::string::npos);
  EXPECT_NE(refusal(typed, ":shape s = 1").find("an expression is wanted"), std::string::npos);
  EXPECT_EQ(typed.run(":flow"), before);
  EXPECT_EQ(typed.run(":shape s"), "[head 4]\n");
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
