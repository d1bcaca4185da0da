// What attention gives tokens on the CPU, in decode steps and summed over prompts, against the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/reference/judge.h"
#include "tests/kernels/mass_run.h"

namespace sluice {
namespace {

using testing::MassRun;

struct Told {
  std::string selection;
  std::string options = "";
  std::string after = "sluice.save('given', mass)";
  std::string state = "sluice.load('given', {axes = {'page', 'token', 'head'}})";
  int group = 4;
  int dim = 64;
};

/// A flow that keeps what attention gives, and selects by something else.
FlowGraph flow_of(const Told& told) {
  const std::string script = fmt::format(
      "local p = sluice.pattern\nlocal flow = sluice.flow{{name = 'x'{}}}\n"
      "function flow.cache(c) c.a = c.k:mean('token') c.b = c.v:mean('token') end\n"
      "function flow.index(q, c)\n"
      "  local kept = {}\n  local zero = 0 * {}\n  local s = q:dot(c.a):max('head') + zero\n  return {}\nend\n"
      "function flow.after(q, c, mass) {} end\nreturn flow",
      told.options, told.state, told.state.find("page") == std::string::npos ? "kept:sum('head')" : "kept:sum('token', 'head')",
      told.selection, told.after);
  return trace(script, "x.lua", {.head_dim = told.dim, .group = told.group});
}

void expect_kept(MassRun& run, const std::string& name, int tokens) {
  for (int head = 0; head < MassRun::kHeads; ++head) {
    const std::vector<float> kept = run.kept(name, head, tokens);
    const oracle::Tensor& expected = run.expected(name, head);
    ASSERT_GT(kept.size(), 0U) << "no step reads the state";
    ASSERT_EQ(kept.size(), expected.values.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      ASSERT_FALSE(oracle::is_unknown(expected.values[i]));
      ASSERT_LT(expected.values[i].error, 1e-3 * (1 + expected.values[i].value));
      ASSERT_TRUE(oracle::agrees(kept[i], expected.values[i]))
          << "head " << head << ", " << i << ": " << kept[i] << ", not " << expected.values[i].value;
    }
  }
}

/// Sums over pages and tokens, by head.
std::vector<double> sums_of(const std::vector<float>& masses, int group) {
  std::vector<double> sums(static_cast<size_t>(group));
  for (size_t i = 0; i < masses.size(); ++i) sums[i % sums.size()] += masses[i];
  return sums;
}

constexpr const char* kSelections[] = {
    "sluice.topk(s, {k = 1000})",
    "sluice.topk(s, {k = 3, last = 1})",
    "sluice.union(sluice.topk(s, {k = 2}), sluice.window{first = 1, last = 2})",
    "sluice.threshold(s, {above = s:mean('page'), last = 1})",
    "sluice.union(sluice.topk(s, {k = 2}), p.window(21))",
    "sluice.union(sluice.topk(s, {k = 1}), p.strided(3, 7))",
};

TEST(CpuMasses, OfAStepAreTheWeightsOfItsTokens) {
  const auto device = create_cpu_device({2});
  for (const char* selection : kSelections) {
    for (const auto& [group, options] : {std::pair{4, ""}, {3, ", kv = 'f32'"}, {16, ", page = 8"}, {1, ", page = 32"}}) {
      SCOPED_TRACE(fmt::format("{}, {} heads{}", selection, group, options));
      const FlowGraph graph =
          flow_of({.selection = selection, .options = std::string(options) + ", prompt_mass = 'none'", .group = group});
      constexpr int kTokens = 171;
      MassRun run(*device, graph, kTokens);
      run.prefill(kTokens - 3, std::vector{64});
      for (int at = kTokens - 3; at < kTokens; ++at) {
        run.decode(at, at % 2 == 0);
        expect_kept(run, "given", at + 1);
        for (const double sum : sums_of(run.kept("given", 1, at + 1), group)) EXPECT_NEAR(sum, 1, 1e-5);
      }
    }
  }
}

TEST(CpuMasses, OfManyTokensAreThoseOfAllPieces) {
  const auto device = create_cpu_device({2});
  for (const char* selection : {"sluice.topk(s, {k = 1000})", "sluice.topk(s, {k = 150})"}) {
    MassRun run(*device, flow_of({.selection = selection, .options = ", prompt_mass = 'none'"}), 3001);
    run.prefill(3000, std::vector{512});
    run.decode(3000);
    expect_kept(run, "given", 3001);
  }
}

TEST(CpuMasses, UnderACoverAreTheWeightsInTheOutput) {
  const auto device = create_cpu_device({2});
  for (const char* refine : {"'none'", "'all'", "sluice.topk(s, {k = 3})"}) {
    for (const char* mass : {"preserve", "renormalise"}) {
      SCOPED_TRACE(fmt::format("{} {}", refine, mass));
      const std::string cover =
          fmt::format("sluice.cover{{k = c.a, v = c.b, refine = {}, mass = '{}', tail = 20, bias = zero + 2.5}}", refine, mass);
      MassRun run(*device, flow_of({.selection = cover, .options = ", prompt_mass = 'none'"}), 171);
      run.prefill(169, std::vector{100});
      for (int at = 169; at < 171; ++at) {
        run.decode(at, true);
        expect_kept(run, "given", at + 1);
        for (const double sum : sums_of(run.kept("given", 0, at + 1), 4)) EXPECT_LE(sum, 1 + 1e-5);
      }
    }
  }
}

TEST(CpuMasses, OfAPromptAreSummedOverItsRows) {
  const auto device = create_cpu_device({2});
  for (const auto& [rows, counted] : {std::pair{"'all'", 200}, {"64", 64}, {"1", 1}, {"5000", 200}}) {
    for (const auto& [group, options] : {std::pair{4, ""}, {5, ", kv = 'f32', page = 8"}}) {
      SCOPED_TRACE(fmt::format("{} rows, {} heads", rows, group));
      MassRun run(*device,
                  flow_of({.selection = "sluice.topk(s, {k = 3, last = 1})",
                           .options = fmt::format(", prompt_mass = {}{}", rows, options),
                           .group = group}),
                  203);
      run.prefill(200, std::vector{90});
      expect_kept(run, "given", 200);
      for (const double sum : sums_of(run.kept("given", 0, 200), group)) EXPECT_NEAR(sum, counted, 1e-3);
      run.decode(200);
      expect_kept(run, "given", 201);
    }
  }
}

TEST(CpuMasses, OfAPromptWithoutRowsThatCountAreNone) {
  const auto device = create_cpu_device({1});
  MassRun run(*device, flow_of({.selection = "sluice.topk(s, {k = 2})", .options = ", prompt_mass = 'none'"}), 50);
  run.prefill(40, std::vector{40});
  EXPECT_EQ(run.kept("given", 0, 40), std::vector<float>(3 * 16 * 4));
  EXPECT_TRUE(run.expected("given", 0).values.empty());
}

TEST(CpuMasses, OfAPromptDependNeitherOnChunksNorCompanionsNorThreads) {
  for (const char* rows : {"'all'", "70"}) {
    std::vector<float> first;
    for (const int threads : {1, 3}) {
      const auto device = create_cpu_device({threads});
      for (const std::vector<int>& chunks : {std::vector{300}, {1, 130, 7}, {64}, {33, 1, 1}}) {
        for (const bool companion : {false, true}) {
          MassRun run(*device,
                      flow_of({.selection = "sluice.topk(s, {k = 3, last = 1})",
                               .options = fmt::format(", prompt_mass = {}", rows),
                               .after = "sluice.save('given', mass + sluice.load('given'))"}),
                      303);
          run.prefill(300, chunks, companion);
          run.decode(300, companion);
          run.decode(301, companion);
          const std::vector<float> kept = run.kept("given", 1, 302);
          if (first.empty()) first = kept;
          ASSERT_EQ(kept.size(), first.size());
          EXPECT_EQ(std::memcmp(kept.data(), first.data(), kept.size() * sizeof(float)), 0)
              << rows << ", chunks of " << chunks[0] << ", " << threads << " threads, companion " << companion;
        }
      }
    }
  }
}

// What a step saves in either stage both load in the next step, and not before; nor does one stage change what the other saves.
TEST(CpuMasses, BothStagesLoadWhatTheLastStepLeft) {
  const FlowGraph graph = trace(R"(
    local flow = sluice.flow{name = "x", page = 16, prompt_mass = "none"}
    function flow.cache(c) c.mine = sluice.cfill(1) c.after = sluice.cfill(10) c.seen = sluice.cfill(0) c.swap = sluice.cfill(5) end
    function flow.index(q, c)
      c.mine:save(c.mine + 1)
      c.swap:save(c.after)
      return sluice.topk(c.mine + c.after + c.seen + c.swap, {k = 99})
    end
    function flow.after(q, c, mass)
      c.after:save(c.swap + c.mine * 10)
      c.seen:save(c.mine)
    end
    return flow)",
                                "x.lua");
  const auto device = create_cpu_device({1});
  MassRun run(*device, graph, 40);
  run.prefill(30, std::vector{30});
  for (int at = 30; at < 40; ++at) {
    run.decode(at);
    for (const char* name : {"mine", "after", "seen", "swap"}) expect_kept(run, name, at + 1);
  }
  EXPECT_EQ(run.kept("mine", 0, 40).front(), 11);
  EXPECT_EQ(run.kept("seen", 0, 40).front(), 10);
}

// States have no pages there: what is kept tells by weights which page had which sum.
TEST(CpuMasses, OfAPromptUnderAPatternAreThoseOfThePagesShown) {
  const auto device = create_cpu_device({2});
  struct Case {
    const char* text;
    Pattern pattern;
  };
  for (const Case& each : {Case{"p.window(40)", Pattern::window(40)},
                           {"p.sink(3) | p.window(20)", Pattern::sink(3) | Pattern::window(20)},
                           {"p.strided(5, 32)", Pattern::strided(5, 32)}}) {
    SCOPED_TRACE(each.text);
    Told told{.selection = "sluice.topk(s, {k = 3, last = 1})",
              .after = "sluice.save('given', (mass:sum('token') * (sluice.position() + 1)):sum('page'))",
              .state = "sluice.load('given', {axes = {'head'}})"};
    FlowGraph graph = flow_of(told);
    graph.patterns.rest = graph.patterns.add(HeadPatterns(each.pattern));
    constexpr int kRows = 150;
    std::vector<int32_t> shown;
    for (int page = 0; page * 16 < kRows; ++page) {
      bool is_seen = page == (kRows - 1) / 16;
      for (int token = page * 16; token < std::min(kRows, (page + 1) * 16); ++token)
        is_seen = is_seen || each.pattern.sees(kRows - 1, token);
      if (is_seen) shown.push_back(page);
    }
    EXPECT_LT(shown.size(), 10U);
    for (const std::vector<int>& chunks : {std::vector{150}, {47, 1}}) {
      MassRun run(*device, graph, kRows + 1);
      run.set_pattern(each.pattern, shown);
      run.prefill(kRows, chunks);
      expect_kept(run, "given", kRows);
    }
  }
}

}  // namespace
}  // namespace sluice
