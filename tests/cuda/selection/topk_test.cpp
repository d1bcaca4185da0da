#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/selection/topk.h"
#include "kernels/cuda/runtime/kernel_library.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/selection/topk.h"
#include "kernels/device/random.h"
#include "scripting/base/error.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/selection/score_kinds.h"

namespace sluice::cuda {
namespace {

using testing::best_of;
using testing::kScoreKinds;
using testing::make_scores;

struct Problem {
  int rows, length, k;
  int64_t stride;
  std::vector<float> scores;
  std::vector<int32_t> lengths, budgets, hints;
  std::vector<std::vector<int32_t>> best;
};

/// Hints for a row: 'h' half right, 'p' all right, 'r' random, 'x' hostile.
void add_hints(Problem& p, char kind, std::mt19937_64& random) {
  p.hints.assign(static_cast<size_t>(p.rows) * p.k, -1);
  for (int row = 0; row < p.rows; ++row) {
    auto best = p.best[row];
    std::shuffle(best.begin(), best.end(), random);
    for (int i = 0; i < p.k; ++i) {
      int32_t& hint = p.hints[static_cast<size_t>(row) * p.k + i];
      const auto any = static_cast<int32_t>(random() % std::max(1, p.length));
      if (kind == 'r') hint = any;
      if (kind == 'p') hint = i < static_cast<int>(best.size()) ? best[i] : -1;
      if (kind == 'h') hint = i % 2 == 0 && i < static_cast<int>(best.size()) ? best[i] : any;
      if (kind == 'x') {
        const int32_t hostile[] = {INT32_MIN, INT32_MAX, -1, p.length, p.length - 1, 0, 7, static_cast<int32_t>(random())};
        hint = hostile[random() % 8];
      }
    }
    std::sort(p.hints.begin() + static_cast<size_t>(row) * p.k, p.hints.begin() + static_cast<size_t>(row + 1) * p.k);
  }
}

std::string name_of(const TopKPlan& plan) {
  const char* guesses[] = {"none", "sample", "hints"};
  char text[64];
  std::snprintf(text, sizeof text, "%-6s%s %4dx%-2d c%-2d", guesses[static_cast<int>(plan.guess)], plan.insists ? "!" : " ",
                plan.threads, plan.keys, plan.cluster);
  return text;
}

/// A problem in device memory.
struct OnDevice {
  DeviceMemory scores, lengths, budgets, hints, blocks, selected, counts;
  TopK rows;

