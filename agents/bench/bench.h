#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "agents/bench/budget.h"
#include "kernels/profile/kernel_profile.h"

namespace sluice {

struct BenchOptions {
  int threads = 0;  // 0: all cores that this process may use
  std::string device = "cpu";
  double seconds = 0.5;  // of measuring, for each row
  std::string model;     // its path; for benchmarks that need one
  std::string flow;      // file or shipped name; for benchmarks that need one
  int only = 0;          // case, where they can be chosen; 0: all of them

  // The serving loop.
  std::string beside;          // a flow to compare with, as `flow`, in place of dense attention; empty: dense attention
  std::string random_weights;  // a known geometry ("qwen3-8b") with random weights in place of `model`
  int layers = 0;              // of that; 0: all
  int batch = 8;               // sequences
  int tokens = 8192;           // of each prompt
  int generate = 0;            // decode steps to measure, or tokens of an answer at a rate; 0: chosen by the benchmark
  int chunk = 0;               // rows of a pass at most; 0: chosen by the benchmark
  Budget budget;               // of the flow's selection
  std::vector<double> rates;   // requests a second that arrive; empty: all sequences decode together
  bool disaggregated = false;  // with rates: prompts arrive with K and V computed elsewhere
  bool profile = false;        // time by kernel or operation, too

  // Segments of the prompt.
  int segment = 1024;   // tokens of each
  double reused = 0.9;  // of the prompt's tokens
  int boundary = 1;     // layer that rules look at
  double share = 0.1;   // of the copied tokens that they choose
  int together = 0;     // requests at once; 0: one after the other
  int documents = 8;    // that requests at once have in common
  /// Flows with a recompute stage, shipped ones by name, each with what its parameters are set to; empty: the shipped rules, with
  /// `boundary` and `share`.
  std::vector<std::string> rules;
};

/// One measured case.
struct BenchRow {
  std::string name;      // "dense decode"
  std::string shape;     // "batch 8, tokens 8192, kv_heads 2, group 4, dim 64, bf16"
  double time_us = 0;    // of one call: the median
  double bytes = 0;      // that one call must move; 0 where arithmetic is the limit
  double flop = 0;       // of one call; 0 where memory is the limit
  double limit_us = 0;   // time of one call at the limit measured in the same run; 0: none is known
  bool correct = false;  // checked in the same run against an independent calculation
  std::string note;
  std::vector<std::pair<std::string, double>> metrics = {};  // further figures for programs
};

/// Time of a decode step by operation, each synchronised.
struct BenchProfile {
  struct Row {
    std::string operation;
    double calls = 0;    // of one step
    double time_us = 0;  // of one step
  };
  std::string name;            // "dense decode"
  double step_us = 0;          // of a step that is not profiled
  std::vector<Row> rows = {};  // the longest first
  std::string note = {};       // why it is not by kernel; empty: the device has none
};

/// A decode step by kernel, recorded while it ran as always.
struct BenchKernelProfile {
  std::string name;    // "dense decode"
  double step_us = 0;  // of a step that is not recorded
  KernelProfile kernels;
};

struct BenchReport {
  std::string name;             // "attention"
  double copy_tb_per_s = 0;     // bytes read and written by a copy of buffers larger than the caches; 0: not measured
  double gflop_per_s = 0;       // peak of the unit that multiplies, measured in the same run; 0: not measured
  std::string arithmetic = {};  // that unit: "float32 vectors"
  std::vector<BenchRow> rows = {};
  std::vector<BenchProfile> profiles = {};
  std::vector<BenchKernelProfile> kernel_profiles = {};
};

BenchReport run_attention_bench(const BenchOptions& options);
#if SLUICE_CUDA
/// The same with --device cuda, every call part of a replayed graph.
BenchReport run_cuda_attention_bench(const BenchOptions& options);
BenchReport run_cuda_topk_bench(const BenchOptions& options);
#endif
BenchReport run_topk_bench(const BenchOptions& options);
BenchReport run_index_bench(const BenchOptions& options);
/// Throws InputError unless the flow has one index stage, which selects pages by what a cache alone holds.
void require_index_stage(const FlowGraph& graph);
#if SLUICE_CUDA
/// The same with --device cuda: scoring, selection and the list of pages as a step's graph has them.
BenchReport run_cuda_index_bench(const BenchOptions& options);
#endif
BenchReport run_layer_bench(const BenchOptions& options);
BenchReport run_prefill_bench(const BenchOptions& options);
#if SLUICE_CUDA
/// The same with --device cuda: causal attention of prompts over a page pool on the GPU.
BenchReport run_cuda_prefill_bench(const BenchOptions& options);
#endif
BenchReport run_patterns_bench(const BenchOptions& options);
#if SLUICE_CUDA
/// Prompts and decode steps under static patterns, for --device cuda alone.
BenchReport run_cuda_patterns_bench(const BenchOptions& options);
#endif
BenchReport run_gemm_bench(const BenchOptions& options);
#if SLUICE_CUDA
/// The same with --device cuda: products of a decode step, weights read from memory, beside cuBLASLt.
BenchReport run_cuda_gemm_bench(const BenchOptions& options);
#endif
BenchReport run_serve_bench(const BenchOptions& options);
/// Prompts of which segments are copied, by the rules that say what is computed again.
BenchReport run_segments_bench(const BenchOptions& options);

/// Terabytes a second (read plus written) of a copy with all `threads` over buffers larger than the caches (1 GiB each): the
/// best of several tries. Machines that are shared change their speed, so this belongs close to what is timed.
double measure_copy_bandwidth(int threads);
/// Measures a limit of the machine again, close to what is timed next; the report keeps the highest.
void raise_copy_bandwidth(BenchReport& report, int threads);
void raise_arithmetic_peak(BenchReport& report, int threads);
/// Gives every row the time that the report's limits allow for its bytes and its operations, whichever takes longer; the other
/// of the two becomes 0.
void set_limits(BenchReport& report);

/// Throws InputError if there is no case of the number that was asked for.
void require_case(const BenchOptions& options, size_t cases);

/// Median time in microseconds of one `call`: warmed up, then repeated for `seconds` (at least five times). `call` gets
/// the number of the repetition, so that it can rotate its buffers.
double time_call(double seconds, const std::function<void(int64_t)>& call);

double median(std::vector<double> values);

/// A table for people, each row beside its limit.
std::string to_table(const BenchReport& report);
/// `{"schema": "sluice.bench/1", "copy_tb_per_s", "rows": [{"name", "shape", "time_us", "bytes", "limit_us", "correct"}]}`
/// and more fields. With --profile, times in microseconds of one step: where kernels can be recorded
/// `"kernel_profiles": [{"name", "step_us", "recorded_step_us", "busy_us", "overlap_us", "idle_us",
///                       "rows": [{"kernel", "calls", "mean_us", "exclusive_us", "share", "idle_us"}]}]`
/// (of KernelProfile: exclusive times add up to "busy_us", which with "idle_us" is "recorded_step_us"; "share" is of that, too),
/// else `"profiles": [{"name", "note", "step_us", "rows": [{"operation", "calls", "time_us", "share"}]}]`.
std::string to_json(const BenchReport& report);

}  // namespace sluice
