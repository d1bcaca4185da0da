// Decode attention over several sources: one softmax over tokens, and over summaries of pages (Attend::attend_sources).

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/attention/attend.h"

namespace sluice::cpu {
namespace {

/// One softmax over what is joined to it, for the heads of a group.
class JoinedSoftmax {
 public:
  JoinedSoftmax(const Partial& all, int group, int dim) : all_(all), group_(group), dim_(dim) {
    std::fill_n(all_.maximum, group, -INFINITY);
    std::fill_n(all_.sum, group, 0.0F);
    std::fill_n(all_.output, group * dim, 0.0F);
  }

  void join(const Partial& part) const {
    for (int h = 0; h < group_; ++h) {
      if (part.maximum[h] == -INFINITY && !std::isnan(part.sum[h])) continue;  // nothing, or what weighs nothing
      const float larger = std::max(all_.maximum[h], part.maximum[h]);
      const float mine = std::exp2(all_.maximum[h] - larger);
      const float theirs = std::exp2(part.maximum[h] - larger);
      all_.maximum[h] = larger;
      all_.sum[h] = all_.sum[h] * mine + part.sum[h] * theirs;
      float* const to = all_.output + static_cast<ptrdiff_t>(h) * dim_;
      const float* const from = part.output + static_cast<ptrdiff_t>(h) * dim_;
      for (int d = 0; d < dim_; ++d) to[d] = to[d] * mine + from[d] * theirs;
    }
  }

  /// The logarithms in base 2 of what all logits sum to, [group].
  std::array<float, kMostHeads> log_sums() const {
    std::array<float, kMostHeads> logs{};
    for (int h = 0; h < group_; ++h) logs[static_cast<size_t>(h)] = all_.maximum[h] + std::log2(all_.sum[h]);
    return logs;
  }

  /// [group, dim]
  void write(float* out) const {
    for (int h = 0; h < group_; ++h) {
      for (int d = 0; d < dim_; ++d) out[h * dim_ + d] = all_.sum[h] == 0 ? 0 : all_.output[h * dim_ + d] / all_.sum[h];
    }
  }

 private:
  Partial all_;
  int group_;
  int dim_;
};

bool is_tokens(const AttendedSource& source) { return source.keys == PagePart{}; }

/// Where a field of the pages with fields lies, or a state [pages, entries, dim].
SummaryPart part_of(const Plan& plan, const FlowRow& row, const PagePart& part, const float* state) {
  if (part.state >= 0) {
    const size_t numbers = static_cast<size_t>(part.entries) * static_cast<size_t>(plan.graph.geometry.head_dim);
    return {.base = reinterpret_cast<const std::byte*>(state),
            .stride = numbers * sizeof(float),
            .type = DataType::kF32,
            .by_position = true};
  }
  const auto field = static_cast<size_t>(part.field);
  return {.base = row.fields.base + plan.fields().field_offsets[field],
          .stride = row.fields.stride,
          .type = plan.graph.fields[field].type};
}

/// Places [0, pages) that are not in `selected`, which ascends.
template <class Take>
void for_each_other(std::span<const int32_t> selected, int pages, Take take) {
  size_t next = 0;
  for (int32_t page = 0; page < pages; ++page) {
    if (next < selected.size() && selected[next] == page) {
      ++next;
    } else {
      take(page);
    }
  }
}

}  // namespace

void Attend::SourceRow::reserve(size_t sources, size_t pages, size_t heads) {
  entries.resize(sources);
  for (std::vector<int32_t>& each : entries) each.reserve(pages);
  opened.reserve(pages);
  shares.reserve(pages);
  has_tokens.reserve(pages);
  groups.reserve(pages);
  logits.reserve(pages * heads);
}

void Attend::find_sources(const FlowRow& row, int thread) {
  const std::vector<AttendedSource>& sources = flow_->plan().attend.sources;
  SourceRow& found = source_rows_[static_cast<size_t>(thread)];
  const auto pages = static_cast<size_t>(row.pages());
  found.opened.clear();
  found.sharing = -1;
  found.shares.assign(pages, 0);
  found.has_tokens.assign(pages, 0);
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::span<const int32_t> selected = flow_->flow().source_pages(i, row, flow_->scratch(thread)).selected;
    std::vector<int32_t>& own = found.entries[i];
    own.clear();
    if (sources[i].others) {
      for_each_other(selected, row.pages(), [&](int32_t page) { own.push_back(page); });
    } else {
      own.assign(selected.begin(), selected.end());
    }
    if (sources[i].shares) found.sharing = static_cast<int>(i);
    for (const int32_t page : own) {
      if (sources[i].shares) found.shares[static_cast<size_t>(page)] = 1;
      if (is_tokens(sources[i])) found.has_tokens[static_cast<size_t>(page)] = 1;
    }
  }
  if (found.sharing < 0) return;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::vector<uint8_t>& elsewhere = sources[i].shares ? found.has_tokens : found.shares;
    if (!sources[i].shares && !is_tokens(sources[i])) continue;
    std::erase_if(found.entries[i], [&](int32_t page) { return elsewhere[static_cast<size_t>(page)] != 0; });
  }
  for (size_t page = 0; page < pages; ++page) {
    if (found.shares[page] != 0 && found.has_tokens[page] != 0) found.opened.push_back(static_cast<int32_t>(page));
  }
}

