#include "kernels/cpu/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "kernels/cpu/products/rows.h"
#include "kernels/cpu/products/weight.h"
#include "kernels/cpu/runtime/free_memory.h"
#include "kernels/cpu/simd/amx.h"
#include "kernels/cpu/simd/targets.h"
#include "kernels/device/checks.h"
#include "kernels/device/key_turns.h"
// After targets.h, so that HWY_TARGETS are the ones that kernels are compiled for.
#include "hwy/targets.h"

namespace sluice::cpu {
namespace {

void require_f32(const char* operation, const Matrix& matrix) {
  if (matrix.type != DataType::kF32) throw InternalError(fmt::format("{}: activations on the CPU are f32", operation));
}

/// The flow as this device compiled it.
const DeviceFlow& as_device_flow(const CompiledFlow& flow) {
  const auto* mine = dynamic_cast<const DeviceFlow*>(&flow);
  if (mine == nullptr) throw InternalError("a flow of another device was given to the CPU");
  return *mine;
}

CpuPool& as_cpu_pool(Pool& pool) {
  auto* mine = dynamic_cast<CpuPool*>(&pool);
  if (mine == nullptr) throw InternalError("a page pool of another device was given to the CPU");
  return *mine;
}

class CpuPicks final : public Device::Picks {
 public:
  explicit CpuPicks(int most_rows) : Picks(most_rows) {
    for (Call& call : calls_) {
      call.results.reserve(static_cast<size_t>(most_rows));
      call.probabilities.resize(static_cast<size_t>(most_rows));
    }
  }

  struct Call {
    std::vector<Sampled> results;                 // as many as the call has rows
    std::vector<RowProbabilities> probabilities;  // [most_rows]
  };
  /// Room for the results of another call.
  Call& begin_call(size_t rows) {
    last_ = begin(rows);
    calls_[last_].results.resize(rows);
    return calls_[last_];
  }
  std::span<const Sampled> take_results(size_t rows) {
    taken_ = take(rows);
    return calls_[taken_].results;
  }
  std::span<const Sampled> last() const { return calls_[last_].results; }
  const RowProbabilities& probabilities(size_t place) const override { return calls_[taken_].probabilities.at(place); }

 private:
  std::array<Call, 2> calls_;
  int last_ = 0;
  int taken_ = 0;
};

CpuPicks& as_cpu(Device::Picks& picks) {
  auto* mine = dynamic_cast<CpuPicks*>(&picks);
  if (mine == nullptr) throw InternalError("picks of another device were given to the CPU");
  return *mine;
}

const CpuPicks& as_cpu(const Device::Picks& picks) { return as_cpu(const_cast<Device::Picks&>(picks)); }

}  // namespace

CpuDevice::CpuDevice(const CpuOptions& options)
    : threads_(options.threads),
      tiles_(options.tiles && amx_available()),
      attend_(threads_, tiles_),
      matmul_(threads_, tiles_),
      samplers_(static_cast<size_t>(threads_.threads())) {
  info_.name = "cpu";
  info_.activation = DataType::kF32;
  info_.threads = threads_.threads();
  info_.most_group = kMostHeads;
  const auto supported = static_cast<uint64_t>(hwy::SupportedTargets() & HWY_TARGETS);
  info_.description = fmt::format("{}{}, {} threads", hwy::TargetName(static_cast<int64_t>(supported & (~supported + 1))),
                                  tiles_ ? " and AMX" : "", info_.threads);
}

std::unique_ptr<Memory> CpuDevice::allocate(size_t bytes) { return std::make_unique<MappedMemory>(bytes); }

void CpuDevice::write(void* target, const void* host_source, size_t bytes) {
  const auto told = operation("write");
  std::memcpy(target, host_source, bytes);
}

void CpuDevice::read(void* host_target, const void* source, size_t bytes) {
  const auto told = operation("read");
  std::memcpy(host_target, source, bytes);
}

size_t CpuDevice::free_bytes() const { return free_memory(); }

std::unique_ptr<Weight> CpuDevice::create_weight(const void* values, DataType type, int64_t rows, int64_t columns) {
  matmul_.reserve(columns);
  return std::make_unique<CpuWeight>(values, type, rows, columns);
}

std::unique_ptr<Pool> CpuDevice::create_pool(const PoolMap& map) { return std::make_unique<CpuPool>(map); }

std::unique_ptr<CompiledFlow> CpuDevice::compile(const Plan& plan, int layers, int kv_heads) {
  const int group = plan.graph.geometry.group;
  if (group > kMostHeads) {
    throw FlowError({plan.graph.name, 0},
                    fmt::format("{} query heads share a KV head; the CPU attends for at most {}", group, kMostHeads));
  }
  auto flow = std::make_unique<DeviceFlow>(compile_flow(plan, layers, kv_heads), threads_.threads(), flows_);
  flow->ensure(1);
  return flow;
}

void CpuDevice::reserve(const Limits& limits) {
  if (limits.kv_heads < 1 || limits.query_heads < limits.kv_heads) throw InternalError("reserve: heads must be at least 1");
  require_group(info_, limits.query_heads / limits.kv_heads);
  pass_.reserve(limits);
  rope_.reserve(limits.rows, limits.head_dim);
  attend_.reserve(limits);
  for (Sampler& sampler : samplers_) sampler.reserve(limits.vocabulary);
  for (const DeviceFlow* flow : flows_->flows) flow->ensure(limits.pages_per_sequence);
}

void CpuDevice::begin_pass(const PassBatch& batch, Pool& pool) { pass_.begin(batch, as_cpu_pool(pool)); }

template <typename Body>
void CpuDevice::for_rows(int64_t rows, int64_t columns, Body&& body) {
  // A task of a few thousand numbers is worth handing out.
  const int64_t together = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, columns));
  threads_.run((rows + together - 1) / together, [&](int64_t index, int) {
    const int64_t last = std::min(rows, (index + 1) * together);
    for (int64_t row = index * together; row < last; ++row) body(row);
  });
}

