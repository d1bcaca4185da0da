#include "kernels/device/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/runtime/pool.h"
#include "kernels/cuda/codegen/describe.h"
#include "kernels/cuda/codegen/refusal.h"
#include "scripting/base/error.h"
#include "scripting/graph/pattern_report.h"
#include "scripting/graph/text.h"
#include "scripting/passes/cache_limit.h"
#include "scripting/passes/traffic.h"

namespace sluice {

namespace {

std::string bytes_text(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.2f} MB", bytes / 1e6);
  if (bytes < 1e12) return fmt::format("{:.2f} GB", bytes / 1e9);
  return fmt::format("{:.2f} TB", bytes / 1e12);
}

std::string bandwidth_text(double bandwidth) {
  if (bandwidth < 1e9) return fmt::format("{:.0f} MB/s", bandwidth / 1e6);
  return bandwidth < 1e10 ? fmt::format("{:.1f} GB/s", bandwidth / 1e9) : fmt::format("{:.0f} GB/s", bandwidth / 1e9);
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::string passes_text(const Compilation& compilation) {
  std::string text = "passes\n";
  for (const PassReport& pass : compilation.passes) {
    text += fmt::format("  {:<16} {:>8.1f} us  {:>4} -> {} operators{}\n", pass.name, pass.microseconds, pass.nodes_before,
                        pass.nodes_after, pass.enabled ? "" : "  (off)");
  }
  return text;
}

std::string row_text(const std::string& what, double bytes, double rows, double bandwidth, const std::string& note) {
  return fmt::format("  {:<12} {:>10}  {:>10}  {}\n", what, bytes_text(bytes * rows), time_text(bytes * rows / bandwidth), note);
}

std::string beside_dense(double bytes, double dense) {
  return bytes <= dense ? fmt::format("{:.2f}x less than dense", dense / bytes)
                        : fmt::format("{:.2f}x more than dense", bytes / dense);
}

int count_sparse_layers(const Plan& plan, int layers) {
  if (plan.attend.selection() == kNoNode) return 0;
  int sparse = 0;
  for (int layer = 0; layer < layers; ++layer) sparse += plan.graph.layers.is_sparse(layer, layers) ? 1 : 0;
  return sparse;
}

bool selects_top_k(const FlowGraph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.op == Op::kTopK; });
}

/// The rows of the table, and what they come to.
class Roofline {
 public:
  Roofline(const Plan& plan, const Workload& workload)
      : plan_(plan),
        workload_(workload),
        pages_(std::ceil(static_cast<double>(workload.tokens) / plan.layout.page)),
        kv_page_(2.0 * plan.layout.page * plan.layout.head_dim * static_cast<double>(size_of(plan.layout.kv))) {}

  std::string text(const std::vector<PatternFigures>& patterns) {
    text_ = fmt::format("decode step of one layer at the roofline: {}, {} tokens, batch {}, {}\n", workload_.model,
                        workload_.tokens, workload_.batch, bandwidth_text(workload_.bandwidth));
    for (const PatternFigures& pattern : patterns) {
      if (pattern.role == PatternRole::kBeside) beside_ = static_cast<double>(pattern.pages_read);
    }
    // Layers with a pattern run the index stage on what they see, if the flow has one.
    int left = count_sparse_layers(plan_, workload_.layers);
    for (const PatternFigures& pattern : patterns) {
      if (pattern.role == PatternRole::kAround && pattern.head == 0) left -= pattern.layers;
    }
    if (left > 0) add_flow(left, pages_kept());
    for (const PatternFigures& pattern : patterns) {
      if (pattern.head > 0) continue;  // heads of a layer have their pages in common
      if (pattern.role == PatternRole::kAround) {
        text_ += fmt::format("  under {}{}:\n", pattern.text, pattern.heads > 1 ? " and those of other heads" : "");
        add_flow(pattern.layers, static_cast<double>(pattern.pages_read));
      } else if (pattern.role == PatternRole::kAlone) {
        const double bytes = static_cast<double>(pattern.pages_read) * kv_page_;
        add_row("pattern", bytes,
                fmt::format("{} of {:.0f} pages, {}", pattern.pages_read, pages_, beside_dense(bytes, dense())));
        add_layers(pattern.layers, bytes);
      }
    }
    add_row("dense", dense(), "");
    const double all = bytes_ + (workload_.layers - sparse_) * dense();
    return text_ + fmt::format("all {} layers, {} of them sparse: {} instead of {}, {:.2f}x\n", workload_.layers, sparse_,
                               time_text(all * rows() / workload_.bandwidth),
                               time_text(workload_.layers * dense() * rows() / workload_.bandwidth),
                               workload_.layers * dense() / all);
  }

 private:
  double dense() const { return pages_ * kv_page_; }
  /// Of those that a step is shown.
  double pages_kept() const {
    if (!plan_.graph.eviction) return pages_;
    return std::min(pages_, std::ceil(static_cast<double>(plan_.graph.eviction->budget) / plan_.layout.page));
  }
  double rows() const { return static_cast<double>(workload_.batch) * workload_.kv_heads; }
  void add_row(const std::string& what, double bytes, const std::string& note) {
    text_ += row_text(what, bytes, rows(), workload_.bandwidth, note);
  }
  void add_layers(int layers, double bytes) {
    sparse_ += layers;
    bytes_ += layers * bytes;
  }