SummaryPages Attend::summaries_of(const FlowRow& row, FlowScratch& scratch, size_t source) const {
  const Plan& plan = flow_->plan();
  const AttendedSource& asked = plan.attend.sources[source];
  const SourcePages pages = flow_->flow().source_pages(source, row, scratch);
  return {.keys = part_of(plan, row, asked.keys, pages.keys),
          .values = part_of(plan, row, asked.values, pages.values),
          .entries = asked.keys.entries,
          .dim = layer_->layout.head_dim,
          .products = pages.logits,
          .group = static_cast<size_t>(group_),
          .bias = pages.bias,
          .bias_heads = pages.bias_heads};
}

SummaryPages Attend::weighed_summaries(const FlowRow& row, int thread, size_t source) {
  const AttendedSource& asked = flow_->plan().attend.sources[source];
  SummaryPages summaries = summaries_of(row, flow_->scratch(thread), source);
  if (asked.group_pages == 1) return summaries;
  SourceRow& found = source_rows_[static_cast<size_t>(thread)];
  const auto pages = static_cast<size_t>(row.pages());
  const auto together = static_cast<size_t>(asked.group_pages);
  const SourcePages selected = flow_->flow().source_pages(source, row, flow_->scratch(thread));
  // Who has an entry in the source: the others of what it selects.
  std::vector<GroupKind>& groups = found.groups;
  groups.assign(pages / together, GroupKind::kWhole);
  const auto set = [&](std::span<const int32_t> positions, GroupKind kind) {
    for (const int32_t position : positions) {
      const size_t group = static_cast<size_t>(position) / together;
      if (group < groups.size()) groups[group] = kind;
    }
  };
  const GroupKind open = asked.shares ? GroupKind::kShares : GroupKind::kPages;
  set(selected.opened, open);
  for (size_t page = 0; page < groups.size() * together; ++page) {
    if (found.has_tokens[page] != 0) groups[page / together] = open;
  }
  set(selected.selected, GroupKind::kPages);
  found.logits.resize(pages * static_cast<size_t>(group_));
  const ThreadScratch at(group_, layer_->layout.head_dim, row.pages(), layer_->layout.page);
  float* const kernel = scratch_[static_cast<size_t>(thread)].as<float>() + at.kernel;
  weigh_groups(summaries, row.fields.pages, groups, asked.group_pages, row.query, group_, call_->scale, kernel,
               found.logits.data());
  summaries.products = found.logits.data();
  summaries.bias = nullptr;
  return summaries;
}

int Attend::attend_sources(const FlowRow& row, int thread, float* out, float* masses) {
  const Plan& plan = flow_->plan();
  find_sources(row, thread);
  const SourceRow& found = source_rows_[static_cast<size_t>(thread)];
  const PageLayout& layout = layer_->layout;
  const int dim = layout.head_dim;
  const ThreadScratch at(group_, dim, row.pages(), layout.page);
  float* const memory = scratch_[static_cast<size_t>(thread)].as<float>();
  float* const kernel = memory + at.kernel;
  JoinedSoftmax all(partial_at(memory + at.joined(0), group_, dim), group_, dim);
  const Partial part = partial_at(memory + at.joined(1), group_, dim);
  int32_t* const ids = flow_->selected(thread) + flow_->max_pages();
  const int of_page = layout.page * group_;  // masses
  const auto all_masses = std::span(masses, masses == nullptr ? 0 : static_cast<size_t>(row.pages() * of_page));
  std::fill(all_masses.begin(), all_masses.end(), -INFINITY);
  const auto tokens_in = [&](int32_t page) { return page == row.pages() - 1 ? row.last_tokens : layout.page; };
  // Tokens of some pages, finished: their logarithm is what they weigh.
  const auto attend_tokens_of = [&](std::span<const int32_t> positions, float* logits) {
    for (size_t i = 0; i < positions.size(); ++i) ids[i] = row.tokens.pages[static_cast<size_t>(positions[i])];
    attend_pages(row.kv_head, {ids, positions.size()}, tokens_in(positions.back()), nullptr, row.query, thread, at, part.output,
                 part.maximum, logits);
    std::fill_n(part.sum, group_, 1.0F);
  };
  int read = 0;  // entries
  SummaryPages sharing;
  for (size_t i = 0; i < plan.attend.sources.size(); ++i) {
    const std::vector<int32_t>& positions = found.entries[i];
    const bool opens = static_cast<int>(i) == found.sharing && !found.opened.empty();
    if (positions.empty() && !opens) continue;
    if (is_tokens(plan.attend.sources[i])) {
      attend_tokens_of(positions, masses);
      if (masses != nullptr) spread_logits(positions, row.pages(), tokens_in(positions.back()), masses);
      read += static_cast<int>(positions.size()) * layout.page;
    } else {
      const SummaryPages summaries = weighed_summaries(row, thread, i);
      if (opens) sharing = summaries;
      if (positions.empty()) continue;
      attend_summaries(summaries, row.fields.pages, positions, row.query, group_, call_->scale, kernel, part);
      read += static_cast<int>(positions.size()) * summaries.entries;
    }
    all.join(part);
  }
  if (!found.opened.empty()) {
    const OpenedPages opened{row.tokens.pages, row.fields.pages, found.opened, row.last_tokens, masses};
    attend_opened(kv_pages(row.kv_head), sharing, opened, row.query, group_, call_->scale, kernel, part);
    all.join(part);
    read += static_cast<int>(found.opened.size()) * (layout.page + 1);
  }
  all.write(out);
  if (masses != nullptr) {
    const std::array<float, kMostHeads> log_sums = all.log_sums();
    weigh_tokens(all_masses, std::span(log_sums).first(static_cast<size_t>(group_)));
  }
  return std::min((read + layout.page - 1) / layout.page, row.pages());
}

}  // namespace sluice::cpu