std::unique_ptr<Device::Picks> CpuDevice::create_picks(int rows) { return std::make_unique<CpuPicks>(rows); }

void CpuDevice::embed(const Weight& table, std::span<const int32_t> tokens, const Picks* picks, Matrix out) {
  const auto told = operation("embed");
  require_f32("embed", out);
  require_equal("embed", "out.rows", out.rows, static_cast<int64_t>(tokens.size()));
  require_equal("embed", "out.columns", out.columns, table.columns());
  const CpuWeight& weight = as_cpu(table);
  require_embeddable(tokens, table.rows(), picks);
  const std::span<const Sampled> picked = picks == nullptr ? std::span<const Sampled>() : as_cpu(*picks).last();
  const auto token = [&](int64_t row) {
    return tokens[row] >= 0 ? tokens[row] : picked[static_cast<size_t>(-1 - tokens[row])].token;
  };
  for_rows(out.rows, out.columns, [&](int64_t row) { weight.unpack_row(token(row), out.row(row)); });
}

void CpuDevice::rms_norm(Matrix x, const Weight& gain, float epsilon, Matrix out) {
  const auto told = operation("rms_norm");
  require_f32("rms_norm", x);
  require_f32("rms_norm", out);
  require_equal("rms_norm", "out.rows", out.rows, x.rows);
  require_equal("rms_norm", "out.columns", out.columns, x.columns);
  require_equal("rms_norm", "gain.columns", gain.columns(), x.columns);
  const float* factors = as_cpu(gain).vector();
  for_rows(x.rows, x.columns, [&](int64_t row) { rms_norm_row(x.row(row), factors, x.columns, epsilon, out.row(row)); });
}

void CpuDevice::add_rms_norm(Matrix residual, Matrix delta, const Weight& gain, float epsilon, Matrix out) {
  const auto told = operation("add_rms_norm");
  require_f32("add_rms_norm", residual);
  require_f32("add_rms_norm", delta);
  require_f32("add_rms_norm", out);
  require_equal("add_rms_norm", "delta.rows", delta.rows, residual.rows);
  require_equal("add_rms_norm", "delta.columns", delta.columns, residual.columns);
  require_equal("add_rms_norm", "out.rows", out.rows, residual.rows);
  require_equal("add_rms_norm", "out.columns", out.columns, residual.columns);
  require_equal("add_rms_norm", "gain.columns", gain.columns(), residual.columns);
  const float* factors = as_cpu(gain).vector();
  for_rows(residual.rows, residual.columns, [&](int64_t row) {
    add_row(residual.row(row), delta.row(row), residual.columns);
    rms_norm_row(residual.row(row), factors, residual.columns, epsilon, out.row(row));
  });
}

