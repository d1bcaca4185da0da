// Attention to summaries of pages beside tokens, on a GPU, against the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "agents/evaluation/numerical.h"
#include "scripting/lua/trace.h"
#include "tests/cuda/gpu.h"
#include "tests/support/covers.h"
#include "tests/support/source_path.h"

namespace sluice::testing {
namespace {

constexpr uint64_t kCoversTogether = 10;

class CudaCovers : public GpuTest {};
class CudaRandomCovers : public GpuTest, public ::testing::WithParamInterface<uint64_t> {};

template <class... Values>
auto drawn_of(std::mt19937_64& random, Values... values) {
  const std::array all = {values...};
  return all[random() % all.size()];
}

/// Whether summaries have summaries, by a score `r` of pages and their products `d` with the query.
constexpr std::array kLevels = {
    "",
    "",
    "levels = 2, group = 3,",
    "levels = 2, group = 2, open = 'all',",
    "levels = 2, group = 1, open = 'none',",
    "levels = 2, group = 8, open = sluice.topk(r, {k = 6}),",
    "levels = 2, open = sluice.union(sluice.topk(d:max('head'), {k = 4}), sluice.window{first = 2}),"};

/// A cover that a seed draws, of heads that a GPU attends.
struct Drawn {
  std::string script;
  TraceOptions heads;

  explicit Drawn(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto one_of = [&](auto... values) { return drawn_of(random, values...); };
    heads.head_dim = one_of(64, 64, 128, 128, 256);
    heads.group = one_of(1, 2, 3, 4, 7, 8, 9, 16);
    const char* score = one_of("d:max('head')", "d:mean('head')", "(d * s):softmax('page'):mean('head')", "sluice.random()",
                               "(c.n * q:l2norm('dim'):max('head'))", "c.a:l2norm('dim')");
    const char* refine = one_of("sluice.topk(r, {k = 5, first = 1, last = 2})", "sluice.topk(r, {ratio = 0.3})", "'none'",
                                "'all'", "sluice.threshold(r, {above = r:mean('page')})",
                                "sluice.union(sluice.topk(r, {k = 2}), sluice.window{first = 2, last = 1})");
    const char* bias = one_of("", "bias = 'none',", "bias = c.n,", "bias = d * 0.25,", "bias = sluice.position() * 0.02,",
                              "bias = sluice.random(),");
    script = fmt::format(
        "local f = sluice.flow{{name='f', page={}, kv='{}'}} "
        "function f.cache(c) c.a = c.k:mean('token') c.b = c.v:mean('token') c.n = c.k:l2norm('dim'):mean('token') end "
        "function f.index(q, c) local s = 1 / math.sqrt(q:extent('dim')) local d = q:dot(c.a) local r = {} "
        "return sluice.cover{{refine = {}, k = c.a, v = c.b, mass = '{}', {} {} tail = {}}} end return f",
        one_of(8, 16, 32, 64, 128), one_of("bf16", "bf16", "e4m3", "e5m2"), score, refine, one_of("preserve", "renormalise"),
        bias, kLevels[random() % kLevels.size()], one_of(1, 20, 128));
  }
};

/// A cover whose summaries are states that the after stage saves, and a flow that looks at masses under it.
struct DrawnStates {
  std::string script;
  TraceOptions heads;

