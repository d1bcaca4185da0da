// Tokens beside a selection: what a batch says of them, and the list that the CPU makes of both, by brute force.
#include "kernels/cpu/attention/beside.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "kernels/device/batch_builder.h"
#include "scripting/base/bits.h"

namespace sluice {
namespace {

Pattern drawn(std::mt19937& random) {
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  switch (below(6)) {
    case 0:
      return Pattern::window(1 + below(200));
    case 1:
      return Pattern::sink(1 + below(70)) | Pattern::window(1 + below(40));
    case 2:
      return Pattern::dilated(1 + below(50), 2 + below(20));
    case 3:
      return Pattern::strided(1 + below(20), 2 + below(150));
    case 4:
      return Pattern::rect({.column = below(400), .columns = 1 + below(100)});
    default:
      return ~Pattern::window(1 + below(400));
  }
}

TEST(TokensBesideASelection, AreThoseOfThePatternPageByPage) {
  std::mt19937 random(3);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  for (int run = 0; run < 1000; ++run) {
    const int page = 8 << below(5);
    BatchBuilder builder(page);
    std::vector<int> positions;
    std::vector<Pattern> patterns;
    const int sequences = 1 + below(4);
    for (int s = 0; s < sequences; ++s) {
      const bool decoding = below(4) > 0;
      positions.push_back(decoding ? below(700) : -1);
      patterns.push_back(drawn(random));
      std::vector<int32_t> pages(100);
      std::iota(pages.begin(), pages.end(), 0);
      builder.add({.first = std::max(0, positions.back()), .rows = 1, .decoding = decoding}, pages);
      if (decoding) builder.see_beside(0, patterns.back());
    }
    const PassBatch batch = builder.batch();
    const BesideTokens& beside = batch.groups[0].beside;
    for (int s = 0; s < sequences; ++s) {
      std::set<int> told;
      int before = -1;
      for (int i = beside.indptr[s]; i < beside.indptr[s + 1]; ++i) {
        ASSERT_GT(beside.pages[i], before);
        before = beside.pages[i];
        const auto words = beside.words.subspan(static_cast<size_t>(i * page_words(page)), page_words(page));
        ASSERT_TRUE(has_any_bit(words, 0, page)) << "a page for nothing";
        for (int bit = 0; bit < 32 * page_words(page); ++bit) {
          if (!has_bit(words, bit)) continue;
          ASSERT_LT(bit, page);
          told.insert(before * page + bit);
        }
      }
      std::set<int> wanted;
      for (int token = 0; token <= positions[s]; ++token) {
        if (patterns[s].sees(positions[s], token)) wanted.insert(token);
      }
      ASSERT_EQ(told, wanted) << "run " << run << ", sequence " << s << ", page " << page;
    }
  }
}

TEST(TokensBesideASelection, AreJoinedWithItsPages) {
  std::mt19937 random(4);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  for (int run = 0; run < 1000; ++run) {
    const int page = 8 << below(5);
    const int position = below(900);
    const int pages = position / page + 1;
    std::vector<int32_t> all(static_cast<size_t>(pages));
    std::iota(all.begin(), all.end(), 0);
    BatchBuilder builder(page);
    builder.add({.first = 0, .rows = 1, .decoding = true}, all);
    builder.see_beside(0, Pattern::causal());
    builder.add({.first = position, .rows = 1, .decoding = true}, all);
    const Pattern pattern = drawn(random);
    builder.see_beside(0, pattern);
    const PassBatch batch = builder.batch();

    std::vector<int32_t> positions = all;
    std::shuffle(positions.begin(), positions.end(), random);
    const int count = 1 + below(pages);
    std::sort(positions.begin(), positions.begin() + count);
    const std::set<int32_t> selected(positions.begin(), positions.begin() + count);
    std::vector<uint32_t> mask(static_cast<size_t>((pages * page + 31) / 32), 0xdeadbeef);
    // Half of the runs see a part of all that alone.
    const Pattern around = run % 2 == 0 ? Pattern::causal() : drawn(random);
    std::vector<uint32_t> visible(run % 2 == 0 ? 0 : static_cast<size_t>(position / 32 + 1));
    if (run % 2 == 1) around.row(position, position + 1, visible);
    const int joined = cpu::join_beside(batch.groups[0].beside, 1, page, visible, {}, positions, count, mask);

    std::set<int> seen;
    for (int i = 0; i < joined; ++i) {
      if (i > 0) {
        ASSERT_GT(positions[i], positions[i - 1]);
      }
      for (int token = 0; token < page; ++token) {
        if (has_bit(mask, int64_t{i} * page + token)) seen.insert(positions[i] * page + token);
      }
    }
    std::set<int> wanted;
    for (int token = 0; token < pages * page; ++token) {
      if (run % 2 == 1 && !around.sees(position, token)) continue;
      if (selected.contains(token / page) || pattern.sees(position, token)) wanted.insert(token);
    }
    ASSERT_EQ(seen, wanted) << "run " << run << ", page " << page;
  }
}

}  // namespace
}  // namespace sluice
