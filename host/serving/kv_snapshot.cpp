#include "host/serving/kv_snapshot.h"

#include <fmt/format.h>

#include <algorithm>

#include "scripting/base/error.h"

namespace sluice {
namespace {

// Numbers of one token of one layer.
size_t token_size(const Pool& pool) { return static_cast<size_t>(pool.kv_heads()) * static_cast<size_t>(pool.layout().head_dim); }

// The first `tokens` of `all` tokens of every layer.
std::vector<float> take_tokens(const std::vector<float>& values, size_t layers, size_t all, size_t tokens, size_t size) {
  std::vector<float> taken;
  taken.reserve(layers * tokens * size);
  for (size_t layer = 0; layer < layers; ++layer) {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(layer * all * size);
    taken.insert(taken.end(), begin, begin + static_cast<ptrdiff_t>(tokens * size));
  }
  return taken;
}

}  // namespace

void check_snapshot(const KvSnapshot& snapshot, std::span<const int32_t> prompt, const Pool& pool) {
  const size_t numbers = static_cast<size_t>(pool.layers()) * snapshot.tokens.size() * token_size(pool);
  if (snapshot.keys.size() != numbers || snapshot.values.size() != numbers) {
    throw InputError(fmt::format("a snapshot of {} tokens holds {} keys and {} values; this model has {} of each",
                                 snapshot.tokens.size(), snapshot.keys.size(), snapshot.values.size(), numbers),
                     "snapshots go between engines of the same model only");
  }
  const size_t common = std::min(snapshot.tokens.size(), prompt.size());
  if (!std::equal(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(common), snapshot.tokens.begin())) {
    throw InputError("the snapshot's tokens are not a prefix of the prompt");
  }
}

std::shared_ptr<const KvSnapshot> read_snapshot(std::span<const int32_t> tokens, std::span<const int32_t> pages,
                                                const Pool& pool) {
  auto snapshot = std::make_shared<KvSnapshot>();
  snapshot->tokens.assign(tokens.begin(), tokens.end());
  if (tokens.empty()) return snapshot;
  const size_t numbers = static_cast<size_t>(pool.layers()) * tokens.size() * token_size(pool);
  snapshot->keys.resize(numbers);
  snapshot->values.resize(numbers);
  pool.read(0, pages, static_cast<int>(tokens.size()), snapshot->keys.data(), snapshot->values.data());
  return snapshot;
}

void write_snapshot(const KvSnapshot& snapshot, int tokens, std::span<const int32_t> pages, Pool& pool) {
  if (tokens == static_cast<int>(snapshot.tokens.size())) {
    pool.write(0, pages, tokens, snapshot.keys.data(), snapshot.values.data());
    return;
  }
  const auto take = [&](const std::vector<float>& values) {
    return take_tokens(values, static_cast<size_t>(pool.layers()), snapshot.tokens.size(), static_cast<size_t>(tokens),
                       token_size(pool));
  };
  pool.write(0, pages, tokens, take(snapshot.keys).data(), take(snapshot.values).data());
}

}  // namespace sluice
