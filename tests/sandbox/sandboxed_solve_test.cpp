#include "sandbox/sandboxed_solve.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "sandbox/wire/pattern_wire.h"
#include "scripting/base/error.h"
#include "scripting/pattern/analysis.h"
#include "scripting/pattern/text.h"
#include "tests/scripting/pattern/boolean_matrix.h"
#include "tests/support/sanitized.h"

namespace sluice::test {
namespace {

void expect_equal(const PatternSolution& a, const PatternSolution& b) {
  EXPECT_EQ(a.is_empty, b.is_empty);
  for (const int length : {1, 7, 100, 1031}) {
    EXPECT_EQ(a.last_reader.values(length, -1), b.last_reader.values(length, -1)) << length;
    EXPECT_EQ(a.last_key.values(length, -1), b.last_key.values(length, -1)) << length;
  }
}

std::shared_ptr<const PatternSolution> solved_apart(const Pattern& pattern, unsigned long operations) {
  return solve_sandboxed({&pattern, 1}, operations).at(0);
}

/// isl 0.25 reads through a null pointer where it runs out of operations in the midst of this, after 25,000 for one.
Pattern crashing() {
  return ~(Pattern::diag({.offset = 1, .stride = 6}) & Pattern::rect({.column = 5, .rows = 9, .row_stride = 7})) &
         Pattern::strided(3, 5);
}

/// As PatternAnalysis has it until the end of a test.
class SolverOfATest {
 public:
  explicit SolverOfATest(PatternSolver solver) { set_pattern_solver(solver); }
  ~SolverOfATest() { set_pattern_solver(solve_all); }
  SolverOfATest(const SolverOfATest&) = delete;
  SolverOfATest& operator=(const SolverOfATest&) = delete;
};

TEST(SandboxedSolve, GivesWhatSolvingInPlaceGives) {
  std::mt19937 random(41);
  int solved = 0;
  for (int run = 0; run < 40; ++run) {
    const Pattern pattern = random_pattern(random, 1 + static_cast<int>(random() % 4));
    constexpr unsigned long kOperations = 20'000;
    const auto here = solve(pattern, kOperations);
    const auto there = solved_apart(pattern, kOperations);
    ASSERT_EQ(here == nullptr, there == nullptr) << to_text(pattern);
    if (here == nullptr) continue;
    ++solved;
    expect_equal(*here, *there);
    EXPECT_EQ(solved_apart(pattern, kOperations), there) << "it is remembered";
  }
  EXPECT_GT(solved, 20);
}

TEST(SandboxedSolve, OutlivesTheLibrary) {
  const Pattern pattern = crashing();
  const auto whole = solved_apart(pattern, 1'000'000);
  ASSERT_NE(whole, nullptr);
  for (const unsigned long operations : {1UL, 100UL, 24'999UL, 25'000UL, 25'001UL, 25'002UL}) {
    const auto solution = solved_apart(pattern, operations);
    if (solution != nullptr) expect_equal(*solution, *whole);
  }
}

TEST(SandboxedSolve, SolvesWhatStandsBesideACrash) {
  std::mt19937 random(43);
  std::vector<Pattern> patterns;
  for (int i = 0; i < 12; ++i) patterns.push_back(Pattern::window(20 + i) | Pattern::sink(static_cast<int>(random() % 9) + 1));
  patterns[5] = crashing();
  const Solutions solutions = solve_sandboxed(patterns, 25'000);
  ASSERT_EQ(solutions.size(), patterns.size());
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (i == 5) continue;
    ASSERT_NE(solutions[i], nullptr) << i;
    expect_equal(*solutions[i], *solve(patterns[i], 25'000));
  }
}

TEST(SandboxedSolve, TakesOneProcessForManyHeads) {
  std::vector<Pattern> patterns;
  for (int i = 0; i < 224; ++i) patterns.push_back(Pattern::window(300 + i));
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& solution : solve_sandboxed(patterns, 10'000)) EXPECT_NE(solution, nullptr);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(kIsSanitized ? 40 : 4));
}

TEST(SandboxedSolve, AnswersManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> solved = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&solved] {
      for (int i = 0; i < 6; ++i) solved += solved_apart(Pattern::window(7 + i), 10'000) != nullptr ? 1 : 0;
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(solved, 24);
}

TEST(SandboxedSolve, EndsWhatTakesTooLong) {
  Pattern pattern = Pattern::diag({.stride = 2});
  for (const int stride : {3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}) {
    pattern = ~pattern & Pattern::rect({.column = stride, .row_stride = stride, .column_stride = stride + 2});
    pattern = pattern | Pattern::diag({.offset = stride, .stride = stride});
  }
  EXPECT_EQ(solved_apart(pattern, 1'000'000'000), nullptr);
}

TEST(PatternWire, ForgedSolutionsAreRefusedOrHarmless) {
  const Pattern pattern = Pattern::strided(16, 12) | Pattern::sink(3) | Pattern::diag({.offset = 40, .size = 3});
  const auto solution = solve(pattern, 100'000);
  ASSERT_NE(solution, nullptr);
  const std::string bytes = encode_solution(solution.get());
  expect_equal(*decode_solution(bytes), *solution);
  EXPECT_EQ(decode_solution(encode_solution(nullptr)), nullptr);
  for (size_t length = 0; length < bytes.size(); ++length) EXPECT_THROW(decode_solution(bytes.substr(0, length)), InputError);
  EXPECT_THROW(decode_solution(bytes + "x"), InputError);
  std::mt19937 random(42);
  static std::shared_ptr<const PatternSolution> forged;
  const SolverOfATest solver([](std::span<const Pattern> patterns, unsigned long) { return Solutions(patterns.size(), forged); });
  int refused = 0;
  for (int run = 0; run < 1000; ++run) {
    std::string changed = bytes;
    for (int change = 1 + static_cast<int>(random() % 3); change > 0; --change) {
      const size_t at = random() % changed.size();
      const int64_t large = (random() % 2 == 0 ? 1 : -1) * (int64_t{1} << (random() % 54));
      if (run % 2 == 0 && at + sizeof(large) <= changed.size()) {
        std::memcpy(changed.data() + at, &large, sizeof(large));
      } else {
        changed[at] = static_cast<char>(random());
      }
    }
    try {
      forged = decode_solution(changed);
      const PatternAnalysis analysis(pattern);
      for (const int last : analysis.last_readers(5000)) ASSERT_LT(last, 5000);
      EXPECT_LE(analysis.live_tokens(5000), 5000);
      EXPECT_LE(analysis.blind_rows(5000), 5000);
      static_cast<void>(analysis.size_for_any_length());
    } catch (const InputError&) {
      ++refused;
    } catch (const InternalError&) {
      ++refused;  // queries that cannot be
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(PatternWire, NumbersThatGrowWhileTheyAreEvaluatedAreRefused) {
  // Half of half of x: each is rounded up to a whole x, so that what is left of it grows.
  QuasiAffinePiece piece;
  for (size_t k = 0; k < 25; ++k) {
    FloorDivision division{.denominator = 2};
    division.numerator.of_x = k == 0 ? 1 : 0;
    if (k > 0) {
      division.numerator.of_divisions.assign(k, 0);
      division.numerator.of_divisions.back() = 1;
    }
    piece.divisions.push_back(division);
  }
  piece.value.of_divisions.assign(25, 0);
  piece.value.of_divisions.back() = int64_t{1} << 53;
  EXPECT_FALSE(QuasiAffineFunction({piece}).fits());
  piece.value.of_divisions.back() = 1;
  const QuasiAffineFunction small({piece});
  ASSERT_TRUE(small.fits());
  EXPECT_EQ(small.values(100'000, -1), std::vector<int32_t>(100'000, 0));
}

TEST(PatternWire, ManyPiecesOfLongPeriodsTakeLittleMemory) {
  QuasiAffinePiece piece{.divisions = {{.numerator = {.of_x = 5001}, .denominator = 16384}}};
  piece.constraints = {{.sum = {.of_divisions = {1}}}};
  piece.value = {.of_x = 1};
  const QuasiAffineFunction function(std::vector<QuasiAffinePiece>(200, piece));
  ASSERT_TRUE(function.fits());
  int first = 0;
  function.for_parts(40'000, -1, [&](std::span<const int32_t> values) {
    for (size_t i = 0; i < values.size(); i += 97) ASSERT_EQ(values[i], first + static_cast<int>(i));
    first += static_cast<int>(values.size());
  });
  EXPECT_EQ(first, 40'000);
}

}  // namespace
}  // namespace sluice::test
