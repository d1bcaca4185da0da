#include "agents/traces/layer_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/device/batch_builder.h"
#include "kernels/device/device_refusal.h"
#include "kernels/device/open_pass.h"
#include "scripting/base/bits.h"
#include "scripting/graph/selections.h"

namespace sluice {
namespace {

constexpr int kChunk = 512;  // tokens of a pass before the first step

size_t size_of_product(int a, int b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }

}  // namespace

void require_all_tokens(const FlowGraph& traced) {
  if (!traced.eviction) return;
  throw FlowError(
      traced.eviction->where,
      fmt::format("flow \"{}\" evicts tokens as a prompt grows, and a recorded layer has the queries of its last steps alone",
                  traced.name),
      "what it loses is told by a model that answers under it: sluice eval without --traces");
}

Plan compile_for_one_layer(FlowGraph traced, const Device& device, std::optional<int> pattern) {
  if (!traced.variants.empty()) {
    throw InputError(fmt::format("flow \"{}\" has {} programs, for different layers, and here is one layer", traced.name,
                                 traced.variants.size() + 1),
                     "give a flow of one of them");
  }
  LayerPatterns& patterns = traced.patterns;
  require_all_tokens(traced);
  if (!pattern && patterns.patterns.size() > 1) {
    throw InputError(fmt::format("flow \"{}\" has {} patterns, for different layers, and here is one layer", traced.name,
                                 patterns.patterns.size()),
                     "give a flow with one pattern");
  }
  if (!patterns.empty()) {
    patterns.patterns = {patterns.patterns[static_cast<size_t>(pattern.value_or(0))]};
    patterns.rest = 0;
    patterns.layers.clear();
  }
  if (traced.selection() != kNoNode || !patterns.empty()) traced.layers = LayerChoice{};
  Plan plan = compile(std::move(traced)).plan;
  require_device_takes(plan, device.info().name);
  return plan;
}

LayerReplay::LayerReplay(Device& device, const LayerTensors& tensors, const Plan& plan, const Options& options)
    : device_(device),
      tensors_(tensors),
      options_(options),
      pages_(pages_for(tensors.tokens, plan.layout.page)),
      pool_(device.create_pool(1, tensors.kv_heads, pages_, plan.layout)),
      page_indices_(static_cast<size_t>(pages_)),
      has_selection_(plan.graph.selection() != kNoNode),
      patterns_(plan.graph.patterns.empty() ? std::nullopt : std::optional(plan.graph.patterns.patterns.front())),
      flow_(device.compile(plan, 1, tensors.kv_heads)),
      output_(size_of_product(tensors.query_heads, tensors.dim)),
      selected_(size_of_product(tensors.kv_heads, pages_)),
      counts_(static_cast<size_t>(tensors.kv_heads)) {
  if (options_.scale == 0) options_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(tensors.dim)));
  std::iota(page_indices_.begin(), page_indices_.end(), 0);
  if (options.wants_scores)
    scores_.resize(scored_selections(plan.graph).size() * selected_.size() * static_cast<size_t>(scores_a_page(plan.graph)));
  if (plan.graph.selects_tokens()) tokens_.resize(size_of_product(tensors.kv_heads, token_words()));
  device.reserve({.rows = std::min(kChunk, tensors.tokens),
                  .sequences = 1,
                  .pages_per_sequence = pages_,
                  .query_heads = tensors.query_heads,
                  .kv_heads = tensors.kv_heads,
                  .head_dim = tensors.dim,
                  .page = plan.layout.page,
                  .mask_words = patterns_ ? mask_heads() * ((tensors.tokens + 31) / 32) : 0});
  state_ = flow_->create_state(pages_);
  const size_t key_bytes = sizeof(float) * kChunk * size_of_product(tensors.kv_heads, tensors.dim);
  keys_ = device.allocate(key_bytes);
  values_ = device.allocate(key_bytes);
  query_ = device.allocate(sizeof(float) * output_.size());
  output_memory_ = device.allocate(sizeof(float) * output_.size());
}

void LayerReplay::run(const std::function<void(int step, const LayerStep& result)>& take) {
  const int before = tensors_.tokens_before();
  for (int first = 0; first < before; first += kChunk) pass(first, std::min(kChunk, before - first), false, [] {});
  for (int step = 0; step < tensors_.steps; ++step) {
    decode(step);
    if (patterns_) place_selected(before + step);
    take(step, {output_, selected_, counts_, scores_, tokens_});
  }
}

int LayerReplay::mask_heads() const { return patterns_ ? std::min(patterns_->size(), tensors_.kv_heads) : 1; }

