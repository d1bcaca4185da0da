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
#include "agents/cli/traffic.h"
#include "agents/flow_script.h"
#include "kernels/cuda/codegen/describe.h"
#include "scripting/graph/text.h"

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
};

const ModelGeometry& find_model(const std::string& name) {
  std::string names;
  for (const ModelGeometry& model : kModels) {
    if (model.name == name) return model;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
  }
  throw InputError(fmt::format("--geometry {}: unknown", name), "known are " + names);
}

/// Copy bandwidth of two channels of desktop memory, and of one H200; `sluice bench` measures the machine at hand.
std::string usual_bandwidth(const std::string& device) { return device == "cuda" ? "4.2 TB/s" : "20 GB/s"; }

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

std::string bytes_text(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.2f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

std::string bandwidth_text(double bandwidth) {
  if (bandwidth < 1e9) return fmt::format("{:.0f} MB/s", bandwidth / 1e6);
  return bandwidth < 1e10 ? fmt::format("{:.1f} GB/s", bandwidth / 1e9) : fmt::format("{:.0f} GB/s", bandwidth / 1e9);
}

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6) : fmt::format("{:.2f} ms", seconds * 1e3);
}

void print_passes(const Compilation& compilation) {
  fmt::print("passes\n");
  for (const PassReport& pass : compilation.passes) {
    fmt::print("  {:<16} {:>8.1f} us  {:>4} -> {} operators{}\n", pass.name, pass.microseconds, pass.nodes_before,
               pass.nodes_after, pass.enabled ? "" : "  (off)");
  }
}

void print_row(const std::string& what, double bytes, double rows, double bandwidth, const std::string& note) {
  fmt::print("  {:<12} {:>10}  {:>10}  {}\n", what, bytes_text(bytes * rows), time_text(bytes * rows / bandwidth), note);
}

std::string beside_dense(double bytes, double dense) {
  return bytes <= dense ? fmt::format("{:.2f}x less than dense", dense / bytes)
                        : fmt::format("{:.2f}x more than dense", bytes / dense);
}

void print_roofline(const Plan& plan, const PlanOptions& options, const ModelGeometry& model, double bandwidth) {
  const double pages = std::ceil(static_cast<double>(options.tokens) / plan.layout.page);
  const double rows = static_cast<double>(options.batch) * model.kv_heads;
  const double kv_page = 2.0 * plan.layout.page * plan.layout.head_dim * static_cast<double>(size_of(plan.layout.kv));
  const double dense = pages * kv_page;
  fmt::print("decode step of one layer at the roofline: {}, {} tokens, batch {}, {}\n", model.name, options.tokens, options.batch,
             bandwidth_text(bandwidth));
  Traffic total;
  if (!plan.cache.empty()) {
    total.fields += refresh_bytes(plan);
    print_row("refresh", refresh_bytes(plan), rows, bandwidth, "of the newest page");
  }
  for (size_t i = 0; i < plan.index.size(); ++i) {
    const Traffic step = traffic_of_step(plan, plan.index[i], pages);
    total.fields += step.fields;
    total.state += step.state;
    const std::string note = step.buffers > 0 ? fmt::format("row buffers {}", bytes_text(step.buffers * rows)) : "";
    print_row(fmt::format("{} {}", i, name_of(plan.index[i].kind)), step.total(), rows, bandwidth, note);
  }
  int sparse_layers = 0;
  for (int layer = 0; layer < model.layers; ++layer) sparse_layers += plan.graph.layers.is_sparse(layer, model.layers) ? 1 : 0;
  if (plan.graph.selection == kNoNode) sparse_layers = 0;
  if (sparse_layers > 0) {
    const double budget = selected_pages(plan.graph, pages);
    total.attention = budget * kv_page;
    print_row("attention", total.attention, rows, bandwidth, fmt::format("{:.0f} of {:.0f} pages", budget, pages));
    print_row("flow", total.total(), rows, bandwidth, beside_dense(total.total(), dense));
  }
  print_row("dense", dense, rows, bandwidth, "");
  const double all = sparse_layers * total.total() + (model.layers - sparse_layers) * dense;
  fmt::print("all {} layers, {} of them sparse: {} instead of {}, {:.2f}x\n", model.layers, sparse_layers,
             time_text(all * rows / bandwidth), time_text(model.layers * dense * rows / bandwidth), model.layers * dense / all);
}

void plan(const PlanOptions& options) {
  const ModelGeometry& model = find_model(options.geometry);
  const double bandwidth = parse_bandwidth(options.bandwidth.value_or(usual_bandwidth(options.device)));
  TraceOptions trace;
  trace.head_dim = model.head_dim;
  trace.group = model.query_heads / model.kv_heads;
  trace.layers = model.layers;
  const Compilation compilation = compile(read_flow(options.flow).trace(trace), {options.disabled});
  fmt::print("{}", to_text(compilation.plan));
  if (options.device == "cuda") fmt::print("{}", cuda::codegen::describe(compilation.plan));
  print_passes(compilation);
  print_roofline(compilation.plan, options, model, bandwidth);
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
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--bandwidth", options->bandwidth, "Of the memory, such as \"20 GB/s\" or \"4.2 TB/s\"; MB/s, too");
  add_list(*command, "--disable-pass", options->disabled, "Leave out these passes");
  command->callback([options] { plan(*options); });
}

}  // namespace sluice::cli