void CpuDevice::matmul(Matrix x, const Weight& weight, Matrix out) {
  const auto told = product("matmul", weight);
  require_f32("matmul", x);
  require_f32("matmul", out);
  require_equal("matmul", "x.columns", x.columns, weight.columns());
  require_equal("matmul", "out.columns", out.columns, weight.rows());
  require_equal("matmul", "out.rows", out.rows, x.rows);
  matmul_.run(x, as_cpu(weight), out);
}

void CpuDevice::silu_multiply(Matrix gate_up, Matrix out) {
  const auto told = operation("silu_multiply");
  require_f32("silu_multiply", gate_up);
  require_f32("silu_multiply", out);
  require_equal("silu_multiply", "gate_up.columns", gate_up.columns, 2 * out.columns);
  require_equal("silu_multiply", "out.rows", out.rows, gate_up.rows);
  for_rows(out.rows, out.columns,
           [&](int64_t row) { silu_multiply_row(gate_up.row(row), gate_up.row(row) + out.columns, out.columns, out.row(row)); });
}

void CpuDevice::gather_rows(Matrix x, std::span<const int32_t> rows, Matrix out) {
  const auto told = operation("gather_rows");
  require_f32("gather_rows", x);
  require_f32("gather_rows", out);
  require_equal("gather_rows", "out.rows", out.rows, static_cast<int64_t>(rows.size()));
  require_equal("gather_rows", "out.columns", out.columns, x.columns);
  require_indices("gather_rows", rows, x.rows);
  for (size_t i = 0; i < rows.size(); ++i) std::copy_n(x.row(rows[i]), x.columns, out.row(static_cast<int64_t>(i)));
}

void CpuDevice::squared_distances(Matrix a, Matrix b, int parts, std::span<float> out) {
  const auto told = operation("squared_distances");
  require_f32("squared_distances", a);
  require_f32("squared_distances", b);
  require_parts("squared_distances", a, b, parts, out.size());
  const int64_t columns = a.columns / parts;
  for_rows(a.rows, a.columns, [&](int64_t row) {
    for (int64_t part = 0; part < parts; ++part) {
      float sum = 0;
      for (int64_t i = part * columns; i < (part + 1) * columns; ++i)
        sum += (a.row(row)[i] - b.row(row)[i]) * (a.row(row)[i] - b.row(row)[i]);
      out[static_cast<size_t>(row * parts + part)] = sum;
    }
  });
}

void CpuDevice::append_row(const LayerPages& layer, int64_t row, const float* keys, const float* values) {
  const PageLayout& layout = layer.layout;
  const GroupPages& kept = pass_.group(layer.group);
  const int32_t* const pages = kept.page_indices.data() + kept.page_indptr[pass_.row_sequences()[row]];
  for (int head = 0; head < pass_.pool().kv_heads(); ++head) {
    const int slot = kept.slot(static_cast<int>(row), head);
    std::byte* to = layer.page(pages[slot / layout.page], head) + slot % layout.page * layout.head_dim * size_of(layout.kv);
    store_as(layout.kv, keys + static_cast<int64_t>(head) * layout.head_dim, layout.head_dim, to + layout.key_offset);
    store_as(layout.kv, values + static_cast<int64_t>(head) * layout.head_dim, layout.head_dim, to + layout.value_offset);
  }
}

void CpuDevice::rope_append(int layer, Matrix qkv, int query_heads, const Weight* query_gain, const Weight* key_gain,
                            float epsilon, const Rope& rope) {
  const auto told = operation("rope_append");
  if (!pass_.active()) throw InternalError("rope_append was called outside a pass");
  const CpuPool& pool = pass_.pool();
  require_layer("rope_append", layer, pool);
  const LayerPages& pages = pool.layer(layer);
  const int dim = pages.layout.head_dim;
  const int kv_heads = pool.kv_heads();
  require_f32("rope_append", qkv);
  require_equal("rope_append", "qkv.rows", qkv.rows, pass_.batch().rows());
  require_equal("rope_append", "qkv.columns", qkv.columns, static_cast<int64_t>(query_heads + 2 * kv_heads) * dim);
  if (query_gain != nullptr) require_equal("rope_append", "query_gain.columns", query_gain->columns(), dim);
  if (key_gain != nullptr) require_equal("rope_append", "key_gain.columns", key_gain->columns(), dim);
  const float* query_factors = query_gain == nullptr ? nullptr : as_cpu(*query_gain).vector();
  const float* key_factors = key_gain == nullptr ? nullptr : as_cpu(*key_gain).vector();
  rope_.prepare(rope, dim, pass_.positions(), pass_.number());
  for_rows(qkv.rows, qkv.columns, [&](int64_t row) {
    float* head = qkv.row(row);
    for (int h = 0; h < query_heads + kv_heads; ++h, head += dim) {
      const float* factors = h < query_heads ? query_factors : key_factors;
      if (factors != nullptr) rms_norm_row(head, factors, dim, epsilon, head);
      rotate_row(head, rope_.cosine(row), rope_.sine(row), dim / 2);
    }
    append_row(pages, row, qkv.row(row) + static_cast<int64_t>(query_heads) * dim, head);
  });
}

