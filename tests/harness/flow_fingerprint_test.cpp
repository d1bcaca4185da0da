// Which scripts are one flow.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "agents/evaluation/trace_options.h"
#include "agents/harness/flow_inspector.h"
#include "host/transformer/model.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/recompute.h"
#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/trace.h"
#include "scripting/passes/canonical.h"
#include "tests/scripting/flow_files.h"
#include "tests/support/random_flow.h"

namespace sluice {
namespace {

constexpr int kLayers = 8;

std::string print_of(const FlowGraph& graph, const std::string& device = "cpu") {
  return flow_fingerprint({{graph, {.layers = kLayers}}}, device);
}
/// Those that ship, and others.
std::vector<std::filesystem::path> all_flows(const std::vector<const char*>& folders = {"scripting/flows", "tests/flows/okay"}) {
  std::vector<std::filesystem::path> paths;
  for (const char* folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::source_path(folder))) {
      if (entry.path().extension() == ".lua") paths.push_back(entry.path());
    }
  }
  EXPECT_GT(paths.size(), 20U);
  return paths;
}

std::string print_of(const std::string& script) { return print_of(trace(script, "x.lua")); }

constexpr const char* kFlow = R"lua(
  local flow = sluice.flow{name = "one", layers = {[0] = "full", rest = "sparse"}}
  function flow.cache(c)
    c.kmax = c.k:max("token")
    c.kmin = c.k:min("token")
  end
  function flow.index(q, c)
    local high = (q * c.kmax):sum("dim")
    local low = (q * c.kmin):sum("dim")
    local score = high:maximum(low):max("head")
    return sluice.topk(score, {ratio = 0.1, first = 1, last = 2})
  end
  return flow
)lua";

TEST(FlowFingerprint, IsThatOfWhatIsComputed) {
  const std::string same[] = {// A comment, blanks and other names of variables, of the flow and of fields.
                              R"lua(-- the same once more
        local f = sluice.flow{name = "another", layers = {[0] = "full", rest = "sparse"}}
        function f.cache(page) page.top = page.k:max("token") page.bottom = page.k:min("token") end
        function f.index(query, cache)
          local a = (query * cache.top):sum("dim")
          local b = (query * cache.bottom):sum("dim")
          return sluice.topk(a:maximum(b):max("head"), {ratio = 0.1, first = 1, last = 2})
        end
        return f)lua",
                              // Another order of statements, of what is cached, too; and what nothing reads.
                              R"lua(
        local flow = sluice.flow{name = "one", layers = {[0] = "full", rest = "sparse"}}
        function flow.cache(c)
          c.mean = c.k:mean("token")
          c.kmin = c.k:min("token")
          c.kmax = c.k:max("token")
        end
        function flow.index(q, c)
          local low = (q * c.kmin):sum("dim")
          local unused = (q * c.mean):sum("dim")
          local high = (q * c.kmax):sum("dim")
          return sluice.topk(high:maximum(low):max("head"), {ratio = 0.1, first = 1, last = 2})
        end
        return flow)lua",
                              // The same said twice, numbers that are computed, and what changes nothing.
                              R"lua(
        local flow = sluice.flow{name = "one", layers = {[0] = "full", rest = "sparse"}}
        function flow.cache(c)
          c.kmax = c.k:max("token")
          c.kmin = c.k:min("token") * 1
        end
        function flow.index(q, c)
          local function product(field) return (q * field):sum("dim") end
          local score = product(c.kmax):maximum(product(c.kmin)):max("head")
          local again = product(c.kmax):maximum(product(c.kmin)):max("head")
          return sluice.topk(score:maximum(again), {ratio = 1 / 10, first = 3 - 2, last = 2})
        end
        return flow)lua"};
  const std::string first = print_of(kFlow);
  EXPECT_EQ(first.size(), 32U);
  for (const std::string& script : same) EXPECT_EQ(print_of(script), first) << script;
}