  /// Those of a stage. `what` names a step by its number and kind.
  template <class Name>
  void add_steps(const std::vector<PlanStep>& steps, double shown, Traffic& total, Name what) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const Traffic step = traffic_of_step(plan_, steps[i], shown);
      total.fields += step.fields;
      total.state += step.state;
      add_row(what(i, name_of(steps[i].kind)), step.total(),
              step.buffers > 0 ? fmt::format("row buffers {}", bytes_text(step.buffers * rows())) : "");
    }
  }

  /// The steps of the flow, in layers that show it so many pages.
  void add_flow(int layers, double shown) {
    Traffic total;
    if (!plan_.cache.empty()) {
      total.fields += refresh_bytes(plan_);
      add_row("refresh", refresh_bytes(plan_), "of the newest page");
    }
    add_steps(plan_.index, shown, total, [](size_t step, std::string_view kind) { return fmt::format("{} {}", step, kind); });
    const double budget = selected_pages(plan_.graph, shown, beside_);
    const double summaries = summary_bytes(plan_.graph, shown, budget);
    total.attention = budget * kv_page_ + summaries;
    add_row("attention", total.attention,
            fmt::format("{:.0f} of {:.0f} pages{}", budget, pages_, summaries > 0 ? ", the others through their summaries" : ""));
    add_steps(plan_.after, shown, total,
              [](size_t step, std::string_view kind) { return fmt::format("then {} {}", step, kind); });
    add_row("flow", total.total(), beside_dense(total.total(), dense()));
    add_layers(layers, total.total());
  }

  const Plan& plan_;
  const Workload& workload_;
  double pages_;       // of a sequence
  double kv_page_;     // bytes
  double beside_ = 0;  // pages that have tokens beside a selection
  std::string text_;
  int sparse_ = 0;    // layers so far
  double bytes_ = 0;  // of their rows
};

}  // namespace

double usual_bandwidth(const std::string& device) { return device == "cuda" ? 4.2e12 : 20e9; }

PlanReport plan_report(const Compilation& compilation, const Workload& workload) {
  std::vector<PatternFigures> patterns =
      pattern_figures(compilation.plan.graph, workload.layers, workload.kv_heads, workload.tokens);
  std::string text = to_text(compilation.plan) + pattern_text(patterns, workload.tokens);
  const auto refused = [&](const char* where, const std::string& what, const std::string& hint) {
    return PlanReport{text + fmt::format("{}: refused, {}\n  {}\n", where, what, hint) + passes_text(compilation), patterns,
                      fmt::format("{}: refused, {}", where, what), hint};
  };
  if (workload.device == "cuda") {
    if (const auto refusal = cuda::codegen::refusal_of(compilation.plan)) {
      return refused("on a GPU", refusal->what, refusal->hint);
    }
    const bool is_sparse = count_sparse_layers(compilation.plan, workload.layers) > 0;
    text += !is_sparse
                ? (patterns.empty()
                       ? "on a GPU: attention to all pages, dense, since no layer is sparse\n"
                       : "on a GPU: dense attention to the slots in use, with a mask where a row does not see them all\n")
                : cuda::codegen::describe(compilation.plan,
                                          {.tokens = workload.tokens, .batch = workload.batch, .kv_heads = workload.kv_heads});
  } else {
    try {
      cpu::require_kept(compilation.plan.layout);
    } catch (const InputError& error) {
      return refused("on the CPU", error.what(), error.hint());
    }
    const std::vector<const Plan*> programs = compilation.plan.programs();
    if (std::any_of(programs.begin(), programs.end(), [](const Plan* each) { return selects_top_k(each->graph); }))
      text += "on the CPU: topk has one method, whichever a flow names\n";
  }
  try {
    for (const Plan* program : compilation.plan.programs()) check_cache_size(*program);
  } catch (const FlowError& error) {
    text += fmt::format("not judged: {}\n  {}\n", error.message(), error.hint());
  }
  // Patterns stand beside what is dense, of as many tokens.
  const auto beside = [&](const std::vector<PatternFigures>& own) {
    Workload shown = workload;
    if (!own.empty()) shown.tokens = std::min(shown.tokens, kMostPatternTokens);
    return shown;
  };
  text += passes_text(compilation) + Roofline(compilation.plan, beside(patterns)).text(patterns);
  for (const Plan& variant : compilation.plan.variants) {
    const std::vector<PatternFigures> own = pattern_figures(variant.graph, workload.layers, workload.kv_heads, workload.tokens);
    text += fmt::format("variant \"{}\", layers of other programs taken as dense\n", variant.graph.variant) +
            pattern_text(own, workload.tokens) + Roofline(variant, beside(own)).text(own);
    patterns.insert(patterns.end(), own.begin(), own.end());
  }
  return {std::move(text), std::move(patterns)};
}

}  // namespace sluice
