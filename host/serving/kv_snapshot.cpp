#include "host/serving/kv_snapshot.h"

#include <fmt/format.h>

#include <algorithm>

#include "scripting/base/error.h"

namespace sluice {
namespace {

/// Numbers of the keys, or of the values, of `tokens` tokens of a layer. A snapshot has the keys of the first layer, its values,
/// then those of the next.
size_t numbers_of_layer(size_t tokens, const Pool& pool) {
  return tokens * static_cast<size_t>(pool.kv_heads()) * static_cast<size_t>(pool.layout().head_dim);
}

}  // namespace

void check_snapshot(const KvSnapshot& snapshot, std::span<const int32_t> prompt, const Device& device, const Pool& pool) {
  const size_t wanted = 2 * static_cast<size_t>(pool.layers()) * numbers_of_layer(snapshot.tokens.size(), pool) * sizeof(float);
  if (snapshot.bytes() != wanted || (wanted > 0 && snapshot.device != &device)) {
    throw InputError(fmt::format("a snapshot of {} tokens holds {} bytes; on this device the model has {}",
                                 snapshot.tokens.size(), snapshot.bytes(), wanted),
                     "snapshots go between engines of one model on one device only");
  }
  const size_t common = std::min(snapshot.tokens.size(), prompt.size());
  if (!std::equal(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(common), snapshot.tokens.begin())) {
    throw InputError("the snapshot's tokens are not a prefix of the prompt");
  }
}

std::shared_ptr<const KvSnapshot> read_snapshot(std::span<const int32_t> tokens, const PagesByGroup& pages, Device& device,
                                                const Pool& pool) {
  auto snapshot = std::make_shared<KvSnapshot>();
  snapshot->tokens.assign(tokens.begin(), tokens.end());
  snapshot->device = &device;
  if (tokens.empty()) return snapshot;
  const size_t numbers = numbers_of_layer(tokens.size(), pool);
  snapshot->memory = device.allocate(2 * static_cast<size_t>(pool.layers()) * numbers * sizeof(float));
  auto* keys = static_cast<float*>(snapshot->memory->data());
  for (int layer = 0; layer < pool.layers(); ++layer, keys += 2 * numbers) {
    const auto group = static_cast<size_t>(pool.map().place_of(layer).group);
    pool.read_layer(layer, pages[group], static_cast<int>(tokens.size()), keys, keys + numbers);
  }
  return snapshot;
}

void write_snapshot(const KvSnapshot& snapshot, int tokens, const PagesByGroup& pages, const SlotsByGroup& slots, Pool& pool) {
  const auto* keys = static_cast<const float*>(snapshot.memory->data());
  const size_t numbers = numbers_of_layer(snapshot.tokens.size(), pool);
  for (int layer = 0; layer < pool.layers(); ++layer, keys += 2 * numbers) {
    const auto group = static_cast<size_t>(pool.map().place_of(layer).group);
    pool.write_layer(layer, pages[group], tokens, slots[group], keys, keys + numbers);
  }
}

}  // namespace sluice