  explicit OnDevice(const Problem& p)
      : scores(p.scores.size() * sizeof(float)),
        lengths(p.rows * sizeof(int32_t)),
        budgets(p.rows * sizeof(int32_t)),
        hints(p.hints.size() * sizeof(int32_t)),
        blocks(p.rows * sizeof(HintBlock)),
        selected(static_cast<size_t>(p.rows) * (p.k + 1) * sizeof(int32_t)),
        counts(p.rows * sizeof(int32_t)) {
    scores.upload(p.scores.data(), scores.bytes());
    lengths.upload(p.lengths.data(), lengths.bytes());
    budgets.upload(p.budgets.data(), budgets.bytes());
    hints.upload(p.hints.data(), hints.bytes());
    const int owner_rows = p.rows % 2 == 0 ? 2 : 1;
    std::vector<HintBlock> owners;
    for (int row = 0; row < p.rows; row += owner_rows) {
      owners.push_back({hints.as<int32_t>() + static_cast<int64_t>(row) * p.k, p.k});
    }
    blocks.upload(owners.data(), owners.size() * sizeof(HintBlock));
    rows = {.scores = scores.as<float>(),
            .stride = p.stride,
            .rows = p.rows,
            .max_length = p.length,
            .lengths = lengths.as<int32_t>(),
            .budgets = budgets.as<int32_t>(),
            .max_budget = p.k,
            .hints = blocks.as<HintBlock>(),
            .owner_rows = owner_rows,
            .hint_count = p.k,
            .selected = selected.as<int32_t>(),
            .selected_stride = p.k + 1,
            .counts = counts.as<int32_t>()};
  }
};

/// Fills the shared memory of all multiprocessors, which a kernel finds as the last one left it.
class SharedMemoryFiller {
 public:
  void fill() const {
    int bytes = 0;
    SLUICE_CHECK_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    SLUICE_CHECK_CUDA(
        cudaFuncSetAttribute(static_cast<const void*>(kernel_), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    int words = bytes / 4;
    void* arguments[] = {&words};
    constexpr int kThreads = 1024;
    SLUICE_CHECK_CUDA(cudaLaunchKernel(kernel_, 4 * multiprocessors(), kThreads, arguments, static_cast<size_t>(bytes), nullptr));
  }

 private:
  KernelLibrary library_ = KernelLibrary::compile(
      "extern \"C\" __global__ void fill(int words) {\n"
      "  extern __shared__ volatile unsigned memory[];\n"
      "  for (int i = threadIdx.x; i < words; i += blockDim.x) memory[i] = 1 + i % 5;\n"
      "}\n",
      nullptr);
  Kernel kernel_ = library_.kernel("fill");
};

/// Empty if right, else what is wrong. What lies behind a row's selection must be left as it was.
std::string fault(const Problem& p, const OnDevice& device, const TopKPlan& plan, const SharedMemoryFiller& filler) {
  constexpr int32_t kPoison = -77;
  std::vector<int32_t> selected(static_cast<size_t>(p.rows) * (p.k + 1), kPoison);
  std::vector<int32_t> counts(p.rows, kPoison);
  SLUICE_CHECK_CUDA(cudaMemcpy(device.selected.data(), selected.data(), device.selected.bytes(), cudaMemcpyHostToDevice));
  filler.fill();
  select_top_k(device.rows, plan, nullptr);
  device.selected.download(selected.data(), device.selected.bytes());
  device.counts.download(counts.data(), device.counts.bytes());
  for (int row = 0; row < p.rows; ++row) {
    std::vector<int32_t> wanted = p.best[row];
    if (counts[row] != static_cast<int>(wanted.size()))
      return "row " + std::to_string(row) + " counts " + std::to_string(counts[row]);
    wanted.resize(p.k + 1, kPoison);
    const auto begin = selected.begin() + static_cast<int64_t>(row) * (p.k + 1);
    const auto off = std::mismatch(wanted.begin(), wanted.end(), begin);
    if (off.first == wanted.end()) continue;
    return "row " + std::to_string(row) + " (length " + std::to_string(p.lengths[row]) + ", k " + std::to_string(p.budgets[row]) +
           "): [" + std::to_string(off.first - wanted.begin()) + "] is " + std::to_string(*off.second) + ", not " +
           std::to_string(*off.first);
  }
  return "";
}

/// Every way in which rows of this length can be selected from, the chosen one first.
std::vector<TopKPlan> plans_for(int rows, int length, int k) {
  const int blocks = multiprocessors();
  std::vector<TopKPlan> plans = {plan_top_k(rows, length, k, true, blocks), plan_top_k(rows, length, k, false, blocks),
                                 plan_radix(rows, length, blocks), plan_gvr(rows, length, blocks)};
  for (const auto& [threads, keys] : {std::pair{128, 8}, {512, 4}, {512, 8}, {1024, 8}}) {
    if (threads * keys >= length) plans.push_back({FirstGuess::kNone, threads, keys, 1});
  }
  for (const int keys : {8, 16, 32}) {
    for (const int cluster : {1, 2, 4, 8, 16}) {
      const int64_t held = int64_t{1024} * keys * cluster;
      if (held * 8 < length || held > 4 * length + 16384) continue;
      for (const auto guess : {FirstGuess::kNone, FirstGuess::kSample, FirstGuess::kHints}) {
        if (guess == FirstGuess::kNone && cluster == 1 && held >= length) continue;
        plans.push_back({guess, 1024, keys, cluster});
        if (guess == FirstGuess::kHints) plans.push_back({guess, 1024, keys, cluster, true});
      }
    }
  }
  return plans;
}

Problem make_problem(const std::string& kind, int rows, int length, int k, int64_t stride, bool ragged, std::mt19937_64& random) {
  Problem p{rows, length, k, stride, make_scores(kind, rows, length, stride, k, random), {}, {}, {}, {}};
  for (int row = 0; row < rows; ++row) {
    p.lengths.push_back(ragged && row > 0 ? static_cast<int>(random() % (length + 1)) : length);
    p.budgets.push_back(ragged && row > 1 ? static_cast<int>(random() % (k + 1)) : k);
    p.best.push_back(best_of(p.scores.data() + row * stride, p.lengths[row], p.budgets[row]));
  }
  return p;
}

class CudaTopK : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (runs()) filler_.emplace();
  }

  void expect_exact(const std::string& kind, int rows, int length, int k, bool ragged, char hints, int extra) {
    Problem p = make_problem(kind, rows, length, k, length + extra, ragged, random_);
    add_hints(p, hints, random_);
    const OnDevice device(p);
    for (const TopKPlan& plan : plans_for(rows, length, k)) {
      EXPECT_EQ(fault(p, device, plan, *filler_), "")
          << kind << ", " << rows << " x " << length << ", k " << k << ", hints " << hints << ", " << name_of(plan);
    }
  }

