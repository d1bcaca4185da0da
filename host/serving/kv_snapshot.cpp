#include "host/serving/kv_snapshot.h"

#include <fmt/format.h>

#include <algorithm>

#include "scripting/base/error.h"

namespace sluice {
namespace {

/// Numbers of the keys, or of the values, of `tokens` tokens in so many layers.
size_t numbers_of(size_t layers, size_t tokens, const Pool& pool) {
  return layers * tokens * static_cast<size_t>(pool.kv_heads()) * static_cast<size_t>(pool.layout().head_dim);
}

/// Of a group's layers. A snapshot has the keys of the first group, its values, then those of the next.
size_t numbers_of_group(size_t group, size_t tokens, const Pool& pool) {
  return numbers_of(pool.map().group(static_cast<int>(group)).layers.size(), tokens, pool);
}

}  // namespace

void check_snapshot(const KvSnapshot& snapshot, std::span<const int32_t> prompt, const Device& device, const Pool& pool) {
  const size_t wanted = 2 * numbers_of(static_cast<size_t>(pool.layers()), snapshot.tokens.size(), pool) * sizeof(float);
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
  snapshot->memory = device.allocate(2 * numbers_of(static_cast<size_t>(pool.layers()), tokens.size(), pool) * sizeof(float));
  auto* keys = static_cast<float*>(snapshot->memory->data());
  for (size_t group = 0; group < pages.size(); ++group) {
    const size_t numbers = numbers_of_group(group, tokens.size(), pool);
    pool.read(static_cast<int>(group), pages[group], static_cast<int>(tokens.size()), keys, keys + numbers);
    keys += 2 * numbers;
  }
  return snapshot;
}

void write_snapshot(const KvSnapshot& snapshot, int tokens, const PagesByGroup& pages, Pool& pool) {
  const auto* keys = static_cast<const float*>(snapshot.memory->data());
  const auto kept = static_cast<int>(snapshot.tokens.size());
  for (size_t group = 0; group < pages.size(); ++group) {
    const size_t numbers = numbers_of_group(group, snapshot.tokens.size(), pool);
    pool.write(static_cast<int>(group), pages[group], tokens, keys, keys + numbers, kept);
    keys += 2 * numbers;
  }
}

}  // namespace sluice
