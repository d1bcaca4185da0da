// What attention gives, and to which tokens: for the entries of one selection or of several sources, and for rows of a prompt.

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <numeric>
#include <utility>

#include "kernels/reference/oracle.h"
#include "kernels/reference/weights.h"

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

/// By how much that may be off, by head.
std::vector<double> error_of(const Tensor& bias, int page, int group) {
  std::vector<double> of_heads(group);
  if (bias.values.empty()) return of_heads;
  const bool by_head = has_axis(bias.shape, Axis::kHead);
  for (int h = 0; h < group; ++h) of_heads[h] = bias.values[by_head ? size_t(page) * group + h : size_t(page)].error;
  return of_heads;
}

std::vector<float> numbers_of(const Tensor& tensor) {
  std::vector<float> numbers;
  for (const Bounded& each : tensor.values) numbers.push_back(float(each.value));
  return numbers;
}

std::vector<float> errors_of(const Tensor& tensor) {
  std::vector<float> errors;
  for (const Bounded& each : tensor.values) errors.push_back(float(each.error));
  return errors;
}

Tensor no_masses(const FlowGraph& graph, int pages) {
  const Geometry& geometry = graph.geometry;
  Tensor tensor{{{Axis::kPage, pages}, {Axis::kToken, geometry.page}, {Axis::kHead, geometry.group}}, {}};
  tensor.values.resize(size_t(pages) * geometry.page * geometry.group);
  return tensor;
}

/// The logits of q [group, dim] for a key, by head.
std::vector<double> logits_of(std::span<const float> query, std::span<const float> key, double scale) {
  std::vector<double> logits(query.size() / key.size());
  for (size_t head = 0; head < logits.size(); ++head) {
    for (size_t d = 0; d < key.size(); ++d) logits[head] += scale * query[head * key.size() + d] * key[d];
  }
  return logits;
}

