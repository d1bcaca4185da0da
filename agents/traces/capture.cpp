#include "agents/traces/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/device/batch_builder.h"
#include "kernels/device/open_pass.h"
#include "scripting/base/error.h"

namespace sluice {

namespace {

constexpr int kPage = 16;    // of the pool; flows see pages of their own size
constexpr int kChunk = 512;  // tokens of a prefill pass

void check_prompt(const std::vector<int32_t>& prompt, const ModelConfig& config) {
  if (config.has_windows()) {
    throw InputError("the model has layers with a window, whose attention cannot be captured",
                     "take a model whose layers see all");
  }
  if (prompt.empty()) throw InputError("the prompt is empty", "give at least one token");
  if (prompt.size() <= static_cast<size_t>(config.max_positions)) return;
  throw InputError(fmt::format("a prompt of {} tokens exceeds the model's {} positions", prompt.size(), config.max_positions));
}

}  // namespace

Capture::Capture(Device& device, const Model& model, const std::vector<int32_t>& prompt, DataType kv, const Pace& pace,
                 std::vector<int> layers)
    : device_(device), model_(model), layers_(std::move(layers)) {
  const ModelConfig& config = model.config();
  if (layers_.empty()) {
    layers_.resize(static_cast<size_t>(config.layers));
    std::iota(layers_.begin(), layers_.end(), 0);
  }
  check_prompt(prompt, config);
  const int pages = pages_for(std::min(static_cast<int>(prompt.size()) + kMostSteps, config.max_positions), kPage);
  pool_ =
      device.create_pool(config.layers, config.kv_heads, pages, page_layout({config.head_dim, config.group(), kPage, kv}, {}));
  workspace_ = model.create_workspace(device, kChunk, 1);
  device.reserve({kChunk, 1, pages, config.query_heads, config.kv_heads, config.head_dim, kPage, config.vocabulary});
  keys_.resize(static_cast<size_t>(config.layers) * static_cast<size_t>(config.kv_heads));
  values_.resize(keys_.size());
  const int before = static_cast<int>(prompt.size()) - 1;
  for (int first = 0; first < before; first += kChunk) {
    pace();
    run({prompt.begin() + first, prompt.begin() + std::min(first + kChunk, before)}, false);
  }
  pace();
  run({prompt.back()}, true);
}

int32_t Capture::step() {
  const int32_t token = next_;
  feed(token);
  return token;
}

void Capture::feed(int32_t token) {
  const int room = std::min(pool_->pages() * kPage, model_.config().max_positions);
  if (tokens_ == room) {
    throw InputError(fmt::format("there is no room for more than {} tokens", room), ":prompt begins another request");
  }
  run({token}, true);
}

void Capture::run(const std::vector<int32_t>& tokens, bool decoding) {
  const ModelConfig& config = model_.config();
  const auto rows = static_cast<int32_t>(tokens.size());
  const int first = tokens_;
  const int total = first + rows;
  std::vector<int32_t> pages(static_cast<size_t>(pages_for(total, kPage)));
  std::iota(pages.begin(), pages.end(), 0);
  BatchBuilder batch(kPage);
  batch.add({.first = first, .rows = rows, .decoding = decoding}, pages);
  const int32_t last_row[] = {rows - 1};
  std::vector<float> queries(static_cast<size_t>(config.layers) * static_cast<size_t>(config.query_heads) *
                             static_cast<size_t>(config.head_dim));
  Model::ForwardPass pass;
  pass.tokens = tokens;
  if (decoding) {
    pass.logit_rows = last_row;
    pass.queries = queries.data();
  }
  {
    const OpenPass open(device_, batch.batch(), *pool_);
    const Matrix logits = model_.forward(device_, *workspace_, pass);
    if (decoding) {
      Sampled sampled;
      device_.sample(logits, std::vector<SampleRow>(1), {&sampled, 1});
      if (!sampled.sound) throw InputError("the model's logits are not finite: its weights are damaged or overflow");
      next_ = sampled.token;
    }
  }
  tokens_ = total;
  if (decoding) queries_.push_back(std::move(queries));
  keep_kv(first);
}

/// Copies K and V of the tokens from `first` on, which are the newest, out of the pool.
void Capture::keep_kv(int first) {
  const ModelConfig& config = model_.config();
  const int first_page = first / kPage;
  std::vector<int32_t> pages(static_cast<size_t>(pages_for(tokens_, kPage) - first_page));
  std::iota(pages.begin(), pages.end(), first_page);
  const int tokens = tokens_ - first_page * kPage;
  const auto dim = static_cast<ptrdiff_t>(config.head_dim);
  std::vector<float> keys(static_cast<size_t>(config.layers) * static_cast<size_t>(tokens) *
                          static_cast<size_t>(config.kv_heads) * static_cast<size_t>(dim));
  std::vector<float> values(keys.size());
  pool_->read(pages, tokens, keys.data(), values.data());
  for (const int layer : layers_) {
    for (int token = first - first_page * kPage; token < tokens; ++token) {
      for (int head = 0; head < config.kv_heads; ++head) {
        const ptrdiff_t at = ((ptrdiff_t{layer} * tokens + token) * config.kv_heads + head) * dim;
        const auto append = [&](const std::vector<float>& from, std::vector<float>& to) {
          to.insert(to.end(), from.begin() + at, from.begin() + at + dim);
        };
        append(keys, keys_[place(layer, head)]);
        append(values, values_[place(layer, head)]);
      }
    }
  }
}

oracle::Row Capture::row(int layer, int kv_head, int step) const {
  const ModelConfig& config = model_.config();
  const auto group = static_cast<size_t>(config.group()) * static_cast<size_t>(config.head_dim);
  const std::span<const float> queries = queries_[static_cast<size_t>(step)];
  oracle::Row row;
  row.query = queries.subspan(place(layer, kv_head) * group, group);
  row.tokens = tokens_ - (steps() - 1 - step);
  const auto numbers = static_cast<size_t>(row.tokens) * static_cast<size_t>(config.head_dim);
  row.keys = std::span(keys_[place(layer, kv_head)]).first(numbers);
  row.values = std::span(values_[place(layer, kv_head)]).first(numbers);
  row.layer = layer;
  row.kv_head = kv_head;
  return row;
}

}  // namespace sluice
