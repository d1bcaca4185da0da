#include "agents/bench/serve_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <unordered_map>

#include "host/serving/random.h"
#include "kernels/device/pass_batch.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kSeed = 11;       // of the times of arrival
constexpr double kLeastForP95 = 20;  // requests: of fewer, the P95 is the slowest

/// What became of one request. Times are seconds since the first could have arrived.
struct Served {
  double arrival = 0;
  double first = 0;  // token
  double last = 0;
  int tokens = 0;
  int32_t first_token = 0;
};

struct Outcome {
  std::vector<Served> requests;
  double tokens_per_s = 0;  // generated while requests arrived
  int wanted = 0;           // tokens of each
  int most_running = 0;     // at once
  bool agrees = false;      // with requests that are served alone

  bool finished(const Served& request) const { return request.tokens == wanted; }
  /// Seconds from a request's first token to its last, for each token after the first.
  std::vector<double> time_per_token() const {
    std::vector<double> times;
    for (const Served& request : requests) {
      if (finished(request)) times.push_back((request.last - request.first) / std::max(1, wanted - 1));
    }
    return times;
  }
  std::vector<double> time_to_first() const {
    std::vector<double> times;
    for (const Served& request : requests) {
      if (request.tokens > 0) times.push_back(request.first - request.arrival);
    }
    return times;
  }
};