/// The logarithm of the sum of their powers.
double log_sum_of(const std::vector<double>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

/// One softmax over the entries of all sources.
class Attention {
 public:
  Attention(const FlowGraph& graph, const Row& row, const Result& result, double scale)
      : graph_(graph), row_(row), result_(result), scale_(scale), dim_(size_t(graph.geometry.head_dim)) {}

  std::vector<double> output() {
    find_entries();
    return attention(row_.query, entries_, scale_);
  }

  /// [page, token, head]
  Tensor masses() {
    find_entries();
    Tensor masses = no_masses(graph_, result_.pages);
    const auto heads = size_t(graph_.geometry.group);
    const std::vector<Bounded> weights = weights_of(row_.query, entries_, errors_, scale_);
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (tokens_[i] < 0) continue;
      std::copy_n(weights.begin() + ptrdiff_t(i * heads), heads, masses.values.begin() + ptrdiff_t(size_t(tokens_[i]) * heads));
    }
    return masses;
  }

 private:
  struct Part {
    std::span<const float> keys, values;
    int first = -1;                       // token; -1: they are none
    std::span<const float> key_errors{};  // of `keys`; empty: none
  };

  /// What `find` has found for a place before, or finds now.
  template <typename Found, typename Find>
  static const Found& kept(std::map<std::pair<size_t, int>, Found>& all, size_t source, int place, const Find& find) {
    const std::pair key(source, place);
    const auto known = all.find(key);
    return known != all.end() ? known->second : all.emplace(key, find()).first->second;
  }

  void find_entries() {
    for (size_t i = 0; i < graph_.sources.size(); ++i) {
      const AttentionSource& source = graph_.sources[i];
      for (const int32_t page : result_.sources[i].pages) {
        if (source.keys == "k") {
          add_tokens(page);
        } else if (is_closed(i, page)) {
          if (page % source.group_pages == 0) add_group(i, page);
        } else if (!source.shares || !has_tokens(page)) {
          add_entries(i, page);
        }
      }
      for (const int32_t token : result_.sources[i].tokens) add_token(token);
      if (source.beside) add_beside(*source.beside, result_.sources[i]);
    }
  }

  /// The tokens of a page.
  Part tokens_of(int page) const {
    const size_t first = size_t(page) * graph_.geometry.page;
    const size_t held = std::min(size_t(graph_.geometry.page), row_.tokens - first);
    return {row_.keys.subspan(first * dim_, held * dim_), row_.values.subspan(first * dim_, held * dim_), int(first)};
  }
  /// What stands for a page in a source.
  const Part& summary_of(size_t source, int page) const {
    return kept(summary_parts_, source, page, [&] { return find_summary(source, page); });
  }
  Part find_summary(size_t source, int page) const {
    const Part tokens = tokens_of(page);
    const std::vector<Tensor> fields = cached_fields(graph_, tokens.keys, tokens.values, int(tokens.keys.size() / dim_));
    const auto of_page = [&](const std::string& name, const Tensor& state) {
      if (const Field* const field = graph_.find_field(name)) return fields[size_t(field - graph_.fields.data())];
      const auto numbers = ptrdiff_t(state.values.size()) / result_.pages;
      const auto begin = state.values.begin() + page * numbers;
      return Tensor{{}, {begin, begin + numbers}};
    };
    const Tensor keys = of_page(graph_.sources[source].keys, result_.sources[source].keys);
    const Tensor values = of_page(graph_.sources[source].values, result_.sources[source].values);
    return {summaries_.emplace_back(numbers_of(keys)), summaries_.emplace_back(numbers_of(values)), -1,
            summaries_.emplace_back(errors_of(keys))};
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

  /// Whether a page's group has an entry for each of its pages in a source.
  bool is_whole(size_t source, int page) const {
    const int pages = graph_.sources[source].group_pages;
    const int first = page / pages * pages;
    for (int each = first; each < first + pages; ++each) {
      if (!has_page(source, each)) return false;
    }
    return true;
  }
  /// Whether the pages of its group have one entry together.
  bool is_closed(size_t source, int page) const {
    const int pages = graph_.sources[source].group_pages;
    return pages > 1 && kept(closed_, source, page / pages, [&] { return find_closed(source, page); });
  }
  bool find_closed(size_t source, int page) const {
    if (!is_whole(source, page)) return false;
    const int pages = graph_.sources[source].group_pages;
    const std::vector<int32_t>& opened = result_.sources[source].opened;
    const int first = page / pages * pages;
    for (int each = first; each < first + pages; ++each) {
      if (has_tokens(each) || std::binary_search(opened.begin(), opened.end(), each)) return false;
    }
    return true;
  }
  /// The logits of a page's entry, by head, with their errors.
  const std::vector<Bounded>& logits_of_page(size_t source, int page) const {
    return kept(page_logits_, source, page, [&] { return find_logits(source, page); });
  }
  std::vector<Bounded> find_logits(size_t source, int page) const {
    const Part& entry = summary_of(source, page);
    const std::vector<double> logits = logits_of(row_.query, entry.keys, scale_);
    const std::vector<double> bias = bias_of(result_.sources[source].bias, page, graph_.geometry.group);
    const std::vector<double> errors = error_of(result_.sources[source].bias, page, graph_.geometry.group);
    const std::vector<double> of_key = logit_errors(entry.key_errors);
    std::vector<Bounded> bounded(logits.size());
    for (size_t head = 0; head < logits.size(); ++head) {
      bounded[head].value = logits[head] + (bias.empty() ? 0 : bias[head]);
      bounded[head].error = errors[head] + of_key[head] + product_error(query_of(head), entry.keys, scale_);
    }
    return bounded;
  }
  /// What the logits of a group's pages are shifted by where they share what the group weighs, by head.
  const std::vector<Bounded>& group_shift(size_t source, int page) const {
    return kept(group_shifts_, source, page / graph_.sources[source].group_pages, [&] { return find_shift(source, page); });
  }
  std::vector<Bounded> find_shift(size_t source, int page) const {
    const AttentionSource& asked = graph_.sources[source];
    std::vector<Bounded> shift(size_t(graph_.geometry.group));
    if (asked.group_pages == 1 || !asked.shares || !is_whole(source, page)) return shift;
    std::vector<std::vector<double>> logits(shift.size());
    const int first = page / asked.group_pages * asked.group_pages;
    for (int each = first; each < first + asked.group_pages; ++each) {
      const std::vector<Bounded>& own = logits_of_page(source, each);
      for (size_t head = 0; head < shift.size(); ++head) {
        logits[head].push_back(own[head].value);
        shift[head].error = std::max(shift[head].error, 2 * own[head].error);
      }
    }
    const double together = asked.bias == kNoNode ? 0 : std::log(asked.group_pages);
    for (size_t head = 0; head < shift.size(); ++head) {
      const double mean = std::accumulate(logits[head].begin(), logits[head].end(), 0.0) / asked.group_pages;
      // Of what nobody looks at it does not matter what its pages weigh beside each other.
      shift[head].value = std::isinf(mean) && mean < 0 ? mean : mean + together - log_sum_of(logits[head]);
    }
    return shift;
  }

  bool is_seen(int token) const { return row_.sees.empty() || row_.sees[size_t(token)] != 0; }
  int position_of(int token) const { return row_.positions.empty() ? token : row_.positions[size_t(token)]; }

  /// `errors`: of the logits, by head, but for those that the keys have themselves.
  void add(const Part& part, const std::vector<double>& bias, const std::vector<double>& errors) {
    for (size_t at = 0; at < part.keys.size(); at += dim_) {
      const int token = part.first < 0 ? -1 : part.first + int(at / dim_);
      if (token >= 0 && !is_seen(token)) continue;
      entries_.push_back({part.keys.subspan(at, dim_), part.values.subspan(at, dim_), bias});
      tokens_.push_back(token);
      errors_.push_back(errors);
      if (part.key_errors.empty()) continue;
      const std::vector<double> of_key = logit_errors(part.key_errors.subspan(at, dim_));
      for (size_t head = 0; head < of_key.size(); ++head) errors_.back()[head] += of_key[head];
    }
  }
  /// What errors of a key make of its logits, by head.
  std::vector<double> logit_errors(std::span<const float> key_errors) const {
    std::vector<double> errors(row_.query.size() / dim_);
    for (size_t head = 0; head < errors.size(); ++head) {
      for (size_t d = 0; d < dim_; ++d) errors[head] += std::fabs(scale_ * row_.query[head * dim_ + d] * key_errors[d]);
    }
    return errors;
  }
  void add_entries(size_t source, int page) {
    const int group = graph_.geometry.group;
    std::vector<double> bias = bias_of(result_.sources[source].bias, page, group);
    std::vector<double> errors = error_of(result_.sources[source].bias, page, group);
    const std::vector<Bounded>& shift = group_shift(source, page);
    if (bias.empty()) bias.resize(shift.size());
    for (size_t head = 0; head < shift.size(); ++head) {
      bias[head] += shift[head].value;
      errors[head] += shift[head].error;
    }
    add(summary_of(source, page), bias, errors);
  }
  /// One entry for the pages of a group: the means of their keys, values and biases. It weighs as many, where there is a bias.
  void add_group(size_t source, int first) {
    const int pages = graph_.sources[source].group_pages;
    const auto heads = size_t(graph_.geometry.group);
    std::vector<double> keys(dim_), values(dim_), bias(heads), errors(heads);
    for (int page = first; page < first + pages; ++page) {
      const Part& entry = summary_of(source, page);
      for (size_t d = 0; d < dim_; ++d) {
        keys[d] += double(entry.keys[d]) / pages;
        values[d] += double(entry.values[d]) / pages;
      }
      const std::vector<double> own = bias_of(result_.sources[source].bias, page, int(heads));
      const std::vector<Bounded>& logits = logits_of_page(source, page);
      for (size_t head = 0; head < heads; ++head) {
        if (!own.empty()) bias[head] += own[head] / pages;
        errors[head] = std::max(errors[head], logits[head].error);
      }
    }
    if (graph_.sources[source].bias != kNoNode) {
      for (double& each : bias) each += std::log(pages);
    }
    const auto narrowed = [&](const std::vector<double>& numbers) -> std::span<const float> {
      return summaries_.emplace_back(numbers.begin(), numbers.end());
    };
    add({narrowed(keys), narrowed(values)}, bias, errors);
  }
  /// Those of a page that shares its weight are shifted so that together they have the logit of its entry.
  void add_tokens(int page) {
    const Part tokens = tokens_of(page);
    for (size_t i = 0; i < graph_.sources.size(); ++i) {
      if (!graph_.sources[i].shares || !has_page(i, page)) continue;
      const std::vector<Bounded>& logits = logits_of_page(i, page);
      const std::vector<Bounded>& of_group = group_shift(i, page);
      std::vector<double> shift(logits.size()), errors(logits.size());
      for (size_t head = 0; head < shift.size(); ++head) {
        shift[head] = logits[head].value + of_group[head].value - log_sum(tokens, head);
        errors[head] = logits[head].error + of_group[head].error + log_sum_error(tokens, head);
      }
      return add(tokens, shift, errors);
    }
    add(tokens, {}, {});
  }
  /// Of the powers of a head's logits for the tokens.
  double log_sum(const Part& tokens, size_t head) const {
    std::vector<double> logits;
    for (size_t at = 0; at < tokens.keys.size(); at += dim_)
      logits.push_back(logits_of(row_.query, tokens.keys.subspan(at, dim_), scale_)[head]);
    return log_sum_of(logits);
  }
  double log_sum_error(const Part& tokens, size_t head) const {
    double error = 0;
    for (size_t at = 0; at < tokens.keys.size(); at += dim_)
      error = std::max(error, product_error(query_of(head), tokens.keys.subspan(at, dim_), scale_));
    return error;
  }
  std::span<const float> query_of(size_t head) const { return row_.query.subspan(head * dim_, dim_); }
  void add_token(int token) {
    const size_t at = size_t(token) * dim_;
    add({row_.keys.subspan(at, dim_), row_.values.subspan(at, dim_), token}, {}, {});
  }
  void add_beside(const Pattern& beside, const Attended& selected) {
    const auto has = [](const std::vector<int32_t>& list, int32_t each) {
      return std::binary_search(list.begin(), list.end(), each);
    };
    for (int token = 0; token < row_.tokens; ++token) {
      const bool is_selected = has(selected.pages, token / graph_.geometry.page) || has(selected.tokens, token);
      if (!is_selected && beside.sees(position_of(row_.tokens - 1), position_of(token))) add_token(token);
    }
  }

  const FlowGraph& graph_;
  const Row& row_;
  const Result& result_;
  double scale_;
  size_t dim_;
  std::vector<Entry> entries_;
  std::vector<int> tokens_;                          // by entry: which it is; -1: none
  std::vector<std::vector<double>> errors_;          // by entry, of logits
  mutable std::list<std::vector<float>> summaries_;  // that entries refer to
  // What the pages of a group ask for again and again, by source and page, or group.
  mutable std::map<std::pair<size_t, int>, Part> summary_parts_;
  mutable std::map<std::pair<size_t, int>, std::vector<Bounded>> page_logits_;
  mutable std::map<std::pair<size_t, int>, std::vector<Bounded>> group_shifts_;
  mutable std::map<std::pair<size_t, int>, bool> closed_;
};

}  // namespace

