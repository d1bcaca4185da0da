// What attention gives, for the entries of one selection or of several sources.

#include <algorithm>
#include <cmath>
#include <list>

#include "kernels/reference/oracle.h"

namespace sluice::oracle {

std::vector<double> attention(std::span<const float> query, std::span<const Entry> entries, double scale) {
  std::vector<double> output(query.size());
  if (entries.empty()) return output;
  const size_t dim = entries.front().key.size();
  for (size_t head = 0; head < query.size() / dim; ++head) {
    std::vector<double> logits;
    for (const Entry& entry : entries) {
      double product = 0;
      for (size_t d = 0; d < dim; ++d) product += double(query[head * dim + d]) * entry.key[d];
      logits.push_back(scale * product + (entry.bias.empty() ? 0 : entry.bias[head]));
    }
    const double largest = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const double logit : logits) total += std::exp(logit - largest);
    for (size_t i = 0; i < entries.size(); ++i) {
      const double weight = std::exp(logits[i] - largest) / total;
      for (size_t d = 0; d < dim; ++d) output[head * dim + d] += weight * entries[i].value[d];
    }
  }
  return output;
}

std::vector<double> attention(std::span<const float> query, std::span<const float> keys, std::span<const float> values,
                              int tokens, int dim, int page, std::span<const int32_t> pages, double scale) {
  std::vector<Entry> entries;
  for (const int32_t p : pages) {
    for (int token = p * page; token < std::min(tokens, (p + 1) * page); ++token) {
      entries.push_back({keys.subspan(size_t(token) * dim, dim), values.subspan(size_t(token) * dim, dim), {}});
    }
  }
  return attention(query, entries, scale);
}

namespace {

/// What is added to the logits of a page's entries, by head.
std::vector<double> bias_of(const Tensor& bias, int page, int group) {
  if (bias.values.empty()) return {};
  const bool by_head = has_axis(bias.shape, Axis::kHead);
  std::vector<double> of_heads(group);
  for (int h = 0; h < group; ++h) of_heads[h] = bias.values[by_head ? size_t(page) * group + h : size_t(page)].value;
  return of_heads;
}

std::vector<float> numbers_of(const Tensor& tensor) {
  std::vector<float> numbers;
  for (const Bounded& each : tensor.values) numbers.push_back(float(each.value));
  return numbers;
}

/// The logits of q [group, dim] for a key, by head.
std::vector<double> logits_of(std::span<const float> query, std::span<const float> key, double scale) {
  std::vector<double> logits(query.size() / key.size());
  for (size_t head = 0; head < logits.size(); ++head) {
    for (size_t d = 0; d < key.size(); ++d) logits[head] += scale * query[head * key.size() + d] * key[d];
  }
  return logits;
}

/// One softmax over the entries of all sources.
class Attention {
 public:
  Attention(const FlowGraph& graph, const Row& row, const Result& result, double scale)
      : graph_(graph), row_(row), result_(result), scale_(scale), dim_(size_t(graph.geometry.head_dim)) {}

  std::vector<double> run() {
    for (size_t i = 0; i < graph_.sources.size(); ++i) {
      const AttentionSource& source = graph_.sources[i];
      for (const int32_t page : result_.sources[i].pages) {
        if (source.keys == "k") {
          add_tokens(page);
        } else if (!source.shares || !has_tokens(page)) {
          add_entries(i, page);
        }
      }
      if (source.beside) add_beside(*source.beside, result_.sources[i].pages);
    }
    return attention(row_.query, entries_, scale_);
  }

 private:
  struct Part {
    std::span<const float> keys, values;
  };

  /// The tokens of a page.
  Part tokens_of(int page) const {
    const size_t first = size_t(page) * graph_.geometry.page;
    const size_t held = std::min(size_t(graph_.geometry.page), row_.tokens - first);
    return {row_.keys.subspan(first * dim_, held * dim_), row_.values.subspan(first * dim_, held * dim_)};
  }
  /// What a source has of a page in fields.
  Part fields_of(const AttentionSource& source, int page) {
    const Part tokens = tokens_of(page);
    const std::vector<Tensor> fields = cached_fields(graph_, tokens.keys, tokens.values, int(tokens.keys.size() / dim_));
    const auto field_of = [&](const std::string& name) { return size_t(graph_.find_field(name) - graph_.fields.data()); };
    return {summaries_.emplace_back(numbers_of(fields[field_of(source.keys)])),
            summaries_.emplace_back(numbers_of(fields[field_of(source.values)]))};
  }
  bool has_page(size_t source, int page) const {
    const std::vector<int32_t>& pages = result_.sources[source].pages;
    return std::binary_search(pages.begin(), pages.end(), page);
  }
  bool has_tokens(int page) const {
    for (size_t i = 0; i < graph_.sources.size(); ++i) {
      if (graph_.sources[i].keys == "k" && has_page(i, page)) return true;
    }
    return false;
  }

  void add(const Part& part, const std::vector<double>& bias) {
    for (size_t at = 0; at < part.keys.size(); at += dim_)
      entries_.push_back({part.keys.subspan(at, dim_), part.values.subspan(at, dim_), bias});
  }
  void add_entries(size_t source, int page) {
    add(fields_of(graph_.sources[source], page), bias_of(result_.sources[source].bias, page, graph_.geometry.group));
  }
  /// Those of a page that shares its weight are shifted so that together they have the logit of its entry.
  void add_tokens(int page) {
    const Part tokens = tokens_of(page);
    for (size_t i = 0; i < graph_.sources.size(); ++i) {
      if (!graph_.sources[i].shares || !has_page(i, page)) continue;
      std::vector<double> shift = logits_of(row_.query, fields_of(graph_.sources[i], page).keys, scale_);
      const std::vector<double> bias = bias_of(result_.sources[i].bias, page, graph_.geometry.group);
      for (size_t head = 0; head < shift.size(); ++head) shift[head] += (bias.empty() ? 0 : bias[head]) - log_sum(tokens, head);
      return add(tokens, shift);
    }
    add(tokens, {});
  }
  /// Of the powers of a head's logits for the tokens.
  double log_sum(const Part& tokens, size_t head) const {
    std::vector<double> logits;
    for (size_t at = 0; at < tokens.keys.size(); at += dim_)
      logits.push_back(logits_of(row_.query, tokens.keys.subspan(at, dim_), scale_)[head]);
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - largest);
    return largest + std::log(sum);
  }
  void add_beside(const Pattern& beside, const std::vector<int32_t>& selected) {
    for (size_t token = 0; token < size_t(row_.tokens); ++token) {
      const bool is_selected = std::binary_search(selected.begin(), selected.end(), int32_t(token) / graph_.geometry.page);
      if (is_selected || !beside.sees(row_.tokens - 1, int64_t(token))) continue;
      add({row_.keys.subspan(token * dim_, dim_), row_.values.subspan(token * dim_, dim_)}, {});
    }
  }

  const FlowGraph& graph_;
  const Row& row_;
  const Result& result_;
  double scale_;
  size_t dim_;
  std::vector<Entry> entries_;
  std::list<std::vector<float>> summaries_;  // that entries refer to
};

}  // namespace

std::vector<double> attention(const FlowGraph& graph, const Row& row, const Result& result, double scale) {
  if (!graph.sources.empty()) return Attention(graph, row, result, scale).run();
  return attention(row.query, row.keys, row.values, row.tokens, graph.geometry.head_dim, graph.geometry.page, result.selected,
                   scale);
}

}  // namespace sluice::oracle