  explicit DrawnStates(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto one_of = [&](auto... values) { return drawn_of(random, values...); };
    heads.head_dim = one_of(64, 64, 128, 128, 256);
    heads.group = one_of(1, 2, 4, 5, 8, 9, 16);
    const std::string refine = one_of("sluice.topk(r, {k = 4, first = 1})", "sluice.topk(r, {ratio = 0.3, last = 1})", "'none'",
                                      "'all'", "sluice.topp(r:exp(), {p = 0.6})");
    const std::string weight =
        one_of("heavy:softmax('token')", "(heavy + 1e-6):normalize('token')", "heavy", "sluice.fill(0.1, {'token'})");
    // Summaries are there once pages leave the cover's tail, or before.
    const int cover_tail = one_of(1, 20, 40, 128);
    const std::string tail = one_of(std::string(), std::string(", {tail = 1}"), fmt::format(", {{tail = {}}}", cover_tail));
    const std::string key = random() % 4 == 0 ? "c.a" : "c.ks";  // a field, beside a state for values
    const std::string share = one_of("heavy:sum('token')", "heavy:sum('token'):softmax('page')", "l");
    script = fmt::format(
        "local f = sluice.flow{{name='f', page={}, kv='{}', prompt_mass={}}} "
        "function f.cache(c) c.a = c.k:mean('token') c.heavy = sluice.cfill(0, {{'token'}}) c.share = sluice.cfill(0) "
        "c.vs = sluice.cfill(0, {{'dim'}}) {} end "
        "function f.index(q, c) local d = q:dot({}) local r = d:max('head') + c.share "
        "return sluice.cover{{refine = {}, k = {}, v = c.vs, mass = '{}', bias = {}, {} tail = {}}} end "
        "function f.after(q, c, mass) local l, heavy = {}:l2norm('dim'), c.heavy * 0.75 + mass:sum('head') local w = {} "
        "c.heavy:save(heavy) c.share:save({}) {} c.vs:save((c.v * w):sum('token'){}) end return f",
        one_of(8, 16, 32, 64), one_of("bf16", "bf16", "e4m3", "e5m2"), one_of("'all'", "30", "'none'"),
        key == "c.ks" ? "c.ks = sluice.cfill(0, {'dim'})" : "", key, refine, key, one_of("preserve", "renormalise"),
        one_of("'count'", "'none'", "c.share", "d * 0.1"), kLevels[random() % kLevels.size()], cover_tail, key, weight, share,
        key == "c.ks" ? fmt::format("c.ks:save((c.k * w):sum('token'){})", tail) : "", tail);
  }
};

TEST_P(CudaRandomCovers, OfStatesAgreeWithTheReference) {
  const auto device = create_device("cuda");
  for (uint64_t seed = GetParam(); seed < GetParam() + kCoversTogether; ++seed) {
    const DrawnStates drawn(seed);
    const FlowGraph graph = trace(drawn.script, "f.lua", drawn.heads);
    EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt)
        << "seed " << seed << ", heads of " << drawn.heads.head_dim << ", group " << drawn.heads.group << ": " << drawn.script;
  }
}

TEST_F(CudaCovers, ShippedChoicesAgreeWithTheReference) {
  const auto device = create_device("cuda");
  for (const char* compressor : {"mean", "weighted", "softmax", "random"}) {
    for (const char* refined : {"0", "1/8", "1"}) {
      for (const auto& [values, bias, mass, group] : {std::tuple("own", "count", "preserve", "1"),
                                                      {"zero", "none", "renormalise", "1"},
                                                      {"own", "none", "preserve", "5"}}) {
        TraceOptions options;
        options.head_dim = 64;
        options.group = 4;
        options.parameters = {{"compressor", compressor},
                              {"refined", refined},
                              {"values", values},
                              {"bias", bias},
                              {"mass", mass},
                              {"group", group}};
        const FlowGraph graph = trace_file(source_path("scripting/flows/covers/luka_choices.lua"), options);
        EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt)
            << compressor << ", " << refined << ", " << values << ", " << bias << ", " << mass << ", " << group;
      }
    }
  }
}

TEST_P(CudaRandomCovers, AgreeWithTheReference) {
  const auto device = create_device("cuda");
  for (uint64_t seed = GetParam(); seed < GetParam() + kCoversTogether; ++seed) {
    const Drawn drawn(seed);
    const FlowGraph graph = trace(drawn.script, "f.lua", drawn.heads);
    EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt)
        << "seed " << seed << ": " << drawn.script;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CudaRandomCovers, ::testing::Range<uint64_t>(0, 200, kCoversTogether));

TEST_F(CudaCovers, GroupsOfEverySizeAgreeWithTheReference) { expect_groups_agree(*create_device("cuda")); }

TEST_F(CudaCovers, GroupsThatNobodyLooksAtAgreeWithTheReference) { expect_hidden_groups_agree(*create_device("cuda")); }

TEST_F(CudaCovers, AnotherCoverIsFound) { expect_other_covers_found(*create_device("cuda")); }

TEST_F(CudaCovers, ABiasMayBeAStateAsTheLastStepSavedIt) { expect_bias_as_loaded(*create_device("cuda")); }

// A GPU takes covers as sluice.cover makes them; what else a graph may ask for it refuses by name.
TEST_F(CudaCovers, WhatItHasNoKernelForIsRefused) {
  const auto device = create_device("cuda");
  const auto refused = [&](FlowGraph graph) -> std::string {
    try {
      device->compile(compile(std::move(graph)).plan, 2, 1);
      return "";
    } catch (const FlowError& error) {
      return error.what();
    }
  };
  FlowGraph wide = cover_flow("refine = 'none'");
  EXPECT_EQ(refused(wide), "");
  for (Field& field : wide.fields) field.type = DataType::kF32;
  EXPECT_NE(refused(wide).find("summaries as f32"), std::string::npos);
  FlowGraph chosen = cover_flow("refine = 'none'");
  chosen.sources[1].others = false;
  EXPECT_NE(refused(chosen).find("attends to the tokens of one selection's pages"), std::string::npos);
}

}  // namespace
}  // namespace sluice::testing
