#include "kernels/cuda/codegen/selection_plan.h"

#include <gtest/gtest.h>

// How a GPU selects from rows of scores is planned without one.

namespace sluice::testing {
namespace {

using cuda::FirstGuess;
using cuda::TopKPlan;
using cuda::codegen::SelectedRows;

constexpr int kMultiprocessors = 132;

Node top_k(TopKMethod method) {
  Node node;
  node.op = Op::kTopK;
  node.attributes.k = 1 << 20;
  node.attributes.method = method;
  return node;
}

SelectedRows rows_of(int rows, int pages, int budget) { return {rows, pages, budget, kMultiprocessors}; }

void expect_shape(const TopKPlan& plan, int threads, int keys, int cluster) {
  EXPECT_EQ(plan.threads, threads);
  EXPECT_EQ(plan.keys, keys);
  EXPECT_EQ(plan.cluster, cluster);
}

TEST(SelectionPlan, GuessesWhereThatWasMeasuredToBeFaster) {
  const Node node = top_k(TopKMethod::kAuto);
  struct Case {
    int rows, pages, budget;
    FirstGuess guess;
    int threads, keys, cluster;
  };
  for (const Case& each : {Case{64, 1024, 100, FirstGuess::kNone, 128, 8, 1},
                           {64, 1025, 100, FirstGuess::kNone, 512, 4, 1},
                           {1, 4096, 4000, FirstGuess::kNone, 512, 8, 1},
                           {1, 8192, 4000, FirstGuess::kNone, 1024, 8, 1},
                           {1, 8193, 4000, FirstGuess::kSample, 1024, 8, 2},
                           {16, 65'536, 2048, FirstGuess::kHints, 1024, 8, 8},
                           {16, 65'536, 2047, FirstGuess::kSample, 1024, 8, 8},
                           {17, 65'536, 2048, FirstGuess::kSample, 1024, 16, 4},
                           {67, 200'000, 20'000, FirstGuess::kSample, 1024, 32, 1}}) {
    SCOPED_TRACE(each.pages);
    const SelectedRows rows = rows_of(each.rows, each.pages, each.budget);
    const TopKPlan plan = plan_selection(node, rows, true);
    EXPECT_EQ(plan.guess, each.guess);
    EXPECT_FALSE(plan.insists);
    expect_shape(plan, each.threads, each.keys, each.cluster);
    EXPECT_EQ(takes_hints(node, rows), each.guess == FirstGuess::kHints);
    EXPECT_NE(plan_selection(node, rows, false).guess, FirstGuess::kHints) << "nothing is kept";
  }
}

TEST(SelectionPlan, RadixNeverGuesses) {
  const Node node = top_k(TopKMethod::kRadix);
  for (const int pages : {10, 4096, 8193, 65'536, 1 << 20}) {
    const SelectedRows rows = rows_of(2, pages, pages / 2);
    EXPECT_EQ(plan_selection(node, rows, true).guess, FirstGuess::kNone) << pages;
    EXPECT_FALSE(takes_hints(node, rows)) << pages;
    const TopKPlan any = plan_selection(top_k(TopKMethod::kAuto), rows, true);
    expect_shape(plan_selection(node, rows, true), any.threads, any.keys, any.cluster);
  }
}

TEST(SelectionPlan, GvrBeginsWithTheLastStepWhateverTheRows) {
  const Node node = top_k(TopKMethod::kGvr);
  for (const int rows : {1, 16, 500}) {
    for (const int pages : {10, 4096, 8193, 65'536, 1 << 20}) {
      const SelectedRows these = rows_of(rows, pages, 1);
      const TopKPlan plan = plan_selection(node, these, true);
      EXPECT_EQ(plan.guess, FirstGuess::kHints) << rows << " x " << pages;
      EXPECT_TRUE(plan.insists) << rows << " x " << pages;
      EXPECT_EQ(plan.threads, 1024);
      EXPECT_TRUE(takes_hints(node, these)) << rows << " x " << pages;
    }
  }
  EXPECT_FALSE(takes_hints(node, rows_of(1, 10, 0))) << "nothing is taken";
}

}  // namespace
}  // namespace sluice::testing
