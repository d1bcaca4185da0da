#include "host/serving/segment_reuse.h"

#include <algorithm>
#include <limits>

#include "scripting/base/error.h"

namespace sluice {
namespace {

/// Tokens at the end of a prompt that look, where it ends with copied ones.
constexpr int kTail = 64;

/// By token: to the nearest new token, going from the first to the last token, or back.
std::vector<float> distances_to_new(const CopiedTokens& tokens, bool backwards) {
  const auto end = static_cast<int>(tokens.copied.size());
  std::vector<float> distances(tokens.copied.size());
  // Behind the tokens that are kept stands the last of the prompt, which is new.
  float distance = backwards ? 0 : std::numeric_limits<float>::infinity();
  for (int i = 0; i < end; ++i) {
    const auto token = static_cast<size_t>(backwards ? end - 1 - i : i);
    distances[token] = ++distance;
    if (static_cast<int>(token) >= tokens.begun && tokens.copied[token] == 0) distance = 0;
  }
  return distances;
}

/// By token of a run: those before it, or behind it, of the run.
std::vector<float> distances_to_edge(const CopiedTokens& tokens, bool backwards) {
  const auto end = static_cast<int>(tokens.copied.size());
  std::vector<uint8_t> begins(tokens.copied.size() + 1, 0);
  for (const int32_t first : tokens.firsts) begins[static_cast<size_t>(first)] = 1;
  std::vector<float> distances(tokens.copied.size());
  float distance = 0;
  for (int i = 0; i < end; ++i) {
    const auto token = static_cast<size_t>(backwards ? end - 1 - i : i);
    const bool is_edge = backwards ? begins[token + 1] != 0 || token + 1 == tokens.copied.size() || tokens.copied[token + 1] == 0
                                   : begins[token] != 0;
    distance = is_edge ? 0 : distance + 1;
    distances[token] = distance;
  }
  return distances;
}

}  // namespace

int CopiedTokens::count() const { return static_cast<int>(std::count(copied.begin(), copied.end(), 1)); }

void CopiedTokens::lose_block(int first) {
  std::fill_n(copied.begin() + first, block, 0);
  std::fill_n(moved.begin() + first, block, 0);
  const int next = first + block;
  if (next < static_cast<int>(copied.size()) && copied[static_cast<size_t>(next)] != 0) firsts.push_back(next);
}

std::vector<int32_t> CopiedTokens::places() const {
  std::vector<int32_t> places;
  places.reserve(copied.size());
  for (size_t token = 0; token < copied.size(); ++token) {
    if (copied[token] != 0) places.push_back(static_cast<int32_t>(token));
  }
  return places;
}

std::vector<int32_t> CopiedTokens::looking_rows(int most) const {
  const auto end = static_cast<int>(copied.size());
  const bool ends_copied = ends_known || (end > begun && copied.back() != 0);
  std::vector<int32_t> rows;
  for (int token = begun; token < end; ++token) {
    if (copied[static_cast<size_t>(token)] == 0 || (ends_copied && token >= end - kTail)) rows.push_back(token);
  }
  if (most < static_cast<int>(rows.size())) rows.erase(rows.begin(), rows.end() - most);
  return rows;
}

void fill_fact(CopyFact fact, const CopiedTokens& tokens, std::span<const int32_t> looking, std::span<float> numbers) {
  const std::vector<int32_t> places = tokens.places();
  if (numbers.size() != places.size()) throw InternalError("facts of copies: room for other tokens than are copied");
  const auto fill = [&](const auto& of_token) {
    for (size_t i = 0; i < places.size(); ++i) numbers[i] = static_cast<float>(of_token(places[i]));
  };
  const auto fill_from = [&](const std::vector<float>& by_token) {
    fill([&](int32_t token) { return by_token[static_cast<size_t>(token)]; });
  };
  switch (fact) {
    case CopyFact::kPosition:
      return fill([](int32_t token) { return token; });
    case CopyFact::kMoved:
      return fill([&](int32_t token) { return tokens.moved[static_cast<size_t>(token)]; });
    case CopyFact::kFromEdge:
      return fill_from(distances_to_edge(tokens, false));
    case CopyFact::kToEdge:
      return fill_from(distances_to_edge(tokens, true));
    case CopyFact::kFromNew:
      return fill_from(distances_to_new(tokens, false));
    case CopyFact::kToNew:
      return fill_from(distances_to_new(tokens, true));
    case CopyFact::kLooks: {
      std::vector<float> looks(tokens.copied.size(), 0);
      for (const int32_t token : looking) looks[static_cast<size_t>(token)] = 1;
      return fill_from(looks);
    }
    default:
      throw InternalError("facts of copies: one that a layer has to say");
  }
}

std::vector<int32_t> rows_to_compute(const CopiedTokens& tokens, const RecomputeRule* rule, uint64_t seed,
                                     std::span<const int32_t> looking, const RecomputeRule::Fill& of_layer) {
  using Kind = Recompute::Kind;
  const Kind kind = rule == nullptr ? Kind::kAll : rule->rule().kind;
  std::vector<uint8_t> is_chosen(tokens.copied.size(), kind == Kind::kAll ? 1 : 0);
  if (kind == Kind::kSelected) {
    const std::vector<int32_t> places = tokens.places();
    const auto fill = [&](CopyFact fact, std::span<float> numbers) {
      const auto& info = copy_facts()[static_cast<size_t>(fact)];
      info.of_layer ? of_layer(fact, numbers) : fill_fact(fact, tokens, looking, numbers);
    };
    for (const int32_t chosen : rule->select(static_cast<int>(places.size()) / tokens.block, seed, fill))
      is_chosen[static_cast<size_t>(places[static_cast<size_t>(chosen)])] = 1;
  }
  std::vector<int32_t> rows;
  for (auto token = static_cast<size_t>(tokens.begun); token < tokens.copied.size(); ++token) {
    if (tokens.copied[token] == 0 || is_chosen[token] != 0) rows.push_back(static_cast<int32_t>(token));
  }
  return rows;
}

}  // namespace sluice
