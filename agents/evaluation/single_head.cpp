#include "agents/evaluation/single_head.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "scripting/graph/error.h"
#include "scripting/graph/selections.h"

namespace sluice {
namespace {

int pages_for(int tokens, int page) { return (tokens + page - 1) / page; }

}  // namespace

SingleHead::SingleHead(Device& device, const Plan& plan, int max_tokens, uint64_t seed)
    : device_(device), plan_(plan), seed_(seed) {
  const Geometry& geometry = plan.graph.geometry;
  const int pages = pages_for(max_tokens, plan.layout.page);
  pool_ = device.create_pool(1, 1, pages, plan.layout);
  // Pages in falling order: a device that mistook positions for pages would be found out.
  pages_.resize(pages);
  std::iota(pages_.rbegin(), pages_.rend(), 0);
  if (plan.graph.selection != kNoNode) {
    flow_ = device.compile(plan, 1, 1);
    state_ = flow_->create_state(pages);
    score_rows_ = scored_selections(plan.graph).size();
  }
  device.reserve({max_tokens, 1, pages, geometry.group, 1, geometry.head_dim, plan.layout.page});
}

Matrix SingleHead::upload(const std::vector<float>& values, int64_t rows) {
  uploads_.push_back(device_.allocate(values.size() * sizeof(float)));
  device_.write(uploads_.back()->data(), values.data(), values.size() * sizeof(float));
  const int64_t columns = static_cast<int64_t>(values.size()) / rows;
  return {uploads_.back()->data(), DataType::kF32, rows, columns, columns};
}

OpenPass SingleHead::begin(int rows, bool decoding) {
  tokens_ += rows;
  query_indptr_ = {0, rows};
  lengths_ = {tokens_};
  page_indptr_ = {0, pages_for(tokens_, plan_.layout.page)};
  decoding_ = {static_cast<uint8_t>(decoding)};
  seeds_ = {seed_};
  states_ = {state_.get()};
  PassBatch batch;
  batch.query_indptr = query_indptr_;
  batch.lengths = lengths_;
  batch.page_indptr = page_indptr_;
  batch.page_indices = std::span<const int32_t>(pages_).first(page_indptr_[1]);
  batch.decoding = decoding_;
  batch.seeds = seeds_;
  batch.states = states_;
  return {device_, batch, *pool_};
}

void SingleHead::append(const std::vector<float>& keys, const std::vector<float>& values) {
  const int64_t rows = query_indptr_[1];
  device_.append(0, upload(keys, rows), upload(values, rows));
  if (flow_) device_.refresh_fields(0, *flow_);
}

void SingleHead::prefill(const std::vector<float>& keys, const std::vector<float>& values) {
  {
    const OpenPass pass = begin(static_cast<int>(keys.size()) / plan_.graph.geometry.head_dim, false);
    append(keys, values);
  }
  device_.synchronize();
  uploads_.clear();
}

HeadStep SingleHead::decode(const std::vector<float>& key, const std::vector<float>& value, const std::vector<float>& query,
                            bool probed) {
  const Geometry& geometry = plan_.graph.geometry;
  const int pages = pages_for(tokens_ + 1, plan_.layout.page);
  HeadStep step;
  step.scores.assign(score_rows_ * pages, NAN);
  step.selected.assign(pages, -1);
  step.output.assign(query.size(), NAN);
  int32_t count = 0;
  AttentionProbe probe;
  probe.scores = step.scores.data();
  probe.selected = step.selected.data();
  probe.counts = &count;
  probe.score_capacity = probe.selected_capacity = pages;
  Device::Attention call;
  call.query_heads = geometry.group;
  call.scale = 1 / std::sqrt(static_cast<float>(geometry.head_dim));
  call.flow = flow_.get();
  call.probe = flow_ && probed ? &probe : nullptr;
  {
    const OpenPass pass = begin(1, true);
    append(key, value);
    const Matrix output = upload(step.output, 1);
    device_.attention(call, upload(query, 1), output);
    device_.read(step.output.data(), output.data, step.output.size() * sizeof(float));
  }
  uploads_.clear();
  if (flow_ && !probed) {
    step.selected.clear();
  } else if (flow_) {
    step.selected.resize(std::clamp(count, 0, pages));
  } else {
    std::iota(step.selected.begin(), step.selected.end(), 0);
  }
  return step;
}

}  // namespace sluice
