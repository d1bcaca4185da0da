#include "agents/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/cpu/runtime/memory.h"
#include "kernels/cpu/runtime/peak.h"
#include "kernels/cpu/runtime/thread_pool.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

double measure_copy_bandwidth(int threads) {
  constexpr size_t kBytes = size_t{1} << 30;  // of each buffer: past the last-level caches of today's servers
  cpu::ThreadPool pool(threads);
  const cpu::MappedMemory source(kBytes);
  const cpu::MappedMemory target(kBytes);
  // A part of the buffers is timed at a time: on a machine with other work some parts have all cores to themselves.
  constexpr int kParts = 8;
  const size_t share = kBytes / kParts / pool.threads() / 64 * 64;
  pool.run(static_cast<int64_t>(kParts) * pool.threads(),
           [&](int64_t index, int) { std::memset(source.at(index * share), 1, share); });
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < 6 * kParts; ++repeat) {
    const auto start = Clock::now();
    pool.run(pool.threads(), [&](int64_t index, int) {
      const size_t at = (repeat % kParts * pool.threads() + index) * share;
      // The C library writes through the caches or past them by the size of the share: each may be the faster one.
      if (repeat / kParts % 2 == 0) {
        std::memcpy(target.at(at), source.at(at), share);
      } else {
        cpu::stream_copy(source.at(at), target.at(at), share);
      }
    });
    if (repeat >= kParts) best = std::min(best, seconds_since(start));  // the first ones also map the target
  }
  return 2.0 * static_cast<double>(share * pool.threads()) / best / 1e12;
}

void raise_copy_bandwidth(BenchReport& report, int threads) {
  report.copy_tb_per_s = std::max(report.copy_tb_per_s, measure_copy_bandwidth(threads));
}

void raise_arithmetic_peak(BenchReport& report, int threads) {
  const cpu::ProductPeak peak = cpu::measure_product_peak(threads);
  report.gflop_per_s = std::max(report.gflop_per_s, peak.gflop_per_s);
  report.arithmetic = peak.unit;
}

void require_case(const BenchOptions& options, size_t cases) {
  if (static_cast<size_t>(options.only) <= cases) return;
  throw InputError(fmt::format("--case {}: there are {}", options.only, cases), "leave --case out for all of them");
}

