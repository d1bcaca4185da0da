#include "agents/evaluation/reuse_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {

std::vector<Segment> segments_of(const ReuseLayout& layout, int tokens, int block, std::span<const int> cuts) {
  constexpr int kLeastGap = 16;  // new tokens between two segments
  // Before the first: no page of them is full, which later questions would find as the beginning of their prompt.
  constexpr int kBefore = 7;
  const int of_least = static_cast<int>(layout.share * tokens / std::max(1, layout.least));
  const int segment = std::min(layout.segment, of_least) / block * block;
  if (segment < block) return {};
  const int count = std::min(static_cast<int>(layout.share * tokens / segment), (tokens - kLeastGap) / (segment + kLeastGap));
  const int left = tokens - count * segment;
  std::vector<int> firsts;
  for (int i = 0; i < count; ++i) {
    const int usual = kBefore + static_cast<int>(int64_t{left - kBefore} * i / count) + i * segment;
    const int least = firsts.empty() ? kBefore : firsts.back() + block + kLeastGap;
    int first = std::max(usual, least);
    int nearest = segment / 2;
    for (const int cut : cuts) {
      if (firsts.empty() || cut < least || std::abs(cut - usual) >= nearest) continue;
      nearest = std::abs(cut - usual);
      first = cut;
    }
    firsts.push_back(first);
  }
  std::vector<Segment> segments;
  for (size_t i = 0; i < firsts.size(); ++i) {
    const int end = i + 1 < firsts.size() ? firsts[i + 1] : tokens;
    const int longest = cuts.empty() ? segment : segment + segment / 2;
    const int length = std::min(longest, end - kLeastGap - firsts[i]) / block * block;
    if (length > 0) segments.push_back({firsts[i], firsts[i] + length, {}});
  }
  return segments;
}

namespace {

/// Where a word stands in a document: its first token, and the one behind its last.
struct WordPlace {
  int first;
  int end;
};

/// Ascending. In a text a word may have a space before it that is part of it.
std::vector<WordPlace> places_of_word(std::span<const int32_t> document, const std::string& word, const Tokenizer& tokenizer) {
  std::vector<WordPlace> places;
  const auto add = [&](const std::vector<int32_t>& tokens) {
    if (tokens.empty()) return;
    for (auto at = document.begin();; ++at) {
      at = std::search(at, document.end(), tokens.begin(), tokens.end());
      if (at == document.end()) break;
      const auto first = static_cast<int>(at - document.begin());
      places.push_back({first, first + static_cast<int>(tokens.size())});
    }
  };
  const std::vector<int32_t> alone = tokenizer.encode(word);
  const std::vector<int32_t> inside = tokenizer.encode(" " + word);
  add(alone);
  if (inside != alone) add(inside);
  std::sort(places.begin(), places.end(), [](const WordPlace& a, const WordPlace& b) { return a.first < b.first; });
  return places;
}

}  // namespace

std::vector<int> cuts_of_answers(std::span<const int32_t> document, std::span<const std::string> answers,
                                 const Tokenizer& tokenizer) {
  constexpr int kMostBetween = 2;    // tokens
  constexpr size_t kMostPlaces = 2;  // where words stand together more often, nobody asks for one of these places
  std::vector<int> cuts;
  for (const std::string& answer : answers) {
    std::istringstream words(answer);
    std::vector<WordPlace> before;
    for (std::string word; words >> word;) {
      std::vector<WordPlace> places = places_of_word(document, word, tokenizer);
      std::vector<int> together;
      auto other = before.begin();
      for (const WordPlace& place : places) {
        while (other != before.end() && other->end + kMostBetween < place.first) ++other;
        if (other != before.end() && other->end <= place.first) together.push_back(place.first);
        if (together.size() > kMostPlaces) break;
      }
      if (together.size() <= kMostPlaces) cuts.insert(cuts.end(), together.begin(), together.end());
      before = std::move(places);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

void require_segments(const ReuseLayout& layout, int tokens) {
  if (segments_of(layout, tokens, kReuseBlock).empty())
    throw InputError(fmt::format("a document of {} tokens has no segments of at least {}", tokens, kReuseBlock),
                     "raise --tokens to 600 or more");
}

std::string name_of_segment(Occasion occasion, size_t place) {
  switch (occasion) {
    case Occasion::kRetrieval:
      return fmt::format("document {}", place);
    case Occasion::kAgents:
      return fmt::format("agent {}", place);
    case Occasion::kChat:
      return "chat";
    default:
      return "document";
  }
}

std::vector<KnownText> known_texts(Occasion occasion, std::span<const int32_t> document, std::span<const Segment> segments) {
  const auto copy = [&](std::vector<int32_t>& to, int first, int end) {
    to.insert(to.end(), document.begin() + first, document.begin() + end);
  };
  std::vector<int32_t> between;  // segments, before and behind
  int before = 0;
  for (const Segment& segment : segments) {
    copy(between, before, segment.first);
    before = segment.end;
  }
  copy(between, before, static_cast<int>(document.size()));

  std::vector<KnownText> known;
  if (occasion == Occasion::kAgents) {
    for (size_t i = 0; i < segments.size(); ++i) {
      KnownText& asked = known.emplace_back();
      asked.tokens = between;
      copy(asked.answer, segments[i].first, segments[i].end);
      asked.answer.push_back(between.front());  // of the last token that is generated there is no K and V
      asked.answer_key = name_of_segment(occasion, i);
    }
    return known;
  }
  const auto add = [&](KnownText& text, size_t place) {
    const auto first = static_cast<int>(text.tokens.size());
    copy(text.tokens, segments[place].first, segments[place].end);
    text.segments.push_back({first, static_cast<int>(text.tokens.size()), name_of_segment(occasion, place)});
  };
  if (occasion == Occasion::kRetrieval) {
    for (size_t i = 0; i < segments.size(); ++i) {
      KnownText& alone = known.emplace_back();
      add(alone, i);
      alone.tokens.insert(alone.tokens.end(), between.begin(), between.end());
    }
    return known;
  }
  KnownText& text = known.emplace_back();
  if (occasion == Occasion::kChat) text.tokens = between;  // the turns that are dropped
  for (size_t i = 0; i < segments.size(); ++i) add(text, occasion == Occasion::kChat ? i : segments.size() - 1 - i);
  text.tokens.insert(text.tokens.end(), between.begin(), between.end());
  return known;
}

}  // namespace sluice
