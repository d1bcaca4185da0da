#include "kernels/device/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sluice {

void require_equal(const char* operation, const char* dimension, int64_t got, int64_t wanted) {
  if (got != wanted) throw InternalError(fmt::format("{}: {} is {}, expected {}", operation, dimension, got, wanted));
}

void require_layer(const char* operation, int layer, const Pool& pool) {
  if (layer < 0 || layer >= pool.layers())
    throw InternalError(fmt::format("{}: layer {} of {}", operation, layer, pool.layers()));
}

void require_parts(const char* operation, const Matrix& a, const Matrix& b, int parts, size_t sums) {
  require_equal(operation, "b.rows", b.rows, a.rows);
  require_equal(operation, "b.columns", b.columns, a.columns);
  if (parts < 1 || a.columns % parts != 0)
    throw InternalError(fmt::format("{}: {} parts of {} columns", operation, parts, a.columns));
  require_equal(operation, "sums", static_cast<int64_t>(sums), a.rows * parts);
}

int require_row_masses(const Device::RowMasses& call, const Matrix& q, const Matrix& masses, const PassBatch& batch,
                       const Pool& pool) {
  const PoolMap::Place place = pool.map().place_of(call.layer);
  require_equal("row masses", "sequences", batch.sequences(), 1);
  require_equal("row masses", "q.rows", q.rows, batch.rows());
  require_equal("row masses", "q.columns", q.columns, int64_t{call.query_heads} * pool.layout(place.group).head_dim);
  require_equal("row masses", "query_heads modulo kv_heads", call.query_heads % pool.kv_heads(), 0);
  if (masses.rows != 1) require_equal("row masses", "masses.rows", masses.rows, call.query_heads);
  require_indices("row masses", call.rows, q.rows);
  const int seen =
      call.rows.empty() ? 0 : batch.groups[static_cast<size_t>(place.group)].slots[static_cast<size_t>(call.rows.back())] + 1;
  if (std::max(seen, call.known) > masses.columns)
    throw InternalError(fmt::format("row masses: rows see {} tokens, and there is room for {}", seen, masses.columns));
  return std::max(seen, call.known);
}

void require_indices(const char* operation, std::span<const int32_t> indices, int64_t limit) {
  for (const int32_t index : indices) {
    if (index < 0 || index >= limit) throw InternalError(fmt::format("{}: row {} of {}", operation, index, limit));
  }
}

void require_embeddable(std::span<const int32_t> tokens, int64_t vocabulary, const Device::Picks* picks) {
  const int picked = picks == nullptr ? 0 : picks->rows();
  for (const int32_t token : tokens) {
    if (token < -picked || token >= vocabulary) {
      throw InternalError(fmt::format("embed: token {} of {}, {} picked", token, vocabulary, picked));
    }
  }
}

void require_samples(const Matrix& logits, std::span<const SampleRow> rows) {
  if (logits.type != DataType::kF32) throw InternalError(fmt::format("sample: logits are f32, not {}", name_of(logits.type)));
  if (logits.columns < 1) throw InternalError("sample: logits of no token");
  for (const SampleRow& choice : rows) {
    if (choice.row < 0 || choice.row >= logits.rows) {
      throw InternalError(fmt::format("sample: row {} of {}", choice.row, logits.rows));
    }
    if (choice.given >= logits.columns) {
      throw InternalError(fmt::format("sample: token {} was given, of {}", choice.given, logits.columns));
    }
    if (choice.likely > kMostLikely) {
      throw InternalError(fmt::format("sample: {} likely tokens, at most {}", choice.likely, kMostLikely));
    }
  }
}

void require_group(const DeviceInfo& device, int group) {
  if (group >= 1 && group <= device.most_group) return;
  throw InputError(
      fmt::format("{} query heads share a KV head; device \"{}\" attends for at most {}", group, device.name, device.most_group),
      "use a model with more KV heads or fewer query heads");
}

void require_pages_of(const char* operation, const Plan& plan, const Pool& pool, int layer, int field_group) {
  const auto require_layout = [&](const PageLayout& kept, const PageLayout& wanted) {
    const bool tokens = wanted.has_tokens;
    require_equal(operation, tokens ? "bytes of the pool's page" : "bytes of the pool's page of fields",
                  static_cast<int64_t>(kept.bytes), static_cast<int64_t>(wanted.bytes));
    require_equal(operation, tokens ? "tokens of the pool's page" : "tokens of the pool's page of fields", kept.page,
                  wanted.page);
    require_equal(operation, "head dimension of the pool", kept.head_dim, wanted.head_dim);
  };
  require_layout(pool.layout(pool.map().place_of(layer).group), plan.layout);
  if (!plan.has_field_pages()) return;
  if (!pool.map().has_group(field_group) || pool.layout(field_group).has_tokens) {
    throw InternalError(
        fmt::format("{}: the flow's fields have pages of their own, and group {} has no fields", operation, field_group));
  }
  require_layout(pool.layout(field_group), plan.fields());
}