void CpuDevice::append(int layer, Matrix keys, Matrix values) {
  const auto told = operation("append");
  if (!pass_.active()) throw InternalError("append was called outside a pass");
  const CpuPool& pool = pass_.pool();
  require_layer("append", layer, pool);
  const LayerPages& pages = pool.layer(layer);
  const int64_t columns = static_cast<int64_t>(pool.kv_heads()) * pages.layout.head_dim;
  require_f32("append", keys);
  require_f32("append", values);
  require_equal("append", "keys.rows", keys.rows, pass_.batch().rows());
  require_equal("append", "values.rows", values.rows, pass_.batch().rows());
  require_equal("append", "keys.columns", keys.columns, columns);
  require_equal("append", "values.columns", values.columns, columns);
  for_rows(keys.rows, columns, [&](int64_t row) { append_row(pages, row, keys.row(row), values.row(row)); });
}

void CpuDevice::copy_shifted(Pool& pool, GroupLayers of, std::span<const ShiftedRun> runs, const Rope& rope) {
  const auto told = operation("copy_shifted");
  const CpuPool& memory = as_cpu_pool(pool);
  require_runs(pool, of.group, runs);
  std::vector<int> layers = pool.map().group(of.group).layers;
  std::erase_if(layers, [&](int layer) { return layer < of.first; });
  if (runs.empty() || layers.empty()) return;
  const PageLayout& layout = pool.layout(of.group);
  const KeyTurns turns(rope, layout.head_dim, runs);
  const auto count = static_cast<int64_t>(runs.size());
  const size_t row = static_cast<size_t>(layout.head_dim) * size_of(layout.kv);
  std::vector<std::vector<float>> keys(static_cast<size_t>(threads_.threads()),
                                       std::vector<float>(static_cast<size_t>(layout.head_dim)));
  threads_.run(static_cast<int64_t>(layers.size()) * count, [&](int64_t index, int thread) {
    const auto place = static_cast<size_t>(index % count);
    const ShiftedRun& run = runs[place];
    const LayerPages& pages = memory.layer(layers[static_cast<size_t>(index / count)]);
    std::vector<float>& key = keys[static_cast<size_t>(thread)];
    for (int head = 0; head < memory.kv_heads(); ++head) {
      const std::byte* const from = pages.page(run.from_page, head) + static_cast<size_t>(run.from_token) * row;
      std::byte* const to = pages.page(run.to_page, head) + static_cast<size_t>(run.to_token) * row;
      std::memcpy(to + layout.value_offset, from + layout.value_offset, static_cast<size_t>(run.tokens) * row);
      for (int token = 0; token < run.tokens; ++token) {
        const size_t at = layout.key_offset + static_cast<size_t>(token) * row;
        load_from(layout.kv, from + at, layout.head_dim, key.data());
        rotate_row(key.data(), turns.cosine(place, token), turns.sine(place, token), layout.head_dim / 2);
        store_as(layout.kv, key.data(), layout.head_dim, to + at);
      }
    }
  });
}

int CpuDevice::add_row_masses(const RowMasses& call, Matrix q, Matrix masses) {
  const auto told = operation("row masses");
  if (!pass_.active()) throw InternalError("row masses were asked for outside a pass");
  require_layer("row masses", call.layer, pass_.pool());
  require_f32("row masses", q);
  const int seen = require_row_masses(call, q, masses, pass_.batch(), pass_.pool());
  if (!call.rows.empty()) attend_.add_row_masses(pass_, call, q, masses);
  return seen;
}