TEST(FlowFingerprint, TellsWhatComputesSomethingElse) {
  const std::string flow = kFlow;
  const auto changed = [&](const std::string& from, const std::string& to) {
    const size_t place = flow.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    std::string other = flow;
    return print_of(other.replace(place, from.size(), to));
  };
  std::map<std::string, std::string> known = {{print_of(flow), "itself"}};
  const std::pair<const char*, const char*> changes[] = {{"0.1", "0.11"},
                                                         {"first = 1", "first = 2"},
                                                         {"last = 2", "last = 1"},
                                                         {"[0] = \"full\"", "[1] = \"full\""},
                                                         {"layers = ", "page = 32, layers = "},
                                                         {"c.k:min", "c.k:mean"},
                                                         {"c.k:min", "c.v:min"},
                                                         {":max(\"head\")", ":mean(\"head\")"},
                                                         {":maximum(", ":minimum("},
                                                         {"high:maximum(low)", "(high + low)"},
                                                         {"topk(score, {", "approx_topk(score, {tolerate = 0.1, "}};
  for (const auto& [from, to] : changes) {
    const std::string print = changed(from, to);
    EXPECT_TRUE(known.emplace(print, to).second) << to << " is taken for " << known[print];
  }
}

TEST(FlowFingerprint, DoesNotGoByNamesOfFieldsAndStates) {
  for (const auto& path : all_flows()) {
    const FlowGraph graph = testing::trace_by_name(path);
    FlowGraph renamed = graph;
    renamed.name = "another";
    const auto rename = [](FlowGraph& all) {
      const auto other = [&](std::string& name) {
        if (all.find_field(name) != nullptr || all.find_state(name) != nullptr) name += "_of_another";
      };
      for (Node& node : all.nodes) other(node.attributes.field);
      for (AttentionSource& source : all.sources) {
        other(source.keys);
        other(source.values);
      }
      if (all.eviction) other(all.eviction->score);
      for (Field& field : all.fields) field.name += "_of_another";
      for (State& state : all.states) state.name += "_of_another";
    };
    for (FlowGraph& variant : renamed.variants) rename(variant);
    rename(renamed);
    EXPECT_EQ(print_of(renamed), print_of(graph)) << path;
  }
}

TEST(FlowFingerprint, DoesNotGoByHowLayersAreNamed) {
  const auto script = [](const std::string& layers) {
    return "local flow = sluice.flow{name = 'x', layers = {" + layers + "}}\nfunction flow.index(q, c)\n" +
           "return sluice.topk(sluice.position(), {k = 4, first = 1, last = 1})\nend\nreturn flow\n";
  };
  const std::string one = print_of(script("[0] = 'full', rest = 'sparse'"));
  EXPECT_EQ(print_of(script("[0] = 'full', [3] = 'sparse', [-1] = 'sparse', rest = 'sparse'")), one);
  EXPECT_EQ(print_of(script("[-8] = 'full', rest = 'sparse'")), one);
  EXPECT_NE(print_of(script("[-1] = 'full', rest = 'sparse'")), one);
  EXPECT_NE(print_of(script("rest = 'sparse'")), one);
}

TEST(FlowFingerprint, WaysToFindATopKAreOneOnACpuAlone) {
  const auto graph = [](const std::string& method) {
    return trace(
        "local flow = sluice.flow{name = 'x'}\nfunction flow.index(q, c)\nreturn sluice.topk(sluice.position(), {k = 4, "
        "first = 1, last = 1, method = '" +
            method + "'})\nend\nreturn flow\n",
        "x.lua");
  };
  EXPECT_EQ(print_of(graph("radix")), print_of(graph("gvr")));
  EXPECT_NE(print_of(graph("radix"), "cuda"), print_of(graph("gvr"), "cuda"));
}

TEST(FlowFingerprint, VariantsMayBeWrittenInAnyOrder) {
  for (const auto& path : all_flows()) {
    const FlowGraph graph = testing::trace_by_name(path);
    if (graph.variants.empty()) continue;
    FlowGraph other = graph.variants.back();  // comes first
    other.recompute = graph.recompute;
    other.name = graph.name;
    other.variants = {graph};
    other.variants[0].variants.clear();
    other.variants[0].recompute = nullptr;
    other.variants.insert(other.variants.end(), graph.variants.begin(), graph.variants.end() - 1);
    EXPECT_EQ(print_of(other), print_of(graph)) << path;
  }
}

