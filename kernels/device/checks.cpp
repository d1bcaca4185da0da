#include "kernels/device/checks.h"

#include <fmt/format.h>

namespace sluice {

void require_equal(const char* operation, const char* dimension, int64_t got, int64_t wanted) {
  if (got != wanted) throw InternalError(fmt::format("{}: {} is {}, expected {}", operation, dimension, got, wanted));
}

void require_layer(const char* operation, int layer, const Pool& pool) {
  if (layer < 0 || layer >= pool.layers())
    throw InternalError(fmt::format("{}: layer {} of {}", operation, layer, pool.layers()));
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
  }
}

void require_group(const DeviceInfo& device, int group) {
  if (group >= 1 && group <= device.most_group) return;
  throw InputError(
      fmt::format("{} query heads share a KV head; device \"{}\" attends for at most {}", group, device.name, device.most_group),
      "use a model with more KV heads or fewer query heads");
}

void require_page(const Pool& pool, int32_t page) {
  if (page < 0 || page >= pool.pages()) {
    throw InternalError(fmt::format("page {} is outside a pool of {} pages", page, pool.pages()));
  }
}

void require_pages(const Pool& pool, std::span<const int32_t> pages) {
  // A decode step lists tens of thousands, so in a form that becomes vector code: the top bit is set where one is wrong.
  const auto last = static_cast<uint32_t>(pool.pages() - 1);
  uint32_t signs = 0;
  for (const int32_t page : pages) signs |= static_cast<uint32_t>(page) | (last - static_cast<uint32_t>(page));
  if (signs >> 31 == 0) return;
  for (const int32_t page : pages) require_page(pool, page);
}

void require_copies(const Pool& pool, std::span<const int32_t> sources, std::span<const int32_t> targets) {
  if (sources.size() != targets.size()) {
    throw InternalError(fmt::format("{} pages to copy over {}", sources.size(), targets.size()));
  }
  require_pages(pool, sources);
  require_pages(pool, targets);
}

void require_tokens(const Pool& pool, std::span<const int32_t> pages, int tokens) {
  const int page = pool.layout().page;
  if (tokens < 0 || static_cast<size_t>(tokens) > pages.size() * page) {
    throw InternalError(fmt::format("{} tokens do not fit {} pages of {}", tokens, pages.size(), page));
  }
  require_pages(pool, pages);
}

namespace {

void require(bool holds, const char* field, int64_t got, int64_t wanted) {
  if (!holds) throw InternalError(fmt::format("pass: {} is {}, expected {}", field, got, wanted));
}

}  // namespace

void require_batch(const PassBatch& batch, const Pool& pool) {
  const auto sequences = static_cast<size_t>(batch.sequences());
  require(batch.query_indptr.size() == sequences + 1, "size of query_indptr", batch.query_indptr.size(), sequences + 1);
  require(batch.page_indptr.size() == sequences + 1, "size of page_indptr", batch.page_indptr.size(), sequences + 1);
  require(batch.decoding.size() == sequences, "size of decoding", batch.decoding.size(), sequences);
  require(batch.seeds.empty() || batch.seeds.size() == sequences, "size of seeds", batch.seeds.size(), sequences);
  require(batch.states.empty() || batch.states.size() == sequences, "size of states", batch.states.size(), sequences);
  require(batch.query_indptr[0] == 0, "query_indptr[0]", batch.query_indptr[0], 0);
  const int page = pool.layout().page;
  for (size_t s = 0; s < sequences; ++s) {
    const int rows = batch.query_rows(static_cast<int>(s));
    require(rows >= 1, "rows of a sequence", rows, 1);
    require(rows <= batch.lengths[s], "length of a sequence", batch.lengths[s], rows);
    require(batch.decoding[s] == 0 || rows == 1, "rows of a decode step", rows, 1);
    const int held = batch.page_indptr[s + 1] - batch.page_indptr[s];
    const int needed = (batch.lengths[s] + page - 1) / page;
    require(batch.page_indptr[s] >= 0 && held >= needed, "pages of a sequence", held, needed);
    require(static_cast<size_t>(batch.page_indptr[s + 1]) <= batch.page_indices.size(), "end of a sequence's pages",
            batch.page_indptr[s + 1], static_cast<int64_t>(batch.page_indices.size()));
    require_pages(pool, batch.pages(static_cast<int>(s), page));
  }
}

size_t pool_bytes(int layers, int kv_heads, int pages, const PageLayout& layout) {
  if (layers < 1 || kv_heads < 1 || pages < 1) {
    throw InputError(fmt::format("a page pool of {} layers, {} KV heads and {} pages cannot be made", layers, kv_heads, pages));
  }
  if (layout.page < 8 || layout.page > 128 || (layout.page & (layout.page - 1)) != 0) {
    throw InputError(fmt::format("a page holds 8, 16, 32, 64 or 128 tokens, not {}", layout.page));
  }
  size_t bytes = layout.bytes;
  for (const int count : {layers, kv_heads, pages}) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(count), &bytes)) {
      throw InputError(
          fmt::format("a page pool of {} layers, {} KV heads and {} pages is beyond any memory", layers, kv_heads, pages));
    }
  }
  return bytes;
}

}  // namespace sluice