void LayerReplay::pass(int first, int count, bool decoding, const std::function<void()>& attend) {
  BatchBuilder batch(pool_->layout().page);
  batch.set_mask_heads(0, mask_heads());
  batch.add({.first = first, .rows = count, .decoding = decoding, .seed = options_.seed, .state = state_.get()});
  if (patterns_ && decoding) {
    batch.keep_under(0, page_indices_, *patterns_);
  } else {
    batch.keep(0, page_indices_);
  }
  const Pattern* const beside = flow_->plan().graph.beside();
  if (beside != nullptr && decoding) batch.see_beside(0, *beside);
  if (patterns_ && decoding && has_selection_) batch.drop_unseen_pages(0);
  const OpenPass open(device_, batch.batch(), *pool_);
  const int64_t columns = int64_t{tensors_.kv_heads} * tensors_.dim;
  const size_t bytes = sizeof(float) * static_cast<size_t>(count * columns);
  device_.write(keys_->data(), tensors_.keys.data() + first * columns, bytes);
  device_.write(values_->data(), tensors_.values.data() + first * columns, bytes);
  device_.append(0, matrix(*keys_, count, columns), matrix(*values_, count, columns));
  device_.refresh_fields(0, *flow_);
  attend();
}

void LayerReplay::decode(int step) {
  const auto columns = static_cast<int64_t>(output_.size());
  std::fill(selected_.begin(), selected_.end(), -1);
  std::fill(scores_.begin(), scores_.end(), -std::numeric_limits<float>::infinity());
  AttentionProbe probe;
  probe.scores = scores_.empty() ? nullptr : scores_.data();
  probe.selected = selected_.data();
  probe.counts = counts_.data();
  probe.score_capacity = pages_ * scores_a_page(flow_->plan().graph);
  probe.selected_capacity = pages_;
  probe.tokens = tokens_.empty() ? nullptr : tokens_.data();
  probe.token_words = token_words();
  pass(tensors_.tokens_before() + step, 1, true, [&] {
    device_.write(query_->data(), tensors_.queries.data() + step * columns, sizeof(float) * output_.size());
    const Device::Attention call{0, tensors_.query_heads, options_.scale, has_selection_ ? flow_.get() : nullptr, &probe};
    device_.attention(call, matrix(*query_, 1, columns), matrix(*output_memory_, 1, columns));
    device_.synchronize();
    device_.read(output_.data(), output_memory_->data(), sizeof(float) * output_.size());
  });
}

void LayerReplay::place_selected(int position) {
  const int page = pool_->layout().page;
  std::vector<uint32_t> seen(static_cast<size_t>(position) / 32 + 1);
  patterns_->any(tensors_.kv_heads).row(position, position + 1, seen);
  std::vector<int32_t> pages;
  for (int index = 0; index < pages_for(position + 1, page); ++index) {
    const bool is_own = index == position / page;
    if (is_own || has_any_bit(seen, index * page, std::min(position + 1, (index + 1) * page))) pages.push_back(index);
  }
  if (has_selection_) {
    for (int32_t& place : selected_) place = place < 0 ? place : pages[static_cast<size_t>(place)];
    place_scores(pages);
    place_tokens(pages);
    return;
  }
  std::fill(counts_.begin(), counts_.end(), static_cast<int32_t>(pages.size()));
  std::fill(selected_.begin(), selected_.end(), -1);
  for (int head = 0; head < tensors_.kv_heads; ++head) {
    std::copy(pages.begin(), pages.end(), selected_.begin() + static_cast<ptrdiff_t>(head) * pages_);
  }
}

void LayerReplay::place_scores(const std::vector<int32_t>& pages) {
  const int most = scores_a_page(flow_->plan().graph);
  const std::vector<NodeId> scored = scored_selections(flow_->plan().graph);
  const auto of_row = size_of_product(pages_, most);
  for (size_t row = 0; row * of_row < scores_.size(); ++row) {
    const Node& selection = flow_->plan().graph.nodes[static_cast<size_t>(scored[row % scored.size()])];
    const int of_page = selection.op == Op::kTopKTokens ? most : 1;
    float* const scores = scores_.data() + row * of_row;
    // From the last on: no page comes before its place among those that are seen.
    for (int index = pages_ - 1, next = static_cast<int>(pages.size()) - 1; index >= 0; --index) {
      const bool is_seen = next >= 0 && pages[static_cast<size_t>(next)] == index;
      for (int i = of_page - 1; i >= 0; --i)
        scores[index * of_page + i] = is_seen ? scores[next * of_page + i] : -std::numeric_limits<float>::infinity();
      next -= is_seen ? 1 : 0;
    }
  }
}

void LayerReplay::place_tokens(const std::vector<int32_t>& pages) {
  const int page = pool_->layout().page;
  for (int head = 0; head < tensors_.kv_heads && !tokens_.empty(); ++head) {
    const std::span<uint32_t> own =
        std::span(tokens_).subspan(size_of_product(head, token_words()), static_cast<size_t>(token_words()));
    const std::vector<uint32_t> shown(own.begin(), own.end());
    std::fill(own.begin(), own.end(), 0);
    for (size_t place = 0; place < pages.size(); ++place)
      join_bits(own, int64_t{pages[place]} * page, shown, static_cast<int64_t>(place) * page, page);
  }
}

Matrix LayerReplay::matrix(const Memory& memory, int64_t rows, int64_t columns) {
  return {memory.data(), DataType::kF32, rows, columns, columns};
}

}  // namespace sluice