/// A judge traces a script for the model, and for the shape of a trace: where that is another flow, it is another one for the
/// judge.
TEST(FlowFingerprint, IsOfAllShapesByWhichAFlowIsJudged) {
  FlowInspector inspector(SLUICE_SOURCE_DIR "/host/models/mini", "cpu");
  const auto script = [](const std::string& more) {
    return FlowScript{"x.lua", "local flow = sluice.flow{name = 'x'}\nfunction flow.index(q, c)\nlocal s = sluice.position()\n" +
                                   more + "\nreturn sluice.topk(s, {k = 4, first = 1, last = 1})\nend\nreturn flow\n"};
  };
  const std::string plain = inspector.inspect(script("")).fingerprint;
  EXPECT_EQ(inspector.inspect(script("-- nothing")).fingerprint, plain);
  EXPECT_EQ(inspector.inspect(script("if q:extent('head') == 77 then s = s * -1 end")).fingerprint, plain);
  EXPECT_NE(inspector.inspect(script("if q:extent('head') == 3 then s = s * -1 end")).fingerprint, plain);
  EXPECT_NE(inspector.inspect(script("if q:extent('head') == 3 then error('boo') end")).fingerprint, plain);
}

TEST(FlowFingerprint, ShippedFlowsAreAllDifferent) {
  const TraceOptions options = trace_options(load_config(SLUICE_SOURCE_DIR "/host/models/mini"));
  std::map<std::string, std::string> known;
  for (const auto& path : all_flows({"scripting/flows"})) {
    if (path.stem() == "heavy_patterns") continue;  // with the values that its parameters have by themselves it is sink_window
    FlowGraph graph;
    try {
      graph = testing::trace_by_name(path, options);
    } catch (const InputError&) {  // it names layers that the mini does not have
      continue;
    }
    const auto [found, is_new] = known.emplace(print_of(graph), path.stem().string());
    EXPECT_TRUE(is_new) << path << " and " << found->second;
  }
}

/// Changes of one part of a graph each, as far as it has that part: what a device, an engine or a cache goes by.
std::vector<std::pair<std::string, FlowGraph>> changes_of(const FlowGraph& graph) {
  std::vector<std::pair<std::string, FlowGraph>> changes;
  const auto add = [&](const std::string& what, const std::function<void(FlowGraph&)>& change) {
    change(changes.emplace_back(what, graph).second);
  };
  add("page", [](FlowGraph& all) { all.geometry.page *= 2; });
  add("kv", [](FlowGraph& all) { all.geometry.kv = all.geometry.kv == DataType::kE5M2 ? DataType::kE4M3 : DataType::kE5M2; });
  add("layer", [](FlowGraph& all) { all.layers.sparse[3] = !all.layers.is_sparse(3, kLayers); });
  add("mass rows", [](FlowGraph& all) { all.mass_rows = 17; });
  if (!graph.patterns.empty()) {
    add("dense prefill", [](FlowGraph& all) { all.patterns.dense_prefill = !all.patterns.dense_prefill; });
    if (graph.layers.is_sparse(3, kLayers)) {
      add("layer with a pattern", [](FlowGraph& all) {
        all.patterns.layers[3] = all.patterns.place_of(3, kLayers) == LayerPatterns::kNone ? 0 : LayerPatterns::kNone;
      });
    }
  }
  for (size_t i = 0; i < graph.fields.size(); ++i) {
    add("type of a field",
        [i](FlowGraph& all) { all.fields[i].type = all.fields[i].type == DataType::kF32 ? DataType::kBF16 : DataType::kF32; });
  }
  for (size_t i = 0; i < graph.states.size(); ++i)
    add("initial", [i](FlowGraph& all) { all.states[i].initial = all.states[i].initial == 0.25 ? 0.5 : 0.25; });
  for (size_t i = 0; i < graph.sources.size(); ++i) {
    add("others", [i](FlowGraph& all) { all.sources[i].others = !all.sources[i].others; });
    add("shares", [i](FlowGraph& all) { all.sources[i].shares = !all.sources[i].shares; });
    add("group", [i](FlowGraph& all) { all.sources[i].group_pages += 1; });
    if (graph.sources[i].bias != kNoNode) add("bias", [i](FlowGraph& all) { all.sources[i].bias = kNoNode; });
    if (graph.sources[i].beside) add("beside", [i](FlowGraph& all) { all.sources[i].beside.reset(); });
  }
  if (graph.eviction) {
    add("budget", [](FlowGraph& all) { all.eviction->budget += 1; });
    add("first", [](FlowGraph& all) { all.eviction->first += 1; });
    add("recent", [](FlowGraph& all) { all.eviction->recent += 1; });
    add("chunk", [](FlowGraph& all) { all.eviction->chunk += 64; });
    if (graph.eviction->keep) add("keep", [](FlowGraph& all) { all.eviction->keep.reset(); });
    add("no eviction", [](FlowGraph& all) { all.eviction.reset(); });
  }
  for (size_t i = 0; i < graph.variants.size(); ++i) {
    add("variant", [i](FlowGraph& all) { all.variants.erase(all.variants.begin() + static_cast<ptrdiff_t>(i)); });
    add("page of a variant", [i](FlowGraph& all) { all.variants[i].geometry.page *= 2; });
  }
  if (graph.recompute != nullptr) {
    const auto of_rule = [&](const std::string& what, const std::function<void(Recompute&)>& change) {
      add(what, [&](FlowGraph& all) {
        Recompute rule = *all.recompute;
        change(rule);
        all.recompute = std::make_shared<const Recompute>(std::move(rule));
      });
    };
    of_rule("layer of the rule", [](Recompute& rule) { rule.layer += 1; });
    of_rule("rows of the rule", [](Recompute& rule) { rule.rows = 5; });
    add("no rule", [](FlowGraph& all) { all.recompute = nullptr; });
  }
  return changes;
}