/// The smallest of `values` that is not below a `share` of them; NaN of none.
double percentile(std::vector<double> values, double share) {
  if (values.empty()) return NAN;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<ptrdiff_t>(std::clamp<size_t>(rank, 1, values.size()) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

std::vector<double> arrivals(double rate, double seconds) {
  std::vector<double> times;
  double time = 0;
  for (uint64_t i = 0;; ++i) {
    time += -std::log(1 - counter_uniform(kSeed, i)) / rate;
    if (time >= seconds && !times.empty()) return times;
    times.push_back(std::min(time, seconds));
  }
}

Request request_of(const ServeSetup& setup, int number) {
  Request request;
  request.prompt = setup.prompt_of(number);
  request.max_tokens = setup.generate;
  request.ignore_eos = true;
  request.copy_prefix = setup.disaggregated;
  return request;
}

/// Pages of one request.
int pages_of_request(const ServeSetup& setup, const Plan* plan) { return setup.options(plan, 1).pages; }

EngineOptions options_of(const ServeSetup& setup, const Plan* plan, int pages) {
  // Where K and V are handed over, a request that has ended stays in the pool for others to copy.
  const int kept = setup.disaggregated ? 1 : 0;
  EngineOptions options = setup.options(plan, std::min(setup.batch, pages / pages_of_request(setup, plan) - kept));
  options.pages = pages;
  options.max_pass_tokens = std::max(setup.chunk, options.max_batch);
  options.prefix_cache = setup.disaggregated;
  return options;
}

/// Computes a prompt before the clock starts: plans of products, fresh memory, and the K and V that are handed over.
void warm_up(Engine& engine, const ServeSetup& setup) {
  Request request = request_of(setup, 0);
  request.copy_prefix = false;
  request.max_tokens = 2;
  engine.submit(std::move(request));
  engine.run_all();
}

/// The first tokens of most of some requests, served among others, are those that they get alone. Batches of other sizes are
/// multiplied in another order, and the best tokens of random weights are often nearly as good as the next.
bool agrees_alone(Engine& engine, const ServeSetup& setup, const std::vector<Served>& requests) {
  constexpr size_t kChecked = 8;
  size_t checked = 0;
  size_t same = 0;
  for (size_t i = 0; i < requests.size() && checked < kChecked; ++i) {
    if (requests[i].tokens == 0) continue;
    Request request = request_of(setup, static_cast<int>(i));
    request.max_tokens = 1;
    engine.submit(std::move(request));
    same += engine.run_all().at(0).tokens.at(0) == requests[i].first_token ? 1 : 0;
    ++checked;
  }
  return 2 * same > checked;
}

/// Submits requests as they arrive, while earlier ones run. After the last has arrived there is as much time again to end.
Outcome serve(const ServeSetup& setup, const Plan* plan, int pages, double rate, double seconds) {
  Engine engine(setup.device, *setup.model, plan, options_of(setup, plan, pages));
  warm_up(engine, setup);

  Outcome outcome;
  outcome.wanted = setup.generate;
  outcome.most_running = options_of(setup, plan, pages).max_batch;
  const std::vector<double> times = arrivals(rate, seconds);
  std::vector<Request> waiting;  // made before the clock starts
  for (size_t i = 0; i < times.size(); ++i) waiting.push_back(request_of(setup, static_cast<int>(i)));
  outcome.requests.resize(times.size());
  const auto start = Clock::now();
  const auto now = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::unordered_map<uint64_t, Served*> running;
  int64_t while_arriving = 0;
  engine.on_token([&](uint64_t id, const GeneratedToken& generated) {
    const double time = now();
    Served& request = *running.at(id);
    if (request.tokens++ == 0) {
      request.first = time;
      request.first_token = generated.token;
    }
    request.last = time;
    if (time <= seconds) ++while_arriving;
  });
  for (size_t next = 0; now() < 2 * seconds;) {
    for (; next < times.size() && times[next] <= now(); ++next) {
      outcome.requests[next].arrival = times[next];
      running[engine.submit(std::move(waiting[next]))] = &outcome.requests[next];
    }
    if (engine.step()) {
      require_finite(engine.take_finished());
    } else if (next < times.size()) {
      std::this_thread::sleep_for(std::chrono::duration<double>(times[next] - now()));
    } else {
      break;
    }
  }
  outcome.tokens_per_s = static_cast<double>(while_arriving) / seconds;
  engine.on_token(nullptr);
  for (const auto& [id, request] : running) engine.cancel(id);
  engine.take_finished();
  outcome.agrees = agrees_alone(engine, setup, outcome.requests);
  return outcome;
}

/// Without requests that ended, or tokens while requests arrived, there is nothing to average. Throws InputError.
void require_measured(const Outcome& outcome, double rate) {
  const size_t ended = outcome.time_per_token().size();
  if (ended > 0 && outcome.tokens_per_s > 0) return;
  throw InputError(
      fmt::format("at {:g} requests/s, {} of {} requests ended: too few to measure", rate, ended, outcome.requests.size()),
      "take more --seconds, or shorter requests");
}

BenchRow row_of(const ServeSetup& setup, const std::string& name, double rate, const Outcome& outcome) {
  const std::vector<double> per_token = outcome.time_per_token();
  const std::vector<double> first = outcome.time_to_first();
  BenchRow row;
  row.name = fmt::format("{}, {:g} requests/s", name, rate);
  row.shape = fmt::format("{} + {} tokens, at most {} at once{}", setup.tokens, setup.generate, outcome.most_running,
                          setup.disaggregated ? ", prefilled elsewhere" : "");
  row.time_us = percentile(per_token, 0.5) * 1e6;
  row.correct = outcome.agrees && std::all_of(outcome.requests.begin(), outcome.requests.end(),
                                              [&](const Served& request) { return request.tokens <= outcome.wanted; });
  const auto ended = static_cast<double>(per_token.size());
  row.metrics = {{"requests_per_s", rate},
                 {"requests", static_cast<double>(outcome.requests.size())},
                 {"finished", ended},
                 {"tokens_per_s", outcome.tokens_per_s}};
  for (const auto& [label, share] : {std::pair{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}}) {
    row.metrics.emplace_back(fmt::format("tpot_{}_ms", label), percentile(per_token, share) * 1e3);
    row.metrics.emplace_back(fmt::format("ttft_{}_ms", label), percentile(first, share) * 1e3);
  }
  row.note = fmt::format(
      "TPOT {:.2f} / {:.2f} / {:.2f} ms, first token {:.0f} / {:.0f} / {:.0f} ms (P50 / P95 / P99), {:.0f} tokens/s, "
      "{:.0f} of {} requests ended",
      percentile(per_token, 0.5) * 1e3, percentile(per_token, 0.95) * 1e3, percentile(per_token, 0.99) * 1e3,
      percentile(first, 0.5) * 1e3, percentile(first, 0.95) * 1e3, percentile(first, 0.99) * 1e3, outcome.tokens_per_s, ended,
      outcome.requests.size());
  if (ended < kLeastForP95) row.note += " (too few: P95 is the slowest; take more --seconds)";
  return row;
}

/// Pages for `batch` requests (and what is handed over), or as many as the memory holds.
int pages_within(const ServeSetup& setup, const Plan* plan, double memory) {
  const int least = setup.disaggregated ? 2 : 1;  // requests
  const int one = pages_of_request(setup, plan);
  const double page_bytes = setup.pool_bytes(plan, 1) / one;
  const int pages = static_cast<int>(std::min<double>((setup.batch + least - 1.0) * one, memory / page_bytes));
  if (pages >= least * one) return pages;
  throw InputError(fmt::format("{} of {} + {} tokens {} {:.1f} GiB of pages, and {:.1f} GiB are free",
                               least == 1 ? "one request" : "two requests", setup.tokens, setup.generate,
                               least == 1 ? "takes" : "take", least * one * page_bytes / (1 << 30), memory / (1 << 30)),
                   "choose shorter ones with --tokens and --generate");
}

}  // namespace

std::vector<BenchRow> measure_rates(const ServeSetup& setup, const Plan& plan, std::span<const double> rates, double seconds,
                                    double memory) {
  const int dense_pages = pages_within(setup, nullptr, memory);
  const int flow_pages = pages_within(setup, &plan, memory);
  std::vector<BenchRow> rows;
  for (const double rate : rates) {
    const Outcome dense = serve(setup, nullptr, dense_pages, rate, seconds);
    const Outcome flow = serve(setup, &plan, flow_pages, rate, seconds);
    require_measured(dense, rate);
    require_measured(flow, rate);
    rows.push_back(row_of(setup, "dense", rate, dense));
    rows.push_back(row_of(setup, plan.graph.name, rate, flow));
    BenchRow& row = rows.back();
    const auto times = [&](double share) {
      return percentile(dense.time_per_token(), share) / percentile(flow.time_per_token(), share);
    };
    const double tokens = flow.tokens_per_s / dense.tokens_per_s;
    row.metrics.insert(row.metrics.end(),
                       {{"tpot_p50_ratio", times(0.5)}, {"tpot_p95_ratio", times(0.95)}, {"tokens_ratio", tokens}});
    row.note += fmt::format(", dense's TPOT is {:.2f}x / {:.2f}x / {:.2f}x of it, throughput {:.2f}x dense", times(0.5),
                            times(0.95), times(0.99), tokens);
  }
  return rows;
}

}  // namespace sluice
