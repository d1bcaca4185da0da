#include "tests/evaluation/graph_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "agents/evaluation/numerical.h"
#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/codegen/refusal.h"
#include "kernels/device/plan_report.h"
#include "sandbox/wire/graph_wire.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;

Workload workload_on(const std::string& device) {
  return {.model = "any",
          .layers = 4,
          .kv_heads = 2,
          .tokens = 8192,
          .batch = 8,
          .device = device,
          .bandwidth = usual_bandwidth(device)};
}

/// Numbers that the reference computes for a case of the judge, about.
double judged_numbers(const FlowGraph& graph) {
  double numbers = 0;
  int64_t pages = 150;
  for (const Node& node : graph.nodes) {
    numbers += static_cast<double>(elements_per_page(node.shape)) *
               static_cast<double>(std::max<size_t>(1, node.attributes.kernel.size()));
    const Attributes& a = node.attributes;
    pages = std::max<int64_t>(pages, std::min<int64_t>(1 << 15, 2 * (int64_t{a.k} + a.first + a.last + a.max_pages)) + 3);
  }
  return numbers * static_cast<double>(pages);
}

/// Runs stages until one throws.
class Stages {
 public:
  explicit Stages(const TrialOptions& options) : options_(options) {}

  /// `run` returns the bytes that it wrote.
  template <class Run>
  bool run(const std::string& name, const Run& run) {
    if (options_.begin) options_.begin(name);
    TrialStage stage{name};
    const Clock::time_point start = Clock::now();
    try {
      stage.bytes = run();
    } catch (const InputError& error) {
      trial.refused = fmt::format("{}: {}", name, error.what());
    } catch (const std::exception& error) {
      trial.fault = fmt::format("{}: {}", name, error.what());
    }
    stage.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    trial.stages.push_back(std::move(stage));
    return trial.refused.empty() && trial.fault.empty();
  }

  Trial trial;

 private:
  const TrialOptions& options_;
};

}  // namespace

size_t most_source_bytes(size_t nodes) { return (size_t{512} << 10) + nodes * 5'120; }

Trial try_graph(const FlowGraph& graph, const TrialOptions& options) {
  Stages stages(options);
  FlowGraph traced;
  Compilation compilation;
  const auto refusals = [&](const auto& run) {
    return [&] {
      try {
        return run();
      } catch (const FlowError& error) {
        throw std::runtime_error(fmt::format("refused although the check accepted it: {}", error.what()));
      }
    };
  };
  const bool compiled = stages.run("wire", refusals([&] {
                                     const std::string bytes = encode_graph(graph);
                                     traced = decode_graph(bytes, "built");
                                     verify(traced);
                                     return bytes.size();
                                   })) &&
                        stages.run("check", [&] {
                          compilation = compile(traced);
                          return to_text(compilation.plan).size();
                        });
  if (!compiled) return std::move(stages.trial);
  const auto plan_on = [&](const char* device) {
    return stages.run(fmt::format("plan {}", device),
                      refusals([&] { return plan_report(compilation, workload_on(device)).text.size(); }));
  };
  const auto source = [&] {
    if (cuda::codegen::refusal_of_attention(compilation.plan)) return size_t{0};
    const cuda::codegen::GeneratedSource written = generate(cuda::codegen::FlowLayout(compilation.plan));
    const size_t most = std::max({written.text.size(), written.small_row_text.size(), written.attending_text.size(),
                                  written.cluster_attending_text.size()});
    const size_t nodes = compilation.plan.graph.nodes.size();
    if (most > most_source_bytes(nodes)) throw std::runtime_error(fmt::format("{} bytes for {} nodes", most, nodes));
    return most;
  };
  if (!plan_on("cpu") || !plan_on("cuda") || !stages.run("source", source)) return std::move(stages.trial);
  const auto device = create_cpu_device({1});
  const bool sparse = compilation.plan.graph.selection() != kNoNode;
  const bool taken = stages.run("compile", [&] {
    if (sparse) device->compile(compilation.plan, 4, 2);
    return size_t{0};
  });
  if (!taken || judged_numbers(traced) > options.most_judged) return std::move(stages.trial);
  stages.run("judge", [&] {
    if (const auto fault = check_against_reference(*device, traced, compilation.plan)) throw std::runtime_error(*fault);
    return size_t{0};
  });
  return std::move(stages.trial);
}

}  // namespace sluice::test