TEST(FlowFingerprint, ShippedFlowsDifferByEveryPartThatCounts) {
  std::map<std::string, int> changed;
  for (const auto& path : all_flows()) {
    const FlowGraph graph = canonical_form(testing::trace_by_name(path), kLayers);  // nothing in it is unused
    const std::string print = print_of(graph);
    for (const auto& [what, other] : changes_of(graph)) {
      EXPECT_NE(print_of(other), print) << path << ": " << what;
      ++changed[what];
    }
  }
  for (const char* what : {"bias", "budget", "keep", "variant", "rows of the rule", "type of a field", "initial", "shares"}) {
    EXPECT_GT(changed[what], 0) << what;
  }
}

TEST(FlowFingerprint, IsThatOfOnePlan) {
  const auto plan_text = [](const std::string& script) {
    std::string text = to_text(compile(trace(script, "x.lua")).plan);
    return std::regex_replace(text, std::regex("one|another"), "");
  };
  // Merging makes both maxima one, by which both products are one with two readers: none of them is contracted.
  const auto script = [](const std::string& first, const std::string& second) {
    return "local flow = sluice.flow{name = 'one'}\nfunction flow.cache(c) c.x = c.k:max('token') c.y = c.k:min('token') end\n"
           "function flow.index(q, c)\nlocal a, b = c.x:maximum(c.y), c.x:maximum(c.y)\n" +
           first + "\n" + second +
           "\nreturn sluice.topk((p:sum('dim') + r:max('dim')):max('head'), {k = 4, first = 1, last = 1})\nend\nreturn flow\n";
  };
  const std::string one = script("local p = a:maximum(b) * q", "local r = a * q");
  const std::string other = script("local p = a * q", "local r = p");
  ASSERT_EQ(print_of(one), print_of(other));
  EXPECT_EQ(plan_text(one), plan_text(other));
}

/// A change of one number or operand of a random flow makes it another one, unless nothing reads it.
TEST(FlowFingerprint, RandomFlowsDifferByEveryNumberThatIsRead) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const FlowGraph graph = testing::random_flow(seed);
    const FlowGraph form = canonical_form(graph, kLayers);
    verify(form);
    EXPECT_EQ(print_of(form), print_of(graph)) << "seed " << seed << ": a form is its own form";
    std::mt19937_64 random(seed);
    FlowGraph other = form;
    Node& node = other.nodes[random() % other.nodes.size()];
    Attributes& attributes = node.attributes;
    if (is_selection(node.op) && node.op != Op::kUnion) {
      attributes.first += 1;
    } else if (node.op == Op::kConstant || node.op == Op::kFill) {
      attributes.value += 0.5;
    } else {
      continue;
    }
    ++changed;
    EXPECT_NE(print_of(other), print_of(graph)) << "seed " << seed;
  }
  EXPECT_GT(changed, 50);
}

}  // namespace
}  // namespace sluice
