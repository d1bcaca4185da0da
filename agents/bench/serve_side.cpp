#include "agents/bench/serve_side.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "agents/evaluation/step_timing.h"
#include "host/serving/random.h"
#include "kernels/device/pass_batch.h"

namespace sluice {
namespace {

constexpr int kDensePage = 16;

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::vector<int32_t> ServeSetup::prompt_of(int sequence) const {
  const int vocabulary = config.vocabulary;
  const auto seed = static_cast<uint64_t>(own_prompts ? 7 + sequence : 7);
  std::vector<int32_t> prompt;
  for (int i = 0; i < tokens; ++i) {
    prompt.push_back(static_cast<int32_t>(counter_uniform(seed, static_cast<uint64_t>(i)) * vocabulary));
  }
  if (disaggregated) prompt.push_back(0);
  if (!own_prompts) prompt.back() = (prompt.back() + sequence) % vocabulary;  // so that they do not decode in step
  return prompt;
}

int ServeSetup::most_generated() const {
  if (!own_prompts) return generate + (disaggregated ? 1 : 0);
  const int64_t rows = int64_t{batch} * tokens;
  return generate + static_cast<int>(rows / std::max(1, chunk - batch)) + 2;
}

EngineOptions ServeSetup::options(const Plan* plan, int sequences) const {
  EngineOptions engine;
  const int page = plan != nullptr ? plan->layout.page : kDensePage;
  engine.page = page;
  engine.pages = sequences * pages_for(tokens + most_generated(), page);
  engine.max_batch = sequences;
  engine.max_pass_tokens = std::max(chunk, sequences);
  engine.prefix_cache = false;  // every sequence reads K and V of its own
  engine.keep_all = !own_prompts;
  return engine;
}

double ServeSetup::pool_bytes(const Plan* plan, int sequences) const {
  const EngineOptions engine = options(plan, sequences);
  const PageLayout layout =
      plan != nullptr ? plan->layout : page_layout({config.head_dim, config.group(), engine.page, engine.kv}, {});
  return static_cast<double>(layout.bytes) * config.layers * config.kv_heads * engine.pages;
}

double ServeSetup::scratch_bytes() const {
  const double wide =
      2.0 * config.hidden + 2.0 * (config.query_heads + config.kv_heads) * config.head_dim + 3.0 * config.intermediate;
  const double row = 4.0 * config.hidden + wide * static_cast<double>(size_of(device.info().activation));
  return std::max(chunk, batch) * row + 2 * 4.0 * batch * config.vocabulary;  // logits on the device and on the host
}

double ServeSetup::weight_bytes() const {
  const double heads = (2.0 * config.query_heads + 2.0 * config.kv_heads) * config.head_dim;
  const double layer = config.hidden * (heads + 3.0 * config.intermediate);
  const double tables = (config.tied_embeddings ? 1.0 : 2.0) * config.vocabulary * config.hidden;
  return 2 * (config.layers * layer + tables);
}

ServeSide::ServeSide(const ServeSetup& setup, const Plan* plan, const std::shared_ptr<const KvSnapshot>& snapshot)
    : kv_(plan != nullptr ? plan->layout.kv : setup.options(plan, 1).kv),
      pool_bytes_(setup.pool_bytes(plan, setup.batch)),
      resident_overhead_(-resident_bytes()),
      tokens_(static_cast<size_t>(setup.batch)),
      engine_(setup.device, *setup.model, plan, setup.options(plan, setup.batch)) {
  engine_.on_token([this](uint64_t id, const GeneratedToken& generated) { tokens_[id - 1].push_back(generated.token); });
  const int most = setup.most_generated();
  for (auto& list : tokens_) list.reserve(static_cast<size_t>(most));
  for (int i = 0; i < setup.batch; ++i) {
    Request request;
    request.prompt = setup.prompt_of(i);
    request.max_tokens = most;
    request.ignore_eos = true;
    request.snapshot = snapshot;
    engine_.submit(std::move(request));
  }
  // Passes in which prompts are computed are no decode passes, but the first of a short prompt may be one.
  const auto all_decode = [&] {
    return std::none_of(tokens_.begin(), tokens_.end(), [](const auto& list) { return list.empty(); });
  };
  while (!all_decode()) require_step(engine_);
  run(kWarmPasses);
  const EngineStats now = engine_.stats();
  const double used = static_cast<double>(now.pages_total - now.pages_free) / now.pages_total;  // pages are mapped when written
  resident_overhead_ += resident_bytes() - pool_bytes_ * used;
}

double ServeSide::turn() { return time_steps(engine_, kStepsPerTurn); }

void ServeSide::run(int passes) {
  const size_t end = tokens_.front().size() + static_cast<size_t>(passes);
  while (tokens_.front().size() + 1 < end) require_step(engine_);
  engine_.settle();
  if (tokens_.front().size() < end) require_step(engine_);  // none ran ahead
}

}  // namespace sluice
