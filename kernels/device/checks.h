#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace sluice {

// What every device checks at entry. InternalError names the operation and what disagrees.

void require_equal(const char* operation, const char* dimension, int64_t got, int64_t wanted);
void require_layer(const char* operation, int layer, const Pool& pool);
/// logits are float32, and each row lies in them.
void require_samples(const Matrix& logits, std::span<const SampleRow> rows);
/// Every token is in the vocabulary, or -1 - i for a row i of `picks` (null: there are none).
void require_embeddable(std::span<const int32_t> tokens, int64_t vocabulary, const Device::Picks* picks);
/// Of AttentionOperations::add_row_masses, whose sizes are checked; returns what it returns.
int require_row_masses(const Device::RowMasses& call, const Matrix& q, const Matrix& masses, const PassBatch& batch,
                       const Pool& pool);
/// Of ModelOperations::squared_distances; `sums`: that there is room for.
void require_parts(const char* operation, const Matrix& a, const Matrix& b, int parts, size_t sums);
/// Every index is in [0, limit).
void require_indices(const char* operation, std::span<const int32_t> indices, int64_t limit);

/// Throws InputError unless the device attends heads of which `group` share a KV head.
void require_group(const DeviceInfo& device, int group);
/// The pool lays out pages of `layer`, and those of its fields in `field_group`, as the plan does.
void require_pages_of(const char* operation, const Plan& plan, const Pool& pool, int layer, int field_group);
/// The layers of the pool that run `plan`, each of which has pages as it lays them out, and a group that tokens leave. Throws
/// InternalError where nobody does.
std::vector<int> evicted_layers(const Plan& plan, const Pool& pool, const PassBatch& batch);
/// `stale` is of `layer`, whose layout is the plan's.
void require_stale(const Plan& plan, const Pool& pool, int layer, const Device::StalePages& stale);
/// `page` lies in the pool.
void require_page(const Pool& pool, int group, int32_t page);
void require_pages(const Pool& pool, int group, std::span<const int32_t> pages);
/// `tokens` tokens fit `pages`, which lie in the pool.
void require_tokens(const Pool& pool, int group, std::span<const int32_t> pages, int tokens);
/// `slots`, empty or one for each token, are of `pages`, or -1.
void require_slots(const Pool& pool, int group, std::span<const int32_t> pages, int tokens, std::span<const int32_t> slots);
/// Runs that lie in pages of the group, whose positions are those of a text.
void require_runs(const Pool& pool, int group, std::span<const ShiftedRun> runs);
/// `moves` name pages and tokens of a group.
void require_moves(const Pool& pool, int group, std::span<const TokenMove> moves);
/// As many targets as sources, all of which lie in the pool.
void require_copies(const Pool& pool, int group, std::span<const int32_t> sources, std::span<const int32_t> targets);
/// The arrays of a batch agree with each other, and its pages lie in `pool`.
void require_batch(const PassBatch& batch, const Pool& pool);

}  // namespace sluice
