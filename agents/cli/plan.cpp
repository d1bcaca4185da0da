#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/evaluation/flow_script.h"
#include "kernels/device.h"
#include "kernels/device/plan_report.h"
#include "scripting/base/output_file.h"
#include "scripting/base/printable_text.h"
#include "scripting/graph/pattern_report.h"

namespace sluice::cli {

namespace {

/// What of a model decides the bytes of a decode step's attention.
struct ModelGeometry {
  std::string_view name;
  int layers;
  int query_heads;
  int kv_heads;
  int head_dim;
};

// From the models' config.json.
constexpr std::array kModels = {
    ModelGeometry{"mini", 8, 8, 2, 64},          ModelGeometry{"qwen3-0.6b", 28, 16, 8, 128},
    ModelGeometry{"qwen3-1.7b", 28, 16, 8, 128}, ModelGeometry{"qwen3-4b", 36, 32, 8, 128},
    ModelGeometry{"qwen3-8b", 36, 32, 8, 128},   ModelGeometry{"qwen3-14b", 40, 40, 8, 128},
    ModelGeometry{"qwen3-32b", 64, 64, 8, 128},  ModelGeometry{"llama-3.1-8b", 32, 32, 8, 128},
};

constexpr double kLeastBandwidth = 1e6;  // bytes a second
constexpr double kMostBandwidth = 1e15;

struct PlanOptions {
  std::string flow;
  std::string geometry = "mini";
  int64_t tokens = 8192;
  int64_t batch = 8;
  std::string device = "cpu";
  std::optional<std::string> bandwidth;  // none: what memory of the device's kind usually gives
  std::vector<std::string> disabled;
  std::optional<std::string> svg;  // a file for the picture of the flow's patterns
};

const ModelGeometry& find_model(const std::string& name) {
  std::string names;
  for (const ModelGeometry& model : kModels) {
    if (model.name == name) return model;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
  }
  throw InputError(fmt::format("--geometry {}: unknown", name), "known are " + names);
}

/// Bytes a second of a unit, or 0.
double unit_scale(std::string_view unit) {
  if (unit == "MB/s" || unit == "MB") return 1e6;
  if (unit.empty() || unit == "GB/s" || unit == "GB") return 1e9;
  return unit == "TB/s" || unit == "TB" ? 1e12 : 0;
}

/// "4.2 TB/s", "20GB/s", "20" (GB/s) to bytes a second.
double parse_bandwidth(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  std::string unit(parsed.ptr, end);
  std::erase(unit, ' ');
  const double scale = unit_scale(unit);
  if (parsed.ec == std::errc::invalid_argument || std::isnan(value) || scale == 0) {
    throw InputError(fmt::format("--bandwidth \"{}\": not a bandwidth", text), "for example \"4.2 TB/s\" or \"20 GB/s\"");
  }
  const bool fits = parsed.ec == std::errc() && value * scale >= kLeastBandwidth && value * scale <= kMostBandwidth;
  if (!fits) throw InputError(fmt::format("--bandwidth \"{}\": not from 1 MB/s to 1000 TB/s", text));
  return value * scale;
}

void plan(const PlanOptions& options) {
  const ModelGeometry& model = find_model(options.geometry);
  require_device_name(options.device);
  std::optional<OutputFile> picture;
  if (options.svg) picture.emplace(*options.svg, std::vector<std::string>{options.flow});
  const double bandwidth = options.bandwidth ? parse_bandwidth(*options.bandwidth) : usual_bandwidth(options.device);
  TraceOptions trace;
  trace.head_dim = model.head_dim;
  trace.group = model.query_heads / model.kv_heads;
  trace.layers = model.layers;
  trace.heads = model.query_heads;
  const Compilation compilation = compile(read_flow(options.flow).trace(trace), {options.disabled});
  const Workload workload{std::string(model.name), model.layers,   model.kv_heads, options.tokens,
                          options.batch,           options.device, bandwidth};
  const PlanReport report = plan_report(compilation, workload);
  fmt::print("{}", printable(report.text));
  if (!report.refusal.empty()) throw InputError(report.refusal, report.hint);
  if (!picture) return;
  if (report.patterns.empty())
    throw InputError(fmt::format("--svg: flow \"{}\" has no pattern to draw", compilation.plan.graph.name));
  picture->write(pattern_svg(report.patterns, options.tokens));
}

}  // namespace

void add_plan(CLI::App& app) {
  constexpr int64_t kMost = int64_t{1} << 30;
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand("plan", "Show a flow's graph, passes and fused steps, with bytes and expected time");
  command->footer("Example: sluice plan scripting/flows/quest.lua --geometry qwen3-8b --tokens 32768 --bandwidth \"4.2 TB/s\"");
  command->add_option("flow", options->flow, "Lua file, - for standard input, or the name of a shipped flow")->required();
  command->add_option("--geometry", options->geometry, "Model: mini, qwen3-0.6b ... qwen3-32b, llama-3.1-8b")
      ->capture_default_str();
  command->add_option("--tokens", options->tokens, "Tokens in the cache")
      ->capture_default_str()
      ->check(decimal_number(int64_t{1}, kMost));
  command->add_option("--batch", options->batch, "Requests in a step")
      ->capture_default_str()
      ->check(decimal_number(int64_t{1}, kMost));
  command->add_option("--device", options->device, "cpu or cuda: whose usual bandwidth is assumed; cuda: also how a GPU runs it")
      ->capture_default_str();
  command->add_option("--bandwidth", options->bandwidth, "Of the memory, such as \"20 GB/s\" or \"4.2 TB/s\"; MB/s, too");
  command->add_option("--svg", options->svg, "Write a picture of the flow's patterns to this file");
  add_list(*command, "--disable-pass", options->disabled, "Leave out these passes");
  command->callback([options] { plan(*options); });
}

}  // namespace sluice::cli