void set_limits(BenchReport& report) {
  for (BenchRow& row : report.rows) {
    const double memory_us = row.bytes > 0 ? row.bytes / report.copy_tb_per_s / 1e6 : 0;
    const double arithmetic_us = row.flop > 0 ? row.flop / report.gflop_per_s / 1e3 : 0;
    row.limit_us = std::max(memory_us, arithmetic_us);
    (memory_us > arithmetic_us ? row.flop : row.bytes) = 0;
  }
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double time_call(double seconds, const std::function<void(int64_t)>& call) {
  constexpr int64_t kWarmUps = 2;
  for (int64_t i = 0; i < kWarmUps; ++i) call(i);
  std::vector<double> times;
  const auto start = Clock::now();
  while (times.size() < 5 || seconds_since(start) < seconds) {
    const auto before = Clock::now();
    call(kWarmUps + static_cast<int64_t>(times.size()));
    times.push_back(seconds_since(before));
  }
  return median(std::move(times)) * 1e6;
}

namespace {

double total_us(const BenchProfile& profile) {
  double total = 0;
  for (const BenchProfile::Row& row : profile.rows) total += row.time_us;
  return total;
}

std::string to_table(const BenchProfile& profile) {
  std::string text = fmt::format("\n{}: one step by operation; each time includes a synchronize\n", profile.name);
  if (!profile.note.empty()) text += fmt::format("(not by kernel: {})\n", profile.note);
  text += fmt::format("{:<32} {:>8} {:>12} {:>7}\n", "operation", "calls", "time us", "share");
  const double total = total_us(profile);
  for (const BenchProfile::Row& row : profile.rows) {
    text +=
        fmt::format("{:<32} {:>8.0f} {:>12.1f} {:>6.1f}%\n", row.operation, row.calls, row.time_us, 100 * row.time_us / total);
  }
  text += fmt::format("{:<32} {:>8} {:>12.1f}\n", "sum", "", total);
  return text + fmt::format("{:<32} {:>8} {:>12.1f}\n", "a step without the synchronizes", "", profile.step_us);
}

std::string to_table(const BenchKernelProfile& profile) {
  const KernelProfile& kernels = profile.kernels;
  std::string text = fmt::format(
      "\n{}: one step by kernel; \"alone\" is the time from the end of what ended before, \"idle\" what the device waited\n",
      profile.name);
  text += fmt::format("{:<52} {:>8} {:>10} {:>12} {:>7} {:>10}\n", "kernel", "calls", "mean us", "alone us", "share", "idle us");
  for (const KernelProfile::Row& row : kernels.rows) {
    text += fmt::format("{:<52} {:>8.2f} {:>10.2f} {:>12.1f} {:>6.1f}% {:>10.1f}\n", row.name, row.calls, row.mean_us,
                        row.exclusive_us, 100 * row.exclusive_us / kernels.step_us, row.idle_us);
  }
  const auto line = [&](const char* what, double us, const std::string& note) {
    text += fmt::format("{:<52} {:>8} {:>10} {:>12.1f} {:>6.1f}%{}\n", what, "", "", us, 100 * us / kernels.step_us, note);
  };
  line("busy", kernels.busy_us, fmt::format("  ({:.1f} us of it with two or more at once)", kernels.overlap_us));
  line("idle", kernels.idle_us, "");
  line("step while recorded", kernels.step_us, "");
  line("step while not recorded", profile.step_us, "");
  return text;
}

nlohmann::ordered_json to_json_value(const BenchKernelProfile& profile) {
  const KernelProfile& kernels = profile.kernels;
  nlohmann::ordered_json json = {{"name", profile.name},
                                 {"step_us", profile.step_us},
                                 {"recorded_step_us", kernels.step_us},
                                 {"busy_us", kernels.busy_us},
                                 {"overlap_us", kernels.overlap_us},
                                 {"idle_us", kernels.idle_us},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const KernelProfile::Row& row : kernels.rows) {
    json["rows"].push_back({{"kernel", row.name},
                            {"calls", row.calls},
                            {"mean_us", row.mean_us},
                            {"exclusive_us", row.exclusive_us},
                            {"share", row.exclusive_us / kernels.step_us},
                            {"idle_us", row.idle_us}});
  }
  return json;
}

nlohmann::ordered_json to_json_value(const BenchProfile& profile) {
  nlohmann::ordered_json json;
  json["name"] = profile.name;
  json["note"] = profile.note;
  json["step_us"] = profile.step_us;
  json["rows"] = nlohmann::ordered_json::array();
  const double total = total_us(profile);
  for (const BenchProfile::Row& row : profile.rows) {
    json["rows"].push_back(
        {{"operation", row.operation}, {"calls", row.calls}, {"time_us", row.time_us}, {"share", row.time_us / total}});
  }
  return json;
}

}  // namespace

std::string to_table(const BenchReport& report) {
  std::string text = report.name + "\n";
  if (report.copy_tb_per_s > 0) text += fmt::format("copy bandwidth: {:.1f} GB/s (read + written)\n", report.copy_tb_per_s * 1e3);
  if (report.gflop_per_s > 0)
    text += fmt::format("arithmetic peak: {:.0f} GFLOP/s ({})\n", report.gflop_per_s, report.arithmetic);
  text += fmt::format("{:<28} {:<56} {:>12} {:>14} {:>9}  {}\n", "case", "shape", "time us", "speed", "of limit", "correct");
  for (const BenchRow& row : report.rows) {
    const std::string speed = row.bytes > 0  ? fmt::format("{:.1f} GB/s", row.bytes / row.time_us / 1e3)
                              : row.flop > 0 ? fmt::format("{:.1f} GFLOP/s", row.flop / row.time_us / 1e3)
                                             : "";
    const std::string share = row.limit_us > 0 ? fmt::format("{:.0f}%", 100 * row.limit_us / row.time_us) : "";
    text += fmt::format("{:<28} {:<56} {:>12.1f} {:>14} {:>9}  {}{}\n", row.name, row.shape, row.time_us, speed, share,
                        row.correct ? "yes" : "NO", row.note.empty() ? "" : "  " + row.note);
  }
  for (const BenchProfile& profile : report.profiles) text += to_table(profile);
  for (const BenchKernelProfile& profile : report.kernel_profiles) text += to_table(profile);
  return text;
}

std::string to_json(const BenchReport& report) {
  nlohmann::ordered_json json;
  json["schema"] = "sluice.bench/1";
  json["name"] = report.name;
  json["copy_tb_per_s"] = report.copy_tb_per_s;
  json["gflop_per_s"] = report.gflop_per_s;
  json["arithmetic"] = report.arithmetic;
  json["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : report.rows) {
    json["rows"].push_back({{"name", row.name},
                            {"shape", row.shape},
                            {"time_us", row.time_us},
                            {"bytes", row.bytes},
                            {"flop", row.flop},
                            {"limit_us", row.limit_us},
                            {"correct", row.correct},
                            {"note", row.note}});
    for (const auto& [name, value] : row.metrics) json["rows"].back()[name] = value;
  }
  for (const BenchProfile& profile : report.profiles) json["profiles"].push_back(to_json_value(profile));
  for (const BenchKernelProfile& profile : report.kernel_profiles) json["kernel_profiles"].push_back(to_json_value(profile));
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace sluice