void CpuDevice::evict(const CompiledFlow& flow) {
  const auto told = operation("evict");
  if (!pass_.active()) throw InternalError("evict was called outside a pass");
  const CpuPool& pool = pass_.pool();
  const DeviceFlow& mine = as_device_flow(flow);
  const PassBatch& batch = pass_.batch();
  const std::vector<int> layers = evicted_layers(mine.plan(), pool, batch);
  int pages = 1;
  for (const int layer : layers) {
    const GroupPages& kept = pass_.group(pool.layer(layer).group);
    for (int s = 0; s < batch.sequences(); ++s)
      pages = std::max(pages, pages_for(std::max(kept.held[s], kept.lengths[s]), mine.plan().layout.page));
  }
  mine.ensure(pages);
  const int64_t rows = int64_t{batch.sequences()} * pool.kv_heads();
  threads_.run_within(mine.threads(), static_cast<int64_t>(layers.size()) * rows, [&](int64_t index, int thread) {
    const auto row = static_cast<int>(index % rows);
    evict_head(layers[static_cast<size_t>(index / rows)], mine, row / pool.kv_heads(), row % pool.kv_heads(), thread);
  });
}

void CpuDevice::evict_head(int layer, const DeviceFlow& flow, int sequence, int head, int thread) {
  const PassBatch& batch = pass_.batch();
  const LayerPages& pages = pass_.pool().layer(layer);
  const GroupPages& kept = pass_.group(pages.group);
  if (batch.states.empty() || batch.states[sequence] == nullptr)
    throw InternalError("evict: a flow that keeps a state, and has got none");
  const std::span<const int32_t> rows = batch.positions.subspan(batch.query_indptr[sequence], batch.query_rows(sequence));
  const HeldTokens held{.staying = kept.staying(sequence, batch.query_rows(sequence)),
                        .first_row = rows.front(),
                        .newest = batch.decoding[sequence] == 0 ? kept.chunk_ends[sequence] - 1 : rows.back(),
                        .last_readers = kept.last_readers};
  const std::span<const SlotMove> moves =
      flow.flow().evict(*batch.states[sequence], layer, head, kept.held[sequence], held, rows, flow.scratch(thread));
  if (moves.empty()) return;
  const int32_t* const listed = kept.page_indices.data() + kept.page_indptr[sequence];
  const PageLayout& layout = pages.layout;
  for (const SlotMove& move : moves)
    copy_token(layout, pages.page(listed[move.from / layout.page], head), move.from % layout.page,
               pages.page(listed[move.to / layout.page], head), move.to % layout.page);
  if (flow.plan().graph.fields.empty()) return;
  const bool apart = flow.plan().has_field_pages();
  const LayerBlocks fields = apart ? pass_.pool().fields(batch.field_group, layer) : LayerBlocks(pages);
  const GroupPages& with_fields = apart ? pass_.group(batch.field_group) : kept;
  const int32_t* const field_pages = with_fields.page_indices.data() + with_fields.page_indptr[sequence];
  int refreshed = -1;
  for (const SlotMove& move : moves) {  // to ascending slots
    const int page = move.to / layout.page;
    if (page == refreshed) continue;
    refreshed = page;
    flow.flow().refresh_page(pages.page(listed[page], head), fields.page(field_pages[page], head),
                             std::min(layout.page, held.staying - page * layout.page), flow.scratch(thread));
  }
}

void CpuDevice::refresh_fields(int layer, const CompiledFlow& flow) {
  const auto told = operation("refresh_fields");
  if (!pass_.active()) throw InternalError("refresh_fields was called outside a pass");
  const CpuPool& pool = pass_.pool();
  require_layer("refresh_fields", layer, pool);
  const DeviceFlow& mine = as_device_flow(flow);
  const int field_group = pass_.batch().field_group;
  require_pages_of("refresh_fields", mine.plan(), pool, layer, field_group);
  if (mine.plan().graph.fields.empty()) return;
  const LayerPages& pages = pool.layer(layer);
  const bool apart = mine.plan().has_field_pages();
  const LayerBlocks fields = apart ? pool.fields(field_group, layer) : LayerBlocks(pages);
  const std::span<const TouchedPage> touched = pass_.touched(pages.group);
  const std::span<const TouchedPage> of_fields = apart ? pass_.touched(field_group) : touched;
  threads_.run_within(mine.threads(), static_cast<int64_t>(touched.size()) * pool.kv_heads(), [&](int64_t index, int thread) {
    const int64_t at = index / pool.kv_heads();
    const auto head = static_cast<int>(index % pool.kv_heads());
    mine.flow().refresh_page(pages.page(touched[at].page, head), fields.page(of_fields[at].page, head), touched[at].tokens,
                             mine.scratch(thread));
  });
}