std::vector<int> evicted_layers(const Plan& plan, const Pool& pool, const PassBatch& batch) {
  std::vector<int> layers;
  for (int layer = 0; layer < pool.map().layers() && plan.graph.eviction; ++layer) {
    if (!plan.graph.layers.is_sparse(layer, pool.map().layers())) continue;
    require_pages_of("evict", plan, pool, layer, batch.field_group);
    const auto group = static_cast<size_t>(pool.map().place_of(layer).group);
    if (group >= batch.groups.size() || batch.groups[group].held.empty())
      throw InternalError(fmt::format("evict: nobody leaves layer {}", layer));
    layers.push_back(layer);
  }
  if (layers.empty()) throw InternalError("evict: nobody leaves");
  return layers;
}

void require_stale(const Plan& plan, const Pool& pool, int layer, const Device::StalePages& stale) {
  require_pages_of("refresh_pages", plan, pool, layer, stale.field_group);
  const int page = plan.layout.page;
  if (stale.last_tokens < 1 || stale.last_tokens > page) {
    throw InternalError(fmt::format("refresh_pages: {} tokens in a page of {}", stale.last_tokens, page));
  }
  require_pages(pool, pool.map().place_of(layer).group, stale.pages);
  if (!plan.has_field_pages()) return;
  require_equal("refresh_pages", "pages of fields", static_cast<int64_t>(stale.field_pages.size()),
                static_cast<int64_t>(stale.pages.size()));
  require_pages(pool, stale.field_group, stale.field_pages);
}

void require_page(const Pool& pool, int group, int32_t page) {
  if (page < 0 || page >= pool.pages(group)) {
    throw InternalError(fmt::format("page {} is outside a pool of {} pages", page, pool.pages(group)));
  }
}

void require_pages(const Pool& pool, int group, std::span<const int32_t> pages) {
  // A decode step lists tens of thousands, so in a form that becomes vector code: the top bit is set where one is wrong.
  const auto last = static_cast<uint32_t>(pool.pages(group) - 1);
  uint32_t signs = 0;
  for (const int32_t page : pages) signs |= static_cast<uint32_t>(page) | (last - static_cast<uint32_t>(page));
  if (signs >> 31 == 0) return;
  for (const int32_t page : pages) require_page(pool, group, page);
}

void require_copies(const Pool& pool, int group, std::span<const int32_t> sources, std::span<const int32_t> targets) {
  if (sources.size() != targets.size()) {
    throw InternalError(fmt::format("{} pages to copy over {}", sources.size(), targets.size()));
  }
  require_pages(pool, group, sources);
  require_pages(pool, group, targets);
}

void require_moves(const Pool& pool, int group, std::span<const TokenMove> moves) {
  const int page = pool.layout(group).page;
  for (const TokenMove& move : moves) {
    const std::array pages = {move.from_page, move.to_page};
    require_pages(pool, group, pages);
    if (move.heads < 1 || move.head < 0 || move.head >= move.heads)
      throw InternalError(fmt::format("head {} of {} in turn", move.head, move.heads));
    for (const int32_t token : {move.from_token, move.to_token}) {
      if (token < 0 || token >= page) throw InternalError(fmt::format("token {} of a page of {}", token, page));
    }
  }
}

void require_runs(const Pool& pool, int group, std::span<const ShiftedRun> runs) {
  const int page = pool.layout(group).page;
  for (const ShiftedRun& run : runs) {
    require_pages(pool, group, std::array{run.from_page, run.to_page});
    for (const int32_t token : {run.from_token, run.to_token}) {
      if (token < 0 || run.tokens < 1 || run.tokens > page - token)
        throw InternalError(fmt::format("{} tokens from {} on, of a page of {}", run.tokens, token, page));
    }
    if (run.from_position < 0 || run.to_position < 0) throw InternalError("a run of tokens before the beginning of a text");
  }
}

void require_tokens(const Pool& pool, int group, std::span<const int32_t> pages, int tokens) {
  const int page = pool.layout(group).page;
  if (tokens < 0 || static_cast<size_t>(tokens) > pages.size() * page) {
    throw InternalError(fmt::format("{} tokens do not fit {} pages of {}", tokens, pages.size(), page));
  }
  require_pages(pool, group, pages);
}

void require_slots(const Pool& pool, int group, std::span<const int32_t> pages, int tokens, std::span<const int32_t> slots) {
  if (slots.empty()) return require_tokens(pool, group, pages, tokens);
  const auto of_head = static_cast<size_t>(std::max(tokens, 1));
  if (slots.size() % of_head != 0 || slots.size() > of_head * static_cast<size_t>(pool.kv_heads()))
    throw InternalError(fmt::format("{} slots of {} tokens", slots.size(), tokens));
  require_pages(pool, group, pages);
  const auto end = static_cast<int64_t>(pages.size()) * pool.layout(group).page;
  for (const int32_t slot : slots) {
    if (slot < -1 || slot >= end) throw InternalError(fmt::format("slot {} of {} pages", slot, pages.size()));
  }
}

