#include "agents/bench/layer_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/device/open_pass.h"
#include "kernels/reference/oracle.h"
#include "scripting/base/bits.h"
#include "scripting/base/error.h"
#include "scripting/graph/selections.h"

namespace sluice {
namespace {

constexpr int kDensePage = 16;
constexpr int kQuerySets = 8;  // calls rotate through them

}  // namespace

LayerSide::LayerSide(Device& device, const LayerShape& shape, const FlowGraph* flow, FieldPlace place)
    : device_(device), shape_(shape), batch_(std::vector<int>(2, flow == nullptr ? kDensePage : flow->geometry.page)) {
  layout_ = page_layout({shape.dim, shape.group, kDensePage, DataType::kBF16}, {});
  if (flow != nullptr) {
    name_ = flow->name;
    graph_ = *flow;
    if (graph_.eviction) {
      throw InputError(fmt::format("{}: a flow that evicts tokens keeps what its prompts left, and here is none", name_),
                       "use bench serve");
    }
    if (!graph_.attends_plainly() && !graph_.states.empty()) {
      throw InputError(fmt::format("{}: a cover whose flow keeps a state; what it gives depends on the steps before", name_),
                       "leave the state out, or use bench serve");
    }
    Plan plan = compile(graph_).plan;
    if (place == FieldPlace::kOwnPages) {
      plan = with_field_pages(std::move(plan));
      name_ += ", own field pages";
    }
    layout_ = plan.layout;
    flow_ = device.compile(plan, shape.layers, shape.kv_heads);
  }
  pages_ = shape.tokens / layout_.page;
  const int count = shape.sequences * pages_;
  pool_ = flow_ ? device.create_pool(map_of_plan(shape.layers, shape.kv_heads, count, flow_->plan()))
                : device.create_pool(shape.layers, shape.kv_heads, count, layout_);
  if (flow_ && flow_->plan().has_field_pages()) {
    field_group_ = 1;
    field_pages_.resize(static_cast<size_t>(count));
    std::iota(field_pages_.begin(), field_pages_.end(), pool_->map().first_page(1, 1));
    std::shuffle(field_pages_.begin(), field_pages_.end(), std::mt19937(2));
  }
  device.reserve({.rows = shape.sequences,
                  .sequences = shape.sequences,
                  .pages_per_sequence = pages_,
                  .query_heads = shape.query_heads(),
                  .kv_heads = shape.kv_heads,
                  .head_dim = shape.dim,
                  .page = layout_.page});

  page_indices_.resize(count);
  std::iota(page_indices_.begin(), page_indices_.end(), 0);
  std::shuffle(page_indices_.begin(), page_indices_.end(), std::mt19937(1));
  batch_.set_field_group(field_group_);
  for (int s = 0; s < shape.sequences; ++s) {
    states_.push_back(flow_ ? flow_->create_state(pages_) : nullptr);
    batch_.add({.first = shape.tokens - 1, .decoding = true, .seed = seed_of(s), .state = states_.back().get()}, pages_of(s));
    if (flow != nullptr && flow->beside() != nullptr) batch_.see_beside(0, *flow->beside());
    if (field_group_ < 0) continue;
    batch_.keep(field_group_, std::span<const int32_t>(field_pages_).subspan(static_cast<size_t>(s) * pages_, pages_));
  }

  std::vector<float> queries;
  for (int set = 0; set < kQuerySets; ++set) {
    for (int s = 0; s < shape.sequences; ++s) {
      const std::vector<float> more = queries_of(shape, set, s);
      queries.insert(queries.end(), more.begin(), more.end());
    }
  }
  std::vector<float> keys;
  std::vector<float> values;
  for (int row = 0; row < shape.sequences * shape.kv_heads; ++row) {
    const std::vector<float> key = new_content(shape, Content::kKey, row / shape.kv_heads, row % shape.kv_heads);
    const std::vector<float> value = new_content(shape, Content::kValue, row / shape.kv_heads, row % shape.kv_heads);
    keys.insert(keys.end(), key.begin(), key.end());
    values.insert(values.end(), value.begin(), value.end());
  }
  queries_ = upload(queries, int64_t{kQuerySets} * shape.sequences);
  keys_ = upload(keys, shape.sequences);
  values_ = upload(values, shape.sequences);
  outputs_ = upload(std::vector<float>(queries.size() / kQuerySets), shape.sequences);
}

Matrix LayerSide::upload(const std::vector<float>& values, int64_t rows) {
  const DataType type = device_.info().activation;
  const int64_t columns = static_cast<int64_t>(values.size()) / rows;
  memory_.push_back(device_.allocate(values.size() * size_of(type)));
  void* data = memory_.back()->data();
  if (type == DataType::kF32) {
    device_.write(data, values.data(), values.size() * sizeof(float));
  } else {
    std::vector<uint16_t> narrow;  // what is uploaded is exact in bf16
    for (const float value : values) narrow.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    device_.write(data, narrow.data(), narrow.size() * sizeof(uint16_t));
  }
  return {data, type, rows, columns, columns};
}

std::vector<float> LayerSide::outputs() const {
  std::vector<float> values(outputs_.rows * outputs_.columns);
  if (outputs_.type == DataType::kF32) {
    device_.read(values.data(), outputs_.data, values.size() * sizeof(float));
    return values;
  }
  std::vector<uint16_t> narrow(values.size());
  device_.read(narrow.data(), outputs_.data, narrow.size() * sizeof(uint16_t));
  for (size_t i = 0; i < narrow.size(); ++i) values[i] = std::bit_cast<float>(uint32_t{narrow[i]} << 16);
  return values;
}

void LayerSide::poison_outputs() {
  const std::vector<uint8_t> ones(outputs_.rows * outputs_.columns * size_of(outputs_.type), 0xff);  // NaN in every type
  device_.write(outputs_.data, ones.data(), ones.size());
}

void LayerSide::call(int layer, int64_t query, AttentionProbe* probe) {
  device_.append(layer, keys_, values_);
  if (flow_) device_.refresh_fields(layer, *flow_);
  device_.attention({.layer = layer,
                     .query_heads = shape_.query_heads(),
                     .scale = 1 / std::sqrt(static_cast<float>(shape_.dim)),
                     .flow = flow_.get(),
                     .probe = probe},
                    queries_.slice_rows(query % kQuerySets * shape_.sequences, shape_.sequences), outputs_);
}

void LayerSide::queue_pass() {
  const OpenPass open(device_, batch_.batch(), *pool_);
  for (int i = 0; i < shape_.calls; ++i, ++calls_) {
    call(static_cast<int>(calls_ % shape_.layers), calls_ / shape_.layers, nullptr);
  }
}

LayerSide::Selections LayerSide::probe(int layer, int64_t query) {
  const size_t rows = static_cast<size_t>(shape_.sequences) * shape_.kv_heads;
  const size_t score_rows = flow_ ? scored_selections(flow_->plan().graph).size() : 0;
  const int scores = flow_ ? pages_ * scores_a_page(flow_->plan().graph) : pages_;
  const int words = (shape_.tokens + 31) / 32;
  Selections selections{std::vector<float>(rows * score_rows * scores, NAN),
                        score_rows,
                        static_cast<size_t>(scores),
                        std::vector<int32_t>(rows * pages_, -1),
                        std::vector<int32_t>(rows, pages_),
                        std::vector<uint32_t>(rows * words)};
  if (!flow_) {
    for (size_t i = 0; i < rows * pages_; ++i) selections.selected[i] = static_cast<int32_t>(i % pages_);
    return selections;
  }
  AttentionProbe probe{.scores = selections.scores.data(),
                       .selected = selections.selected.data(),
                       .counts = selections.counts.data(),
                       .tokens = selections.tokens.data(),
                       .score_capacity = scores,
                       .selected_capacity = pages_,
                       .token_words = words};
  {
    const OpenPass open(device_, batch_.batch(), *pool_);
    call(layer, query, &probe);
  }
  device_.synchronize();
  return selections;
}

std::span<const int32_t> LayerSide::pages_of(int sequence) const {
  return std::span<const int32_t>(page_indices_).subspan(static_cast<size_t>(sequence) * pages_, pages_);
}

std::span<const int32_t> LayerSide::selected_by(const Selections& selections, int sequence, int kv_head) const {
  const size_t row = static_cast<size_t>(sequence) * shape_.kv_heads + kv_head;
  return std::span<const int32_t>(selections.selected).subspan(row * pages_, std::clamp(selections.counts[row], 0, pages_));
}

oracle::Observed LayerSide::observed(const Selections& selections, int sequence, int kv_head) const {
  const size_t row = static_cast<size_t>(sequence) * shape_.kv_heads + kv_head;
  const size_t numbers = selections.score_rows * selections.scores_of_row;
  return {std::span(selections.scores).subspan(row * numbers, numbers), selections.scores_of_row,
          selected_by(selections, sequence, kv_head)};
}

std::vector<int32_t> LayerSide::tokens_by(const Selections& selections, int sequence, int kv_head) const {
  const size_t words = selections.tokens.size() / selections.counts.size();
  const size_t row = static_cast<size_t>(sequence) * shape_.kv_heads + kv_head;
  return places_of_bits(std::span(selections.tokens).subspan(row * words, words), shape_.tokens);
}

std::string LayerSide::fault_of_selection(const Selections& selections, int sequence, int kv_head) const {
  if (!flow_) return {};
  oracle::Observed seen = observed(selections, sequence, kv_head);
  const std::vector<int32_t> tokens = tokens_by(selections, sequence, kv_head);
  if (graph_.selects_tokens()) seen.selected = tokens;
  const std::string fault = oracle::fault_of_selection(flow_->plan().graph, seen, pages_ * layout_.page);
  return fault.empty() ? fault : fmt::format("sequence {}, KV head {}: {}", sequence, kv_head, fault);
}

std::string LayerSide::fault_of_row(const Selections& selections, const std::vector<float>& out, int layer, int64_t query,
                                    int sequence, int kv_head, bool with_scores) const {
  const std::string where = fmt::format("layer {}, sequence {}, KV head {}", layer, sequence, kv_head);
  const std::vector<float> keys = row_content(shape_, Content::kKey, layer, sequence, kv_head);
  const std::vector<float> values = row_content(shape_, Content::kValue, layer, sequence, kv_head);
  const std::vector<float> all_queries = queries_of(shape_, query % kQuerySets, sequence);
  const size_t numbers = static_cast<size_t>(shape_.group) * shape_.dim;
  const std::span<const float> queries = std::span(all_queries).subspan(kv_head * numbers, numbers);
  const std::vector<int32_t> tokens = tokens_by(selections, sequence, kv_head);
  oracle::Observed seen = observed(selections, sequence, kv_head);
  if (graph_.selects_tokens()) seen.selected = tokens;
  const std::span<const int32_t> selected = seen.selected;

  oracle::Result expected;
  if (flow_ && graph_.states.empty() && (with_scores || !graph_.attends_plainly())) {
    oracle::States none;
    const oracle::Row row{queries, keys, values, shape_.tokens, seed_of(sequence), layer, kv_head};
    expected = oracle::run(graph_, row, none);
  }
  if (with_scores && flow_ && graph_.states.empty()) {
    const std::string fault = oracle::fault_of(graph_, flow_->plan().graph, seen, expected);
    if (!fault.empty()) return fmt::format("{}: {}", where, fault);
  }
  const std::vector<float> stored_keys = oracle::round_all_to(layout_.kv, keys);
  const std::vector<float> stored_values = oracle::round_all_to(layout_.kv, values);
  const double scale = 1 / std::sqrt(static_cast<double>(shape_.dim));
  std::vector<double> wanted;
  if (oracle::leaves_groups_open(graph_, expected)) return "";  // the device may have opened others
  if (!graph_.attends_plainly()) {
    wanted = oracle::attention(graph_, {queries, stored_keys, stored_values, shape_.tokens},
                               oracle::with_selected(graph_, expected, selected), scale);
  } else if (graph_.beside() != nullptr || graph_.selects_tokens()) {
    oracle::Result attended;
    std::vector<int32_t> list(selected.begin(), selected.end());
    oracle::Attended& source = attended.sources.emplace_back();
    (graph_.selects_tokens() ? source.tokens : source.pages) = std::move(list);
    wanted = oracle::attention(graph_, {queries, stored_keys, stored_values, shape_.tokens}, attended, scale);
  } else {
    wanted = oracle::attention(queries, stored_keys, stored_values, shape_.tokens, shape_.dim, layout_.page, selected, scale);
  }
  const double tolerance = outputs_.type == DataType::kF32 ? 1e-3 : 1e-2;  // of an output's 2-norm
  const float* given = out.data() + (static_cast<size_t>(sequence) * shape_.kv_heads + kv_head) * numbers;
  for (size_t head = 0; head < wanted.size() / shape_.dim; ++head) {
    double off = 0;
    double size = 0;
    for (size_t i = head * shape_.dim; i < (head + 1) * shape_.dim; ++i) {
      off += (given[i] - wanted[i]) * (given[i] - wanted[i]);
      size += wanted[i] * wanted[i];
    }
    const double error = std::sqrt(off / size);
    if (!(error <= tolerance)) return fmt::format("{}: the output of head {} is off by {:.2g} of itself", where, head, error);
  }
  return {};
}

std::string LayerSide::fault(int layer, int64_t query) {
  poison_outputs();
  {
    const OpenPass open(device_, batch_.batch(), *pool_);
    call(layer, query, nullptr);
  }
  std::vector<float> out = outputs();
  const Selections selections = probe(layer, query);
  if (!graph_.states.empty()) out = outputs();  // of the step that was probed: the one before may have selected other pages
  pages_attended_ =
      std::accumulate(selections.counts.begin(), selections.counts.end(), 0.0) / static_cast<double>(selections.counts.size());
  const BesideTokens& beside = batch_.batch().groups[0].beside;
  for (int row = 0; row < shape_.sequences * shape_.kv_heads && !beside.empty(); ++row) {
    const std::span<const int32_t> selected = selected_by(selections, row / shape_.kv_heads, row % shape_.kv_heads);
    for (int i = beside.indptr[row / shape_.kv_heads]; i < beside.indptr[row / shape_.kv_heads + 1]; ++i) {
      const bool is_selected = std::binary_search(selected.begin(), selected.end(), beside.pages[i]);
      pages_attended_ += is_selected ? 0 : 1.0 / (shape_.sequences * shape_.kv_heads);
    }
  }
  std::string fault;
  for (int row = 0; row < shape_.sequences * shape_.kv_heads && fault.empty(); ++row) {
    fault = fault_of_selection(selections, row / shape_.kv_heads, row % shape_.kv_heads);
  }
  for (int i = 0; i <= 2 && fault.empty(); ++i) {  // scores of one row only: those of long sequences take the judge a second
    fault = fault_of_row(selections, out, layer, query, i * (shape_.sequences - 1) / 2, i * (shape_.kv_heads - 1) / 2, i == 1);
  }
  return fault;
}

double LayerSide::bytes() const {
  double fields = 0;  // of a page
  for (const Field& field : graph_.fields) {
    fields += static_cast<double>(elements_per_page(field.shape)) * static_cast<double>(size_of(field.type));
  }
  const double token = 2.0 * shape_.dim * static_cast<double>(size_of(layout_.kv));
  double of_row = fields * pages_ + token * layout_.page * pages_attended_ + token;
  for (const AttentionSource& source : graph_.sources) {  // pages that are opened do not need what stands for their values
    const Field* const values = graph_.find_field(source.values);
    if (values == nullptr) continue;
    of_row -=
        static_cast<double>(elements_per_page(values->shape)) * static_cast<double>(size_of(values->type)) * pages_attended_;
  }
  return shape_.sequences * shape_.kv_heads * of_row;
}

void LayerSide::fill(const LayerShape& shape, std::span<const std::unique_ptr<LayerSide>> sides) {
  constexpr int kStretch = 8 * kLargestPage;  // tokens at a time, so that the float32 originals stay small
  for (int first = 0; first < shape.tokens; first += kStretch) {
    const int tokens = std::min(kStretch, shape.tokens - first);
    const std::vector<float> keys = common_content(shape, Content::kKey, first, tokens);
    const std::vector<float> values = common_content(shape, Content::kValue, first, tokens);
    for (const auto& side : sides) {
      const int page = side->layout_.page;
      side->pool_->write(side->pages_of(0).subspan(first / page, tokens / page), tokens, keys.data(), values.data());
    }
  }
  for (const auto& side : sides) {
    const std::span<const int32_t> from = side->pages_of(0);
    for (int s = 1; s < shape.sequences; ++s) {
      const int shift = shift_of(shape, s) / side->layout_.page;
      for (int page = 0; page < side->pages_; ++page) {
        side->pool_->copy_page(from[(page + shift) % side->pages_], side->pages_of(s)[page]);
      }
    }
    for (int layer = 0; side->flow_ && layer < shape.layers; ++layer) {
      side->device_.refresh_pages(*side->pool_, layer,
                                  {.pages = side->page_indices_,
                                   .last_tokens = side->layout_.page,
                                   .field_group = side->field_group_,
                                   .field_pages = side->field_pages_},
                                  *side->flow_);
    }
  }
}

}  // namespace sluice
