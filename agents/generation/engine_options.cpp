#include "agents/generation/engine_options.h"

#include <algorithm>

namespace sluice {

EngineOptions options_of_engine(const GenerationOptions& options, const DeviceInfo& device, const EngineRoom& room) {
  constexpr size_t kGiB = size_t{1} << 30;
  constexpr size_t kBeside = kGiB;       // of an engine on CUDA: activations, what its flow computes, recorded steps
  constexpr size_t kJudging = 8 * kGiB;  // of a process that judges, beside the model's weights
  constexpr size_t kStates = 5 * kGiB;   // of a flow, beside a pool whose size is given
  EngineOptions engine;
  const bool cuda = device.name == "cuda";
  engine.max_batch = cuda ? 64 : 16;
  engine.max_pass_tokens = cuda ? 2048 : 256;  // a pass at great depth is what whoever comes next waits for
  if (options.pool_bytes > 0) {
    engine.pool_bytes = options.pool_bytes;
    if (cuda) engine.state_bytes = options.pool_bytes + kStates;
  } else if (cuda) {
    const size_t spare = options.shares_device ? room.weight_bytes + kJudging : 0;
    // Each has a pool of its own; or there are two at least, of pages of different sizes, each of half of the engines.
    const int engines = std::max(1, room.engines_to_come);
    const int pools = options.shares_cache ? std::min(2, engines) : engines;
    const size_t share = (room.free_bytes - std::min(room.free_bytes, spare)) / static_cast<size_t>(pools);
    const size_t left = share - std::min(share, kBeside * static_cast<size_t>((engines + pools - 1) / pools));
    engine.state_bytes = std::max(left / 2, engine.pool_bytes);
    engine.pool_bytes = std::max(room.keeps_state ? left / 2 : left, engine.pool_bytes);
  }
  engine.kv = options.kv.value_or(engine.kv);
  if (options.batch > 0) engine.max_batch = options.batch;
  if (options.chunk > 0) engine.max_pass_tokens = options.chunk;
  engine.max_pass_tokens = std::max(engine.max_pass_tokens, engine.max_batch);
  return engine;
}

}  // namespace sluice