namespace {

void require(bool holds, const char* field, int64_t got, int64_t wanted) {
  if (!holds) throw InternalError(fmt::format("pass: {} is {}, expected {}", field, got, wanted));
}

void require_sizes(const PassBatch& batch) {
  const auto sequences = static_cast<size_t>(batch.sequences());
  require(batch.query_indptr.size() == sequences + 1, "size of query_indptr", batch.query_indptr.size(), sequences + 1);
  require(batch.query_indptr[0] == 0, "query_indptr[0]", batch.query_indptr[0], 0);
  const auto rows = static_cast<size_t>(batch.rows());
  require(batch.positions.size() == rows, "size of positions", batch.positions.size(), rows);
  require(batch.seeds.empty() || batch.seeds.size() == sequences, "size of seeds", batch.seeds.size(), sequences);
  require(batch.states.empty() || batch.states.size() == sequences, "size of states", batch.states.size(), sequences);
  require(batch.prompt_rows.empty() || batch.prompt_rows.size() == sequences, "size of prompt_rows", batch.prompt_rows.size(),
          sequences);
  for (const GroupPages& group : batch.groups) {
    if (!group.is_used()) continue;
    require(group.lengths.size() == sequences, "size of lengths", group.lengths.size(), sequences);
    require(group.page_indptr.size() == sequences + 1, "size of page_indptr", group.page_indptr.size(), sequences + 1);
    require(group.slots.size() == rows, "size of slots", group.slots.size(), rows);
    const size_t of_heads = group.head_slots.empty() ? 0 : rows * static_cast<size_t>(std::max(1, group.mask_heads));
    require(group.head_slots.size() == of_heads, "size of head_slots", group.head_slots.size(), of_heads);
    const size_t indptr = group.mask_indptr.size();
    require(indptr == 0 || indptr == sequences + 1, "size of mask_indptr", indptr, sequences + 1);
    const size_t held = group.held.size();
    require(held == 0 || held == sequences, "size of held", held, sequences);
    require(group.chunk_ends.size() == held, "size of chunk_ends", group.chunk_ends.size(), held);
  }
}

void require_rows(const PassBatch& batch) {
  for (int s = 0; s < batch.sequences(); ++s) {
    const int rows = batch.query_rows(s);
    require(rows >= 1, "rows of a sequence", rows, 1);
    require(batch.decoding[s] == 0 || rows == 1, "rows of a decode step", rows, 1);
    int before = -1;
    for (int row = batch.query_indptr[s]; row < batch.query_indptr[s + 1]; ++row) {
      require(batch.positions[row] > before, "position of a row", batch.positions[row], before + 1);
      before = batch.positions[row];
    }
  }
}

void require_slots(const PassBatch& batch, const GroupPages& group, int s) {
  const int heads = group.head_slots.empty() ? 1 : group.mask_heads;
  require(heads == 1 || group.is_masked(s), "masks where slots differ by head", 0, heads);
  for (int head = 0; head < heads; ++head) {
    int before = -1;
    for (int row = batch.query_indptr[s]; row < batch.query_indptr[s + 1]; ++row) {
      const int slot = group.slot(row, head);
      require(slot < group.lengths[s], "slot of a row", slot, group.lengths[s] - 1);
      require(slot > before, "slot of a row", slot, before + 1);
      before = slot;
    }
  }
}

/// Where tokens leave, rows go behind those that stay.
void require_leaving(const PassBatch& batch, const GroupPages& group, int s) {
  const int staying = group.staying(s, batch.query_rows(s));
  require(group.held[s] >= staying, "tokens of before a pass", group.held[s], staying);
  require(group.slots[batch.query_indptr[s]] == staying, "slot of the first row", group.slots[batch.query_indptr[s]], staying);
  require(!group.is_masked(s), "masks where tokens leave", 1, 0);
}

void require_group_pages(const PassBatch& batch, const Pool& pool, int index) {
  const GroupPages& group = batch.groups[index];
  const int page = pool.layout(index).page;
  for (int s = 0; s < batch.sequences(); ++s) {
    require_slots(batch, group, s);
    const int listed = group.page_indptr[s + 1] - group.page_indptr[s];
    const int before = group.held.empty() ? 0 : group.held[s];
    const int needed = pages_for(std::max(group.lengths[s], before), page);
    require(group.page_indptr[s] >= 0 && listed >= needed, "pages of a sequence", listed, needed);
    require(static_cast<size_t>(group.page_indptr[s + 1]) <= group.page_indices.size(), "end of a sequence's pages",
            group.page_indptr[s + 1], static_cast<int64_t>(group.page_indices.size()));
    require_pages(pool, index, group.page_indices.subspan(group.page_indptr[s], needed));
    if (!group.held.empty()) require_leaving(batch, group, s);
    if (!group.is_masked(s)) continue;
    require(group.mask_heads >= 1 && group.mask_heads <= pool.kv_heads(), "heads with masks", group.mask_heads, pool.kv_heads());
    const int words = group.mask_indptr[s + 1] - group.mask_indptr[s];
    const int64_t wanted = int64_t{batch.query_rows(s)} * group.mask_heads * group.mask_words(s);
    require(group.mask_indptr[s] >= 0 && words == wanted, "words of a sequence's masks", words, wanted);
    require(static_cast<size_t>(group.mask_indptr[s + 1]) <= group.masks.size(), "end of a sequence's masks",
            group.mask_indptr[s + 1], static_cast<int64_t>(group.masks.size()));
  }
}

void require_beside(const PassBatch& batch, const Pool& pool, int index) {
  const BesideTokens& beside = batch.groups[index].beside;
  if (beside.empty()) return;
  const auto sequences = static_cast<size_t>(batch.sequences());
  const auto pages = static_cast<int64_t>(beside.pages.size());
  const int64_t words = pages * page_words(pool.layout(index).page);
  require(beside.indptr.size() == sequences + 1, "size of beside.indptr", beside.indptr.size(), sequences + 1);
  require(static_cast<int64_t>(beside.words.size()) == words, "words beside a selection", beside.words.size(), words);
  require(beside.indptr.front() == 0, "beside.indptr[0]", beside.indptr.front(), 0);
  require(beside.indptr.back() == pages, "end of beside.indptr", beside.indptr.back(), pages);
  for (int s = 0; s < batch.sequences(); ++s) {
    const int end = pages_for(batch.seen(index, s), pool.layout(index).page);
    require(beside.indptr[s] <= beside.indptr[s + 1], "beside.indptr", beside.indptr[s], beside.indptr[s + 1]);
    require(beside.indptr[s + 1] <= pages, "beside.indptr", beside.indptr[s + 1], pages);
    int before = -1;
    for (int i = beside.indptr[s]; i < beside.indptr[s + 1]; ++i) {
      require(beside.pages[i] > before && beside.pages[i] < end, "a page beside a selection", beside.pages[i], before + 1);
      before = beside.pages[i];
    }
  }
}

/// The pages of fields hold the tokens that those of K and V do.
void require_fields(const PassBatch& batch, const Pool& pool) {
  const int index = batch.field_group;
  require(pool.map().has_group(index) && !pool.layout(index).has_tokens, "group of fields", index, -1);
  require(index < static_cast<int>(batch.groups.size()) && batch.groups[index].is_used(), "group of fields", index, -1);
  const CacheGroup& fields = pool.map().group(index);
  const int with = pool.map().place_of(fields.layers.front()).group;
  for (const int layer : fields.layers) {
    require(pool.map().place_of(layer).group == with, "group of K and V of a layer with fields", pool.map().place_of(layer).group,
            with);
  }
  require(fields.layout.page == pool.layout(with).page, "tokens in a page of fields", fields.layout.page, pool.layout(with).page);
  const GroupPages& kept = batch.groups[with];
  const GroupPages& of_fields = batch.groups[index];
  require(!of_fields.has_masks() && !kept.has_masks(), "masks of fields", 1, 0);
  require(std::equal(kept.lengths.begin(), kept.lengths.end(), of_fields.lengths.begin()), "tokens of fields", -1, -1);
  require(std::equal(kept.slots.begin(), kept.slots.end(), of_fields.slots.begin()), "slots of fields", -1, -1);
}

}  // namespace

void require_batch(const PassBatch& batch, const Pool& pool) {
  const auto groups = static_cast<int>(batch.groups.size());
  require(groups <= pool.map().groups(), "number of groups", groups, pool.map().groups());
  require_sizes(batch);
  require_rows(batch);
  for (int layer = 0; layer < pool.layers(); ++layer) {
    const int group = pool.map().place_of(layer).group;
    require(group < groups, "number of groups", groups, group + 1);
    require(batch.groups[group].is_used(), "sequences with pages of a layer's group", 0, batch.sequences());
  }
  for (int group = 0; group < groups; ++group) {
    if (!batch.groups[group].is_used()) continue;
    if (!pool.map().has_group(group)) throw InternalError(fmt::format("pass: pages of group {}, which is not there", group));
    require_group_pages(batch, pool, group);
    require_beside(batch, pool, group);
  }
  if (batch.field_group >= 0) require_fields(batch, pool);
}

}  // namespace sluice
