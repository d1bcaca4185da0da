#include "agents/tasks/rng.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice::test {
namespace {

TEST(Seed, SecretSeedsDiffer) { EXPECT_NE(Seed::secret(), Seed::secret()); }

TEST(Seed, HexadecimalFormIsReadBack) {
  const Seed seed = Seed::secret();
  EXPECT_EQ(seed.hex().size(), 64U);
  EXPECT_EQ(Seed::parse(seed.hex()), seed);
}

TEST(Seed, OtherTextsAreHashed) {
  EXPECT_EQ(Seed::parse("7"), Seed::parse("7"));
  EXPECT_NE(Seed::parse("7"), Seed::parse("8"));
  EXPECT_NE(Seed::parse(std::string(64, 'g')), Seed{});
}

TEST(Seed, DerivedOnesAreOfSeedAndName) {
  const Seed seed = Seed::parse("seed");
  EXPECT_EQ(seed.derived("7"), Seed::parse("seed").derived("7"));
  const std::set<std::string> all = {seed.hex(), seed.derived("7").hex(), seed.derived("8").hex(),
                                     Seed::parse("other").derived("7").hex(), Seed::parse("7").hex()};
  EXPECT_EQ(all.size(), 5U);
}

TEST(Rng, StreamsAreRepeatableAndIndependent) {
  const Seed seed = Seed::parse("seed");
  Rng a(seed, "a");
  Rng again(seed, "a");
  Rng b(seed, "b");
  Rng other(Seed::parse("other"), "a");
  std::set<uint64_t> seen;
  for (int i = 0; i < 500; ++i) {
    const uint64_t value = a.next();
    EXPECT_EQ(value, again.next());
    seen.insert({value, b.next(), other.next()});
  }
  EXPECT_EQ(seen.size(), 1500U) << "64-bit numbers of independent streams repeat with probability 1e-13";
}

TEST(Rng, BelowIsUniformForABoundThatIsNoPowerOfTwo) {
  Rng rng(Seed::parse("seed"), "below");
  constexpr int kBound = 7;
  std::vector<int> counts(kBound, 0);
  for (int i = 0; i < 70000; ++i) ++counts[rng.below(kBound)];
  double chi = 0;
  for (const int count : counts) chi += (count - 10000.0) * (count - 10000.0) / 10000.0;
  EXPECT_LT(chi, 22.5);  // 6 degrees of freedom, p = 0.001
}

TEST(Rng, BetweenReachesBothEnds) {
  Rng rng(Seed::parse("seed"), "between");
  std::set<int> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(rng.between(-1, 2));
  EXPECT_EQ(seen, (std::set<int>{-1, 0, 1, 2}));
}

TEST(Rng, DistinctGivesEveryElementOnceWhenAllAreAskedFor) {
  Rng rng(Seed::parse("seed"), "distinct");
  const std::vector<int> all = {1, 2, 3, 4, 5};
  const auto drawn = rng.distinct(all, 5);
  EXPECT_EQ(std::set<int>(drawn.begin(), drawn.end()), std::set<int>(all.begin(), all.end()));
  EXPECT_EQ(rng.distinct(all, 2).size(), 2U);
}

}  // namespace
}  // namespace sluice::test
