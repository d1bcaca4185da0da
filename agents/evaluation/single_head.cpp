#include "agents/evaluation/single_head.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "scripting/base/bits.h"
#include "scripting/base/error.h"
#include "scripting/graph/selections.h"

namespace sluice {
namespace {

constexpr int kLayers = SingleHead::kLayer + 1;
constexpr int kHeads = SingleHead::kHeads;
constexpr int kSequences = 2;
constexpr int kOtherPages = 4;  // most of the other request, which begins anew when they are full

/// Tokens of its prompt: a page, and some that leave its last page filled otherwise than this request's is.
int other_prompt(int page) { return page + 5; }

}  // namespace

SingleHead::SingleHead(Device& device, const Plan& plan, int max_tokens, uint64_t seed, int prompt)
    : device_(device), plan_(plan), seed_(seed), batch_(plan.layout.page), prompt_(prompt) {
  if (plan.graph.eviction) {
    budget_.emplace(*plan.graph.eviction, max_tokens);
    batch_.set_last_readers(0, budget_->last_readers());
  }
  const Geometry& geometry = plan.graph.geometry;
  const int pages = pages_for(max_tokens, plan.layout.page);
  if (!plan.graph.patterns.empty() && !plan.graph.patterns.patterns.front().is_same()) batch_.set_mask_heads(0, kHeads);
  pool_ = device.create_pool(kLayers, kHeads, kOtherPages + pages, plan.layout);
  // Pages in falling order: a device that mistook positions for pages would be found out.
  pages_.resize(kOtherPages + pages);
  std::iota(pages_.rbegin(), pages_.rend(), 0);
  if (plan.graph.selection() != kNoNode) {
    flow_ = device.compile(plan, kLayers, kHeads);
    state_ = flow_->create_state(pages);
    other_state_ = flow_->create_state(kOtherPages);
    score_rows_ = scored_selections(plan.graph).size();
  }
  device.reserve({max_tokens + other_prompt(plan.layout.page), kSequences, std::max(pages, kOtherPages), kHeads * geometry.group,
                  kHeads, geometry.head_dim, plan.layout.page});
}

Matrix SingleHead::upload(const std::vector<float>& values, int64_t rows) {
  uploads_.push_back(device_.allocate(values.size() * sizeof(float)));
  device_.write(uploads_.back()->data(), values.data(), values.size() * sizeof(float));
  const int64_t columns = static_cast<int64_t>(values.size()) / rows;
  return {uploads_.back()->data(), DataType::kF32, rows, columns, columns};
}

Matrix SingleHead::upload_tokens(const std::vector<float>& tokens, int layer) {
  const int dim = plan_.graph.geometry.head_dim;
  const int other_rows = other_rows_;
  const int rows = batch_.rows();
  std::vector<float> all;
  all.reserve(static_cast<size_t>(rows) * kHeads * dim);
  for (int row = 0; row < rows; ++row) {
    const bool other = row < other_rows;
    const auto token = tokens.begin() + static_cast<ptrdiff_t>(other ? row : row - other_rows) * dim;
    for (int head = 0; head < kHeads; ++head) {
      const float sign = !other && head == kHead && layer == kLayer ? 1.0F : -1.0F;
      std::transform(token, token + dim, std::back_inserter(all), [sign](float x) { return sign * x; });
    }
  }
  return upload(all, rows);
}

void SingleHead::add(const BatchBuilder::Sequence& sequence, std::span<const int32_t> pages) {
  const FlowGraph& graph = plan_.graph;
  const bool is_bounded = sequence.decoding && !graph.patterns.empty();
  batch_.add(sequence);
  if (budget_) {
    const bool is_other = pages.data() == pages_.data();
    batch_.keep_staying(0, pages, is_other ? sequence.first : budget_->held(sequence.first, prompt_),
                        is_other ? sequence.first : budget_->staying(sequence.first, prompt_),
                        is_other ? 0 : budget_->chunk_end(sequence.first, prompt_));
  } else if (is_bounded) {
    batch_.keep_under(0, pages, graph.patterns.patterns.front());
  } else {
    batch_.keep(0, pages);
  }
  if (graph.beside() != nullptr && sequence.decoding) batch_.see_beside(0, *graph.beside());
  if (is_bounded) batch_.drop_unseen_pages(0);
}

OpenPass SingleHead::begin(int rows, int other_rows, bool decoding, int prompt_rows) {
  const int page = plan_.layout.page;
  if (other_tokens_ + other_rows > kOtherPages * page) {
    other_tokens_ = 0;
    if (flow_) other_state_ = flow_->create_state(kOtherPages);
  }
  batch_.clear();
  const std::span<const int32_t> pages(pages_);
  add({.first = other_tokens_, .rows = other_rows, .decoding = decoding, .seed = seed_ + 1, .state = other_state_.get()},
      pages.first(kOtherPages));
  add({.first = tokens_, .rows = rows, .decoding = decoding, .seed = seed_, .state = state_.get(), .prompt_rows = prompt_rows},
      pages.subspan(kOtherPages));
  other_rows_ = other_rows;
  tokens_ += rows;
  other_tokens_ += other_rows;
  return {device_, batch_.batch(), *pool_};
}

void SingleHead::append(const std::vector<float>& keys, const std::vector<float>& values) {
  if (budget_) device_.evict(*flow_);
  for (int layer = 0; layer < kLayers; ++layer) {
    device_.append(layer, upload_tokens(keys, layer), upload_tokens(values, layer));
    if (flow_) device_.refresh_fields(layer, *flow_);
  }
}

void SingleHead::prefill(const std::vector<float>& keys, const std::vector<float>& values) {
  {
    const int rows = static_cast<int>(keys.size()) / plan_.graph.geometry.head_dim;
    const OpenPass pass = begin(rows, std::min(rows, other_prompt(plan_.layout.page)), false);
    append(keys, values);
  }
  device_.synchronize();
  uploads_.clear();
}

std::vector<float> SingleHead::values_in(int slots) const {
  const auto dim = static_cast<size_t>(plan_.graph.geometry.head_dim);
  std::vector<float> values(static_cast<size_t>(slots) * kHeads * dim);
  const size_t bytes = values.size() * sizeof(float);
  const std::unique_ptr<Memory> memory = device_.allocate(2 * bytes);
  auto* const numbers = static_cast<float*>(memory->data());
  const std::span<const int32_t> pages = std::span(pages_).subspan(kOtherPages);
  pool_->read_layer(kLayer, pages.first(static_cast<size_t>(pages_for(slots, plan_.layout.page))), slots, numbers,
                    numbers + values.size());
  device_.read(values.data(), numbers + values.size(), bytes);
  std::vector<float> own;
  for (size_t slot = 0; slot < static_cast<size_t>(slots); ++slot) {
    const auto begin = values.begin() + static_cast<ptrdiff_t>((slot * kHeads + kHead) * dim);
    own.insert(own.end(), begin, begin + static_cast<ptrdiff_t>(dim));
  }
  return own;
}

std::vector<float> SingleHead::attend(std::span<const float> queries, AttentionProbe* probe) {
  const Geometry& geometry = plan_.graph.geometry;
  const size_t of_head = queries.size() / static_cast<size_t>(batch_.rows() - other_rows_);
  std::vector<float> all;  // [rows, heads, ...]
  for (int row = 0; row < batch_.rows(); ++row) {
    const auto own = queries.subspan(static_cast<size_t>(std::max(0, row - other_rows_)) * of_head, of_head);
    for (int head = 0; head < kHeads; ++head) {
      if (row >= other_rows_ && head == kHead) {
        all.insert(all.end(), own.begin(), own.end());
      } else {
        all.insert(all.end(), own.rbegin(), own.rend());
      }
    }
  }
  std::vector<float> outputs(all.size(), NAN);
  Device::Attention call;
  call.layer = kLayer;
  call.query_heads = kHeads * geometry.group;
  call.scale = 1 / std::sqrt(static_cast<float>(geometry.head_dim));
  call.flow = flow_.get();
  call.probe = probe;
  const Matrix output = upload(outputs, batch_.rows());
  device_.attention(call, upload(all, batch_.rows()), output);
  device_.read(outputs.data(), output.data, outputs.size() * sizeof(float));
  return {outputs.end() - static_cast<ptrdiff_t>(of_head), outputs.end()};
}

void SingleHead::end_prompt(const std::vector<float>& keys, const std::vector<float>& values, const std::vector<float>& queries) {
  {
    const int rows = static_cast<int>(keys.size()) / plan_.graph.geometry.head_dim;
    const OpenPass pass = begin(rows, std::min(rows, other_prompt(plan_.layout.page)), false, tokens_ + rows);
    append(keys, values);
    attend(queries, nullptr);
  }
  device_.synchronize();
  uploads_.clear();
}

HeadStep SingleHead::decode(const std::vector<float>& key, const std::vector<float>& value, const std::vector<float>& query,
                            bool probed) {
  const int pages = pages_for(tokens_ + 1, plan_.layout.page);  // or fewer, under a pattern
  constexpr int kHeadsOfPass = kSequences * kHeads;             // of which this one is the last
  const auto numbers = static_cast<size_t>(pages) * static_cast<size_t>(scores_a_page(plan_.graph));  // of a row of scores
  std::vector<float> scores(kHeadsOfPass * score_rows_ * numbers, NAN);
  std::vector<int32_t> selected(static_cast<size_t>(kHeadsOfPass) * pages, -1);
  std::vector<int32_t> counts(kHeadsOfPass);
  const int tokens = pages * plan_.layout.page;
  std::vector<uint32_t> bits(static_cast<size_t>(kHeadsOfPass * ((tokens + 31) / 32)));
  AttentionProbe probe;
  probe.tokens = bits.data();
  probe.token_words = (tokens + 31) / 32;
  probe.scores = scores.data();
  probe.selected = selected.data();
  probe.counts = counts.data();
  probe.score_capacity = static_cast<int>(numbers);
  probe.selected_capacity = pages;
  HeadStep step;
  {
    const OpenPass pass = begin(1, 1, true);
    append(key, value);
    step.output = attend(query, flow_ && probed ? &probe : nullptr);
  }
  uploads_.clear();
  step.scores.assign(scores.end() - static_cast<ptrdiff_t>(score_rows_ * numbers), scores.end());
  const bool of_tokens = flow_ && is_of_tokens(plan_.graph, plan_.graph.selection());
  if (of_tokens && probed) {
    step.selected = places_of_bits(std::span(bits).last(static_cast<size_t>(probe.token_words)), tokens_);
  } else if (flow_ && probed) {
    const auto own = selected.end() - pages;
    step.selected.assign(own, own + std::clamp(counts.back(), 0, pages));
  } else if (!flow_) {
    step.selected.resize(pages);
    std::iota(step.selected.begin(), step.selected.end(), 0);
  }
  return step;
}

}  // namespace sluice
