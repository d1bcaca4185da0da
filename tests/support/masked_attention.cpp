#include "tests/support/masked_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>

#include "kernels/device/batch_builder.h"
#include "kernels/device/open_pass.h"
#include "kernels/reference/oracle.h"

namespace sluice::testing {
namespace {

/// Numbers that `type` has.
std::vector<float> draw(std::mt19937& random, size_t count, DataType type = DataType::kBF16) {
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(oracle::round_to(type, normal(random)));
  return numbers;
}

/// A matrix of float32 in a device's memory.
struct Uploaded {
  Uploaded(Device& device, const std::vector<float>& numbers, int64_t columns) {
    memory = device.allocate(numbers.size() * sizeof(float));
    device.write(memory->data(), numbers.data(), numbers.size() * sizeof(float));
    const int64_t rows = static_cast<int64_t>(numbers.size()) / columns;
    matrix = {memory->data(), DataType::kF32, rows, columns, columns};
  }
  std::unique_ptr<Memory> memory;
  Matrix matrix;
};

double error_of(std::span<const float> got, const std::vector<double>& wanted) {
  double off = 0;
  double size = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    off += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  if (size == 0) return off == 0 ? 0 : INFINITY;
  const double error = std::sqrt(off / size);
  return std::isnan(error) ? INFINITY : error;
}

enum class Stretch : uint8_t { kSeen, kUnseen, kDrawn };

/// Which kind of stretch each slot is in.
std::vector<Stretch> draw_stretches(std::mt19937& random, const MaskedAttention::Sequence& sequence) {
  const int length = sequence.length;
  std::vector<Stretch> kinds(static_cast<size_t>(length), Stretch::kDrawn);
  for (int slot = 0; (sequence.in_stretches || sequence.in_patches) && slot < length;) {
    const auto kind = static_cast<Stretch>(std::uniform_int_distribution<int>(0, 2)(random));
    const int longest = !sequence.in_patches ? 400 : kind == Stretch::kUnseen ? 300 : 12;
    const int end = std::min(length, slot + std::uniform_int_distribution<int>(1, longest)(random));
    std::fill(kinds.begin() + slot, kinds.begin() + end, kind);
    slot = end;
  }
  return kinds;
}

}  // namespace

double MaskedAttention::error_on(Device& device) const {
  std::mt19937 random(seed);
  const auto dim = static_cast<size_t>(head_dim);
  const int64_t query_columns = int64_t{kv_heads} * group * head_dim;
  int all_pages = 3;
  for (const Sequence& sequence : sequences) all_pages += pages_for(sequence.length, page);
  std::vector<int32_t> pages(static_cast<size_t>(all_pages));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  const auto pool = device.create_pool(1, kv_heads, all_pages, page_layout({head_dim, group, page, kv}, {}));

  BatchBuilder builder(page);
  std::vector<int32_t> mask_indptr = {0};
  std::vector<uint32_t> masks;
  std::vector<std::vector<float>> keys;  // [sequences] [length, kv_heads, dim]
  std::vector<std::vector<float>> values;
  size_t next = 0;
  for (const Sequence& sequence : sequences) {
    const auto count = static_cast<size_t>(pages_for(sequence.length, page));
    const std::span<const int32_t> own = std::span(pages).subspan(next, count);
    next += count;
    keys.push_back(draw(random, static_cast<size_t>(sequence.length) * static_cast<size_t>(kv_heads) * dim, kv));
    values.push_back(draw(random, keys.back().size(), kv));
    pool->write(own, sequence.length, keys.back().data(), values.back().data());
    builder.add_at(sequence.slots, {.decoding = sequence.decoding});
    builder.keep(0, own, sequence.length);
    const size_t words = static_cast<size_t>(sequence.length + 31) / 32;
    const std::vector<Stretch> stretches = draw_stretches(random, sequence);
    const size_t rows = sequence.slots.size() * static_cast<size_t>(mask_heads);
    for (size_t row = 0; sequence.masked && row < rows; ++row) {
      const auto kind = std::uniform_int_distribution<int>(0, 5)(random);  // 0: none, 1: one slot, others: a share of them
      const size_t first = masks.size();
      masks.resize(first + words, 0);
      const int own_slot = sequence.slots[row / static_cast<size_t>(mask_heads)];
      for (int slot = 0; slot < sequence.length; ++slot) {
        if (sequence.stride > 0) {
          const int before = own_slot - slot;
          const bool near = before < sequence.stride / 2 + 3 || before % sequence.stride == 0;
          const bool seen = before >= 0 && kind > 0 && near && std::uniform_int_distribution<int>(0, 15)(random) > 0;
          if (seen) masks[first + static_cast<size_t>(slot) / 32] |= uint32_t{1} << (slot % 32);
          continue;
        }
        const bool drawn = kind > 1 && std::uniform_int_distribution<int>(0, kind)(random) > 1;
        const Stretch stretch = stretches[static_cast<size_t>(slot)];
        if (stretch == Stretch::kSeen || (stretch == Stretch::kDrawn && drawn))
          masks[first + static_cast<size_t>(slot) / 32] |= uint32_t{1} << (slot % 32);
      }
      const int one = std::uniform_int_distribution<int>(0, sequence.length - 1)(random);
      if (kind == 1 && !sequence.in_stretches && !sequence.in_patches && sequence.stride == 0)
        masks[first + static_cast<size_t>(one) / 32] |= uint32_t{1} << (one % 32);
    }
    mask_indptr.push_back(static_cast<int32_t>(masks.size()));
  }
  PassBatch batch = builder.batch();
  GroupPages kept = batch.groups[0];
  kept.mask_indptr = mask_indptr;
  kept.masks = masks;
  kept.mask_heads = mask_heads;
  kept.row_stride = row_stride;
  batch.groups = {&kept, 1};

  const std::vector<float> queries = draw(random, static_cast<size_t>(batch.rows() * query_columns));
  const Uploaded q(device, queries, query_columns);
  const Uploaded out(device, std::vector<float>(queries.size(), NAN), query_columns);
  {
    const OpenPass open(device, batch, *pool);
    Device::Attention call;
    call.query_heads = kv_heads * group;
    call.scale = 1 / std::sqrt(static_cast<float>(head_dim));
    device.attention(call, q.matrix, out.matrix);
  }
  std::vector<float> got(queries.size());
  device.read(got.data(), out.memory->data(), got.size() * sizeof(float));

  double worst = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Sequence& sequence = sequences[s];
    for (size_t row = 0; row < sequence.slots.size(); ++row) {
      for (int head = 0; head < kv_heads; ++head) {
        std::vector<oracle::Entry> entries;
        for (int slot = 0; slot < sequence.length; ++slot) {
          const size_t place = row * static_cast<size_t>(mask_heads) + static_cast<size_t>(head % mask_heads);
          const uint32_t* words =
              masks.data() + mask_indptr[s] + place * static_cast<size_t>(kept.mask_words(static_cast<int>(s)));
          const bool seen = sequence.masked ? (words[slot / 32] >> (slot % 32) & 1) != 0 : slot <= sequence.slots[row];
          if (!seen) continue;
          const size_t at = (static_cast<size_t>(slot) * static_cast<size_t>(kv_heads) + static_cast<size_t>(head)) * dim;
          entries.push_back({std::span(keys[s]).subspan(at, dim), std::span(values[s]).subspan(at, dim), {}});
        }
        const size_t numbers = static_cast<size_t>(group) * dim;
        const size_t at = (static_cast<size_t>(batch.query_indptr[s]) + row) * static_cast<size_t>(query_columns) +
                          static_cast<size_t>(head) * numbers;
        std::vector<double> wanted =
            oracle::attention(std::span(queries).subspan(at, numbers), entries, 1 / std::sqrt(double(head_dim)));
        worst = std::max(worst, error_of(std::span(got).subspan(at, numbers), wanted));
      }
    }
  }
  return worst;
}

}  // namespace sluice::testing