void CpuDevice::refresh_pages(Pool& pool, int layer, const StalePages& stale, const CompiledFlow& flow) {
  const auto told = operation("refresh_pages");
  const CpuPool& memory = as_cpu_pool(pool);
  require_layer("refresh_pages", layer, memory);
  const DeviceFlow& mine = as_device_flow(flow);
  if (mine.plan().graph.fields.empty() || stale.pages.empty()) return;
  require_stale(mine.plan(), memory, layer, stale);
  const LayerPages& pages = memory.layer(layer);
  const bool apart = mine.plan().has_field_pages();
  const LayerBlocks fields = apart ? memory.fields(stale.field_group, layer) : LayerBlocks(pages);
  const std::span<const int32_t> of_fields = apart ? stale.field_pages : stale.pages;
  const auto count = static_cast<int64_t>(stale.pages.size());
  threads_.run_within(mine.threads(), count * memory.kv_heads(), [&](int64_t index, int thread) {
    const int64_t at = index / memory.kv_heads();
    const auto head = static_cast<int>(index % memory.kv_heads());
    mine.flow().refresh_page(pages.page(stale.pages[at], head), fields.page(of_fields[at], head),
                             at + 1 == count ? stale.last_tokens : pages.layout.page, mine.scratch(thread));
  });
}

void CpuDevice::attention(const Attention& call, Matrix q, Matrix out) {
  const auto told = operation(call.flow == nullptr ? "attention, dense" : "index and attention, flow");
  if (!pass_.active()) throw InternalError("attention was called outside a pass");
  const CpuPool& pool = pass_.pool();
  require_layer("attention", call.layer, pool);
  const PageLayout& layout = pool.layer(call.layer).layout;
  require_f32("attention", q);
  require_f32("attention", out);
  require_equal("attention", "q.rows", q.rows, pass_.batch().rows());
  require_equal("attention", "out.rows", out.rows, q.rows);
  require_equal("attention", "q.columns", q.columns, static_cast<int64_t>(call.query_heads) * layout.head_dim);
  require_equal("attention", "out.columns", out.columns, q.columns);
  require_equal("attention", "query heads beyond whole groups", call.query_heads % pool.kv_heads(), 0);
  const int group = call.query_heads / pool.kv_heads();
  if (group < 1 || group > kMostHeads) {
    throw InternalError(fmt::format("attention: {} query heads share a KV head, at most {}", group, kMostHeads));
  }
  const DeviceFlow* flow = call.flow == nullptr ? nullptr : &as_device_flow(*call.flow);
  if (flow != nullptr) require_pages_of("attention", flow->plan(), pool, call.layer, pass_.batch().field_group);
  attend_.run(pass_, call, flow, q, out);
}

void CpuDevice::sample(Matrix logits, std::span<const SampleRow> rows, std::span<Sampled> out) {
  const auto told = operation("sample");
  require_samples(logits, rows);
  require_equal("sample", "results", static_cast<int64_t>(out.size()), static_cast<int64_t>(rows.size()));
  threads_.run(static_cast<int64_t>(rows.size()), [&](int64_t index, int thread) {
    const std::span<const float> row(logits.row(rows[index].row), static_cast<size_t>(logits.columns));
    out[index] = {samplers_[thread].sample(row, rows[index]), is_sound(row)};
  });
}

void CpuDevice::sample(Matrix logits, std::span<const SampleRow> rows, Picks& picks) {
  const auto told = operation("sample");
  CpuPicks::Call& call = as_cpu(picks).begin_call(rows.size());
  sample(logits, rows, call.results);
  if (std::none_of(rows.begin(), rows.end(), [](const SampleRow& row) { return row.likely >= 0; })) return;
  threads_.run(static_cast<int64_t>(rows.size()), [&](int64_t index, int /*thread*/) {
    if (rows[index].likely < 0 || !call.results[index].sound) return;
    const std::span<const float> row(logits.row(rows[index].row), static_cast<size_t>(logits.columns));
    find_probabilities(row, rows[index], call.results[index].token, call.probabilities[index]);
  });
}

void CpuDevice::take(Picks& picks, std::span<Sampled> out) {
  const std::span<const Sampled> results = as_cpu(picks).take_results(out.size());
  std::copy(results.begin(), results.end(), out.begin());
}

}  // namespace sluice::cpu

namespace sluice {

std::unique_ptr<Device> create_cpu_device(const CpuOptions& options) { return std::make_unique<cpu::CpuDevice>(options); }

}  // namespace sluice
