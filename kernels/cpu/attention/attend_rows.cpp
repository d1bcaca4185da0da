// What some rows of a prompt give the tokens before them, for rules that say which tokens are computed again.

#include <algorithm>

#include "kernels/cpu/attention/attend.h"

namespace sluice::cpu {

void Attend::add_row_masses(const BatchRows& pass, const Device::RowMasses& call, const Matrix& q, const Matrix& masses) {
  const CpuPool& pool = pass.pool();
  layer_ = &pool.layer(call.layer);
  const PageLayout& layout = layer_->layout;
  const int kv_heads = pool.kv_heads();
  const int group = call.query_heads / kv_heads;
  const GroupPages& kept = pass.group(layer_->group);
  const int32_t* const pages = pass.pages(layer_->group, 0).data();
  const auto count = static_cast<int>(call.rows.size());
  std::vector<int32_t> slots;
  std::vector<float> queries(call.rows.size() * static_cast<size_t>(q.columns));
  for (size_t i = 0; i < call.rows.size(); ++i) {
    slots.push_back(kept.slots[static_cast<size_t>(call.rows[i])]);
    std::copy_n(q.row(call.rows[i]), q.columns, queries.data() + i * static_cast<size_t>(q.columns));
  }
  const int length = slots.back() + 1;
  std::vector<float> log_sums(static_cast<size_t>(kv_heads) * call.rows.size() * static_cast<size_t>(group));
  std::vector<float> outputs(queries.size());
  const size_t floats = std::max(prefill_scratch_floats(layout.head_dim), mass_scratch_floats(layout.head_dim));
  std::vector<MappedMemory> scratch;
  for (int thread = 0; thread < pool_.threads(); ++thread) scratch.emplace_back(floats * sizeof(float));
  const auto rows_of = [&](int head, int first, int rows) {
    const size_t at = static_cast<size_t>(first) * static_cast<size_t>(q.columns) +
                      static_cast<size_t>(head) * static_cast<size_t>(group * layout.head_dim);
    return PrefillTile{.queries = queries.data() + at,
                       .query_stride = q.columns,
                       .out = outputs.data() + at,
                       .out_stride = q.columns,
                       .rows = rows,
                       .slots = slots.data() + first,
                       .length = length,
                       .log_sums = log_sums.data() + (static_cast<size_t>(head) * call.rows.size() + static_cast<size_t>(first)) *
                                                         static_cast<size_t>(group)};
  };
  // What the scores of a row sum to comes out of attention to what it sees.
  const int together = prefill_tile_rows(group);
  const int tiles = (count + together - 1) / together;
  pool_.run(int64_t{kv_heads} * tiles, [&](int64_t index, int thread) {
    const auto head = static_cast<int>(index % kv_heads);
    const int first = (tiles - 1 - static_cast<int>(index / kv_heads)) * together;
    attend_tile(kv_pages(head), pages, rows_of(head, first, std::min(together, count - first)), group, call.scale,
                scratch[static_cast<size_t>(thread)].as<float>());
  });
  const int blocks = (length + kMassTokens - 1) / kMassTokens;
  std::vector<float> given(static_cast<size_t>(kv_heads) * static_cast<size_t>(length) * static_cast<size_t>(group));
  pool_.run(int64_t{kv_heads} * blocks, [&](int64_t index, int thread) {
    const auto head = static_cast<int>(index % kv_heads);
    const int first = static_cast<int>(index / kv_heads) * kMassTokens;
    const size_t at =
        (static_cast<size_t>(head) * static_cast<size_t>(length) + static_cast<size_t>(first)) * static_cast<size_t>(group);
    add_masses(kv_pages(head), pages, rows_of(head, 0, count), first, std::min(kMassTokens, length - first), group, call.scale,
               scratch[static_cast<size_t>(thread)].as<float>(), given.data() + at);
  });
  const bool by_head = masses.rows == call.query_heads;
  for (int head = 0; head < call.query_heads; ++head) {
    float* const sums = masses.row(by_head ? head : 0);
    const float* const of_head = given.data() + int64_t{head / group} * length * group + head % group;
    const int known = by_head || head == 0 ? call.known : length;
    for (int token = 0; token < length; ++token) {
      const float mass = of_head[int64_t{token} * group];
      sums[token] = token < known ? sums[token] + mass : mass;
    }
  }
}

}  // namespace sluice::cpu
