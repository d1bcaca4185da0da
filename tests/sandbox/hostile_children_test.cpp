// Children that a script has taken over, or that fail: whatever they send and however they end, it is an error with a reason.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "sandbox/process/child_process.h"
#include "sandbox/wire/graph_wire.h"
#include "tests/sandbox/sandbox_limits.h"
#include "tests/support/temporary_directory.h"

namespace sluice::test {
namespace {

/// A child that sends `sent` and then runs a line of shell.
class FakeChild {
 public:
  explicit FakeChild(const std::string& sent, const std::string& then = {}) {
    const std::string path = directory_.file("sent");
    std::ofstream(path, std::ios::binary) << sent;
    limits_ = limits_with({"/bin/sh", "-c", "cat '" + path + "'; " + then, "child"});
  }

  SandboxLimits& limits() { return limits_; }
  std::string refusal() const { return test::refusal(kGoodFlow, limits_); }

 private:
  testing::TemporaryDirectory directory_;
  SandboxLimits limits_;
};

std::string greeting() { return encode(Greeting{{true, 1}, {}}); }
std::string graph_answer(const FlowGraph& graph) { return greeting() + encode(TraceAnswer(graph)); }
FlowGraph good_graph() { return trace(kGoodFlow, "x.lua"); }

void expect_contains(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

TEST(HostileChildren, WhoAnswersProperlyIsBelieved) {
  FakeChild child(graph_answer(good_graph()));
  EXPECT_EQ(trace_sandboxed("", "x.lua", {}, child.limits()).name, "good");
}

TEST(HostileChildren, NothingSentIsNotTheScriptsFault) {
  FakeChild silent("", "exit 0");
  EXPECT_THROW(trace_sandboxed("", "x.lua", {}, silent.limits()), InternalError);
  FakeChild garbage("Usage: cat [FILE]", "");
  EXPECT_THROW(trace_sandboxed("", "x.lua", {}, garbage.limits()), InternalError);
  FakeChild failed(encode(Greeting{{}, "seccomp: the filter is refused"}));
  try {
    trace_sandboxed("", "x.lua", {}, failed.limits());
    FAIL() << "accepted";
  } catch (const InternalError& error) {
    expect_contains(error.what(), "the filter is refused");
  }
  FakeChild open(encode(Greeting{{false, 7}, {}}));
  EXPECT_THROW(trace_sandboxed("", "x.lua", {}, open.limits()), InternalError);
  EXPECT_THROW(trace_sandboxed("", "x.lua", {}, limits_with({"/nonexistent/sluice"})), InternalError);
}

TEST(HostileChildren, NoAnswer) {
  expect_contains(FakeChild(greeting()).refusal(), "without an answer");
  expect_contains(FakeChild(greeting(), "exit 3").refusal(), "without an answer");
  expect_contains(FakeChild(graph_answer(good_graph()), "exit 3").refusal(), "without an answer");
}

TEST(HostileChildren, Garbage) {
  expect_contains(FakeChild(greeting() + "garbage").refusal(), "something else than a graph");
  expect_contains(FakeChild(greeting() + std::string(1, '\0')).refusal(), "something else than a graph");
  expect_contains(FakeChild(graph_answer(good_graph()) + "x").refusal(), "something else than a graph");
}

TEST(HostileChildren, HalfAMessage) {
  const std::string whole = graph_answer(good_graph());
  for (const size_t length : {greeting().size() + 1, greeting().size() + 10, whole.size() - 1}) {
    expect_contains(FakeChild(whole.substr(0, length)).refusal(), "something else than a graph");
  }
}

TEST(HostileChildren, EndlessStream) {
  expect_contains(FakeChild(greeting(), "exec cat /dev/zero").refusal(), "more than 8388608 bytes");
}

TEST(HostileChildren, NeitherAnswerNorEnd) {
  FakeChild sleeping(greeting(), "sleep 100");
  sleeping.limits().seconds = 0.3;
  expect_contains(sleeping.refusal(), "killed after 0.3 s");
  FakeChild dripping(greeting(), "while :; do printf x; sleep 0.05; done");
  dripping.limits().seconds = 0.3;
  expect_contains(dripping.refusal(), "killed after 0.3 s");
  FakeChild stubborn(greeting(), "trap '' TERM INT HUP; while :; do :; done");
  stubborn.limits().seconds = 0.3;
  expect_contains(stubborn.refusal(), "killed after 0.3 s");
}

TEST(HostileChildren, ClosedOutputButNoEnd) {
  FakeChild child(graph_answer(good_graph()), "exec >&-; sleep 100");
  expect_contains(child.refusal(), "killed");
}

/// False for one that is gone, or dead and not yet reaped by whoever inherited it.
bool is_alive(const std::string& process) {
  std::ifstream stat("/proc/" + process + "/stat");
  std::string name;
  std::string state = "X";
  stat >> name >> name >> state;
  return state != "X" && state != "Z";
}

TEST(HostileChildren, DescendantsDieToo) {
  // It ends at once and leaves one behind, whose number it reports as its answer.
  FakeChild child(greeting(), "sleep 100 >/dev/null & printf '@%s@' $!");
  const ChildOutcome outcome = run_child({child.limits().command, "", 10, 10, 1000});
  const size_t begin = outcome.output.find('@') + 1;
  const std::string process = outcome.output.substr(begin, outcome.output.rfind('@') - begin);
  ASSERT_FALSE(process.empty());
  for (int i = 0; i < 100 && is_alive(process); ++i) usleep(20000);  // signals are not delivered at once
  EXPECT_FALSE(is_alive(process)) << process;
}

TEST(HostileChildren, Crashes) {
  expect_contains(FakeChild(greeting(), "kill -SEGV $$").refusal(), "crashed the process that traced it (signal 11)");
  expect_contains(FakeChild(greeting(), "kill -ABRT $$").refusal(), "signal 6");
  expect_contains(FakeChild(greeting(), "kill -SYS $$").refusal(), "what no flow may do");
  expect_contains(FakeChild(greeting(), "kill -XCPU $$").refusal(), "processor time");
  FakeChild killed(greeting(), "kill -KILL $$");  // the machine's doing, not the script's
  EXPECT_THROW(trace_sandboxed("", "x.lua", {}, killed.limits()), InternalError);
  expect_contains(FakeChild(graph_answer(good_graph()), "kill -SEGV $$").refusal(), "signal 11");
}

TEST(HostileChildren, ForgedGraphs) {
  const std::pair<const char*, std::function<void(FlowGraph&)>> forgeries[] = {
      {"something else than a graph", [](FlowGraph& g) { g.nodes[1].inputs[0] = 1000; }},
      {"something else than a graph", [](FlowGraph& g) { g.attend_to(1000); }},
      {"something else than a graph", [](FlowGraph& g) { g.nodes[0].op = static_cast<Op>(99); }},
      {"computes", [](FlowGraph& g) { g.nodes[1].shape[0].extent = 7; }},
      {"computes", [](FlowGraph& g) { g.nodes[0].stage = Stage::kIndex; }},
      {"not a selection", [](FlowGraph& g) { g.attend_to(0); }},
      {"field", [](FlowGraph& g) { g.fields.clear(); }},
      {"other heads", [](FlowGraph& g) { g = trace(kGoodFlow, "x.lua", {.head_dim = 32}); }},
  };
  for (const auto& [part, forge] : forgeries) {
    FlowGraph graph = good_graph();
    forge(graph);
    expect_contains(FakeChild(graph_answer(graph)).refusal(), part);
  }
}

TEST(HostileChildren, GraphsForLayersThatTheModelLacks) {
  FlowGraph graph = good_graph();
  graph.layers.sparse[20] = false;
  FakeChild child(graph_answer(graph));
  expect_contains(refusal("", child.limits(), {.layers = 8}), "no layer 20");
}

TEST(ChildProcess, GetsItsWholeInput) {
  const std::string input(3 << 20, 'x');
  const ChildOutcome outcome = run_child({{"/bin/cat"}, input, 10, 10, size_t{4} << 20});
  EXPECT_EQ(outcome.output, input);
}

TEST(ChildProcess, ThatIsNotItsParentsTracesNothing) {
  TraceRequest script;
  script.source = kGoodFlow;
  const std::string request = encode(script);
  const ChildOutcome orphan = run_child({{SLUICE_PROGRAM, "__trace_sandboxed", "1", "268435456", "2"}, request, 10, 10, 1000});
  EXPECT_EQ(orphan.output, "");
  const ChildOutcome by_hand = run_child({{SLUICE_PROGRAM, "__trace_sandboxed"}, request, 10, 10, 1000});
  std::string_view said = by_hand.output;
  expect_contains(take_greeting(said).problem, "wrong arguments");
  EXPECT_EQ(said, "");
}

TEST(ChildProcess, IsKilledIfItNeverStarts) {
  const ChildOutcome outcome = run_child({{"/bin/sleep", "100"}, "", 0.2, 10, 100});
  EXPECT_EQ(outcome.end, ChildOutcome::End::kOutOfTime);
  EXPECT_TRUE(WIFSIGNALED(outcome.status));
}

}  // namespace
}  // namespace sluice::test
