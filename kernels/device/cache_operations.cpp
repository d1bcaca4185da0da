#include "kernels/device/cache_operations.h"

#include <algorithm>
#include <map>

#include "kernels/device/checks.h"
#include "kernels/device/key_turns.h"

namespace sluice {

void CacheOperations::copy_shifted(Pool& pool, GroupLayers layers, std::span<const ShiftedRun> runs, const Rope& rope) {
  const int group = layers.group;
  require_runs(pool, group, runs);
  if (runs.empty()) return;
  const PageLayout& layout = pool.layout(group);
  const KeyTurns turns(rope, layout.head_dim, runs);
  std::map<int32_t, int> places;  // of a page among those that are read
  std::vector<int32_t> sources;
  std::vector<int32_t> targets;
  std::vector<int32_t> slots;
  for (const ShiftedRun& run : runs) {
    if (places.try_emplace(run.from_page, static_cast<int>(sources.size())).second) sources.push_back(run.from_page);
    for (int token = 0; token < run.tokens; ++token)
      slots.push_back(static_cast<int32_t>(targets.size()) * layout.page + run.to_token + token);
    targets.push_back(run.to_page);
  }
  const auto row = static_cast<size_t>(pool.kv_heads()) * static_cast<size_t>(layout.head_dim);
  const int read = static_cast<int>(sources.size()) * layout.page;
  std::vector<float> keys(static_cast<size_t>(read) * row);
  std::vector<float> values(keys.size());
  std::vector<float> shifted_keys(slots.size() * row);
  std::vector<float> shifted_values(shifted_keys.size());
  for (const int layer : pool.map().group(group).layers) {
    if (layer < layers.first) continue;
    pool.read_layer(layer, sources, read, keys.data(), values.data());
    float* to_keys = shifted_keys.data();
    float* to_values = shifted_values.data();
    for (size_t i = 0; i < runs.size(); ++i) {
      const size_t from = static_cast<size_t>(places.at(runs[i].from_page) * layout.page + runs[i].from_token) * row;
      for (int token = 0; token < runs[i].tokens; ++token, to_keys += row, to_values += row) {
        std::copy_n(keys.data() + from + static_cast<size_t>(token) * row, row, to_keys);
        std::copy_n(values.data() + from + static_cast<size_t>(token) * row, row, to_values);
        for (int head = 0; head < pool.kv_heads(); ++head) turns.turn(i, token, to_keys + head * layout.head_dim);
      }
    }
    pool.write_layer(layer, targets, static_cast<int>(slots.size()), slots, shifted_keys.data(), shifted_values.data());
  }
}

}  // namespace sluice