std::vector<double> attention(const FlowGraph& graph, const Row& row, const Result& result, double scale) {
  if (!graph.sources.empty()) return Attention(graph, row, result, scale).output();
  return attention(row.query, row.keys, row.values, row.tokens, graph.geometry.head_dim, graph.geometry.page, result.selected,
                   scale);
}

Tensor masses(const FlowGraph& graph, const Row& row, const Result& result, double scale) {
  // As the cache holds them.
  const std::vector<float> keys = round_all_to(graph.geometry.kv, row.keys);
  Row stored = row;
  stored.keys = keys;
  return Attention(graph, stored, result, scale).masses();
}

Tensor masses(const FlowGraph& graph, const Prompt& prompt, double scale) {
  const auto page = size_t(graph.geometry.page);
  const auto dim = size_t(graph.geometry.head_dim);
  const auto heads = size_t(graph.geometry.group);
  const size_t tokens_in_all = prompt.keys.size() / dim;
  const size_t rows = prompt.queries.size() / (heads * dim);
  const size_t before = tokens_in_all - rows;
  const std::vector<float> keys = round_all_to(graph.geometry.kv, prompt.keys);
  std::vector<Sum> sums(tokens_in_all * heads);
  for (size_t row = rows - std::min(rows, size_t(graph.mass_rows)); row < rows; ++row) {
    std::vector<Entry> entries;
    std::vector<size_t> tokens;
    for (size_t token = 0; token <= before + row; ++token) {
      if (prompt.pattern != nullptr && !prompt.pattern->sees(int64_t(row), int64_t(token))) continue;
      entries.push_back({std::span(keys).subspan(token * dim, dim), {}, {}});
      tokens.push_back(token);
    }
    const std::vector<std::vector<double>> errors(entries.size());
    const std::vector<Bounded> weights =
        weights_of(prompt.queries.subspan(row * heads * dim, heads * dim), entries, errors, scale);
    for (size_t i = 0; i < weights.size(); ++i) sums[tokens[i / heads] * heads + i % heads].add(weights[i]);
  }
  std::vector<int32_t> shown(prompt.pages_shown.begin(), prompt.pages_shown.end());
  for (size_t at = 0; prompt.pages_shown.empty() && at < tokens_in_all; at += page) shown.push_back(int32_t(at / page));
  Tensor masses = no_masses(graph, int(shown.size()));
  for (size_t place = 0; place < shown.size(); ++place) {
    const size_t first = size_t(shown[place]) * page * heads;
    for (size_t i = 0; i < page * heads && first + i < sums.size(); ++i)
      masses.values[place * page * heads + i] = sums[first + i].result();
  }
  return masses;
}

}  // namespace sluice::oracle