  std::mt19937_64 random_{11};
  std::optional<SharedMemoryFiller> filler_;
};

TEST_F(CudaTopK, AgreesWithASortOnEveryKindOfScoresUnderEveryPlan) {
  struct Shape {
    int rows, length, k;
  };
  const Shape shapes[] = {{3, 1, 1},         {5, 100, 7},     {6, 1024, 64},     {6, 2048, 128},   {5, 2047, 1999},
                          {4, 4099, 500},    {4, 8192, 2048}, {3, 8193, 100},    {4, 65536, 2048}, {2, 131072, 2048},
                          {2, 20000, 19990}, {2, 120001, 1},  {2, 140000, 30000}};
  int turn = 0;
  for (const Shape& s : shapes) {
    for (const std::string& kind : kScoreKinds) {
      const char hints = "hxrp"[turn++ % 4];
      expect_exact(kind, s.rows, s.length, s.k, turn % 3 == 0, hints, turn % 2 == 0 ? (4 - s.length % 4) % 4 : 1 + turn % 5);
    }
  }
}

TEST_F(CudaTopK, TakesRowsOfAMillion) {
  for (const char* kind : {"gauss", "plateau", "relu99", "nan"}) expect_exact(kind, 1, 1 << 20, 4096, false, 'h', 0);
}

TEST_F(CudaTopK, KeepsWhatItSelectsForWhoeverRowsBelongTo) {
  constexpr int kRows = 6;
  constexpr int kOwnerRows = 2;
  constexpr int kLists = 3;
  constexpr int kList = 1;
  constexpr int32_t kPoison = -77;
  for (const int length : {9000, 70'000}) {
    for (const int k : {8, 1500}) {
      Problem p = make_problem("ints", kRows, length, k, length, true, random_);
      add_hints(p, 'r', random_);
      const OnDevice device(p);
      // Of the three owners one has room for all, one for half, and one keeps nothing.
      const int rooms[] = {k, k / 2, 0};
      std::vector<DeviceMemory> memory;
      std::vector<HintBlock> owners;
      for (const int room : rooms) {
        memory.emplace_back(static_cast<size_t>(kLists) * kOwnerRows * room * sizeof(int32_t));
        const std::vector<int32_t> poison(static_cast<size_t>(kLists) * kOwnerRows * room, kPoison);
        if (room > 0) memory.back().upload(poison.data(), memory.back().bytes());
        owners.push_back({memory.back().as<int32_t>(), room});
      }
      DeviceMemory blocks(owners.size() * sizeof(HintBlock));
      blocks.upload(owners.data(), blocks.bytes());
      TopK rows = device.rows;
      rows.hints = blocks.as<HintBlock>();
      rows.owner_rows = kOwnerRows;
      rows.hint_list = kList;
      rows.keeps_hints = true;
      for (const bool insists : {false, true, false}) {  // those after the first begin with what it kept
        select_top_k(rows, {FirstGuess::kHints, 1024, 16, 8, insists}, nullptr);
        std::vector<int32_t> selected(static_cast<size_t>(kRows) * (k + 1));
        device.selected.download(selected.data(), device.selected.bytes());
        for (int owner = 0; owner < kRows / kOwnerRows; ++owner) {
          const int room = rooms[owner];
          std::vector<int32_t> kept(static_cast<size_t>(kLists) * kOwnerRows * room);
          if (room > 0) memory[static_cast<size_t>(owner)].download(kept.data(), kept.size() * sizeof(int32_t));
          for (int i = 0; i < static_cast<int>(kept.size()); ++i) {
            const int list = i / (kOwnerRows * room);
            const int row = owner * kOwnerRows + i / room % kOwnerRows;
            const std::vector<int32_t>& best = p.best[static_cast<size_t>(row)];
            const bool all = static_cast<int>(best.size()) == p.lengths[static_cast<size_t>(row)];  // nothing is searched for
            const bool has = list == kList && !all && i % room < static_cast<int>(best.size());
            ASSERT_EQ(kept[static_cast<size_t>(i)], has ? best[static_cast<size_t>(i % room)] : kPoison)
                << length << ", k " << k << ", owner " << owner << ", " << i;
          }
        }
        for (int row = 0; row < kRows; ++row) {
          const std::vector<int32_t>& best = p.best[static_cast<size_t>(row)];
          ASSERT_TRUE(std::equal(best.begin(), best.end(), selected.begin() + static_cast<int64_t>(row) * (k + 1))) << row;
        }
      }
    }
  }
}

TEST_F(CudaTopK, DrawsWhatTheCpuDraws) {
  constexpr int kHeads = 2;
  constexpr int kLayer = 5;
  constexpr int kFirst = 3;
  struct Shape {
    int rows, length, k;
  };
  int turn = 0;
  for (const Shape& s : {Shape{4, 100, 7},
                         {6, 2048, 128},
                         {2, 4095, 300},
                         {2, 4096, 4000},
                         {2, 4096, 300},
                         {40, 9000, 500},
                         {80, 20'001, 700},
                         {2, 70'001, 2048},
                         {2, 600'000, 3000}}) {
    for (const std::string& kind : kScoreKinds) {
      const double tolerate = turn % 3 == 0 ? 0.02 : turn % 3 == 1 ? 0.3 : 1.0;
      const int64_t stride = s.length + (turn++ % 2 == 0 ? (4 - s.length % 4) % 4 : 3);
      Problem p = make_problem(kind, s.rows, s.length, s.k, stride, turn % 2 == 0, random_);
      add_hints(p, 'h', random_);  // which are not looked at
      const OnDevice device(p);
      std::vector<uint64_t> seeds;
      std::vector<int32_t> tokens;
      for (int sequence = 0; sequence < s.rows / kHeads; ++sequence) {
        seeds.push_back(random_());
        tokens.push_back(static_cast<int32_t>(random_() % 100'000));
      }
      DeviceMemory seeds_memory(seeds.size() * sizeof(uint64_t));
      DeviceMemory tokens_memory(tokens.size() * sizeof(int32_t));
      seeds_memory.upload(seeds.data(), seeds_memory.bytes());
      tokens_memory.upload(tokens.data(), tokens_memory.bytes());
      const Draws draws{.tolerate = tolerate,
                        .seeds = seeds_memory.as<uint64_t>(),
                        .tokens = tokens_memory.as<int32_t>(),
                        .heads = kHeads,
                        .layer = kLayer,
                        .first = kFirst};
      for (int repeat = 0; repeat < 2; ++repeat) {
        std::vector<int32_t> selected(static_cast<size_t>(s.rows) * (s.k + 1), -77);
        std::vector<int32_t> counts(static_cast<size_t>(s.rows));
        SLUICE_CHECK_CUDA(cudaMemcpy(device.selected.data(), selected.data(), device.selected.bytes(), cudaMemcpyHostToDevice));
        filler_->fill();
        draw_top_k(device.rows, draws, nullptr);
        device.selected.download(selected.data(), device.selected.bytes());
        device.counts.download(counts.data(), device.counts.bytes());
        for (int row = 0; row < s.rows; ++row) {
          // Of the CPU's row the first pages are kept anyway.
          std::vector<float> scores(kFirst, 0.0F);
          const float* const from = p.scores.data() + row * stride;
          scores.insert(scores.end(), from, from + p.lengths[static_cast<size_t>(row)]);
          Attributes attributes;
          attributes.k = p.budgets[static_cast<size_t>(row)];
          attributes.first = kFirst;
          attributes.tolerate = tolerate;
          cpu::PageSelector selector(static_cast<int>(scores.size()));
          std::vector<int32_t> wanted(scores.size() + 64);
          const uint64_t key = random_key(seeds[static_cast<size_t>(row / kHeads)], RandomPurpose::kApproxTopK, kLayer,
                                          row % kHeads, tokens[static_cast<size_t>(row / kHeads)]);
          wanted.resize(static_cast<size_t>(selector.approx_top_k(scores, attributes, key, wanted.data())));
          wanted.erase(wanted.begin(), wanted.begin() + kFirst);
          for (int32_t& page : wanted) page -= kFirst;
          ASSERT_EQ(counts[static_cast<size_t>(row)], static_cast<int>(wanted.size())) << kind;
          wanted.resize(static_cast<size_t>(s.k) + 1, -77);
          const auto begin = selected.begin() + static_cast<int64_t>(row) * (s.k + 1);
          ASSERT_EQ(std::vector<int32_t>(begin, begin + s.k + 1), wanted)
              << kind << ", " << s.rows << " x " << s.length << ", k " << s.k << ", tolerate " << tolerate << ", row " << row;
        }
      }
    }
  }
  Problem p = make_problem("gauss", 1, 100, 7, 100, false, random_);
  add_hints(p, 'h', random_);
  const OnDevice device(p);
  EXPECT_THROW(draw_top_k(device.rows, {.tolerate = 0.1}, nullptr), InternalError) << "of no sequence";
}

TEST_F(CudaTopK, RefusesPlansWithoutAKernel) {
  Problem p = make_problem("gauss", 1, 100, 7, 100, false, random_);
  add_hints(p, 'h', random_);
  const OnDevice device(p);
  EXPECT_THROW(select_top_k(device.rows, {FirstGuess::kNone, 77, 3, 1}, nullptr), InternalError);
  EXPECT_THROW(select_top_k(device.rows, {FirstGuess::kSample, 1024, 8, 1, true}, nullptr), InternalError) << "on what?";
  TopK rows = device.rows;
  rows.hints = nullptr;
  EXPECT_THROW(select_top_k(rows, {FirstGuess::kHints, 1024, 8, 1}, nullptr), InternalError) << "no hints";
}

}  // namespace
}  // namespace sluice::cuda
