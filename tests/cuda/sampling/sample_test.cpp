// Tokens that the GPU picks, against those that the CPU picks from the same logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "kernels/cuda/device/device.h"
#include "tests/cuda/gpu.h"
#include "tests/support/best_tokens.h"
#include "tests/support/log_softmax.h"

namespace sluice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CudaSample : public testing::GpuTest {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    if (!runs()) return;
    cpu_ = create_cpu_device();
    gpu_ = create_cuda_device();
  }

  std::unique_ptr<Device> cpu_, gpu_;
};

/// Logits on both sides; what lies between rows would be taken by anyone who looked.
struct Logits {
  Logits(Device& gpu, int64_t rows, int64_t columns, int64_t stride) : values(static_cast<size_t>(rows * stride), 1e30F) {
    host = {values.data(), DataType::kF32, rows, columns, stride};
    memory = gpu.allocate(values.size() * sizeof(float));
    device = host;
    device.data = memory->data();
  }
  void send(Device& gpu) { gpu.write(memory->data(), values.data(), values.size() * sizeof(float)); }

  std::vector<float> values;
  std::unique_ptr<Memory> memory;
  Matrix host, device;
};

const std::vector<std::string> kKinds = {"gauss", "equal", "ints",   "nans",   "holes", "infs", "nothing",
                                         "wide",  "peak",  "narrow", "denorm", "zeros", "steps"};

void fill(const std::string& kind, float* row, int64_t columns, std::mt19937& random) {
  std::normal_distribution<float> gauss;
  std::uniform_real_distribution<float> uniform(0, 1);
  for (int64_t i = 0; i < columns; ++i) {
    const float g = gauss(random);
    const float u = uniform(random);
    float logit = 2 * g;
    if (kind == "equal") logit = 0.25F;
    if (kind == "ints") logit = std::floor(4 * u);
    if (kind == "nans") logit = u < 0.5F ? NAN : (u < 0.7F ? -NAN : (u < 0.8F ? -kInfinity : g));
    if (kind == "holes") logit = u < 0.9F ? -kInfinity : 3 * g;
    if (kind == "infs") logit = u < 0.3F ? kInfinity : g;
    if (kind == "nothing") logit = u < 0.5F ? NAN : -kInfinity;
    if (kind == "wide") logit = g * 1e30F;
    if (kind == "peak") logit = u < 0.001F ? 40 + g : g;
    if (kind == "narrow") logit = 5 + 1e-4F * u;
    if (kind == "denorm") logit = g * 1e-40F;
    if (kind == "zeros") logit = u < 0.5F ? -0.0F : 0.0F;
    if (kind == "steps") logit = u < 0.5F ? 7.0F : (u < 0.9F ? 6.9999995F : g);  // two large heaps side by side
    row[i] = logit;
  }
}

bool same(const Sampled& a, const Sampled& b) { return a.token == b.token && a.sound == b.sound; }

std::vector<Sampled> sample(Device& device, const Matrix& logits, const std::vector<SampleRow>& choices) {
  std::vector<Sampled> out(choices.size());
  device.sample(logits, choices, out);
  return out;
}

TEST_F(CudaSample, GreedyIsTheLowestOfTheLargest) {
  std::mt19937 random(1);
  for (const int64_t columns : {1, 7, 33, 1000, 4099, 32768, 151936, 152000}) {
    for (const int64_t gap : {0, 1, 4}) {
      const auto rows = static_cast<int64_t>(kKinds.size());
      Logits logits(*gpu_, rows, columns, columns + gap);
      std::vector<SampleRow> choices;
      for (int64_t row = 0; row < rows; ++row) {
        fill(kKinds[row], logits.host.row(row), columns, random);
        choices.push_back({.row = row});
      }
      logits.send(*gpu_);
      const auto wanted = sample(*cpu_, logits.host, choices);
      const auto got = sample(*gpu_, logits.device, choices);
      for (int64_t row = 0; row < rows; ++row) {
        EXPECT_EQ(got[row].token, wanted[row].token) << kKinds[row] << " " << columns << " + " << gap;
        EXPECT_EQ(got[row].sound, wanted[row].sound) << kKinds[row] << " " << columns << " + " << gap;
      }
    }
  }
}

std::vector<SampleRow> choices_for(int64_t rows, std::mt19937& random) {
  const float temperatures[] = {1, 0, 0.6F, 1, 2, 100, 1e-3F, 1e-40F};
  const int ks[] = {0, 50, 0, 1, 5, 2000, 0, 1 << 30};
  const float ps[] = {1, 0.9F, 0.95F, 1, 0.3F, 0.999F, 1e-6F};
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<SampleRow> choices;
  for (int64_t i = 0; i < 3 * rows; ++i) {
    choices.push_back({.row = i % rows,
                       .temperature = temperatures[random() % std::size(temperatures)],
                       .top_k = ks[random() % std::size(ks)],
                       .top_p = ps[random() % std::size(ps)],
                       .uniform = uniform(random)});
  }
  choices[0].uniform = 0;
  choices[1].uniform = 0x1.fffffffffffffp-1;
  return choices;
}

/// Whether the CPU picks `token` where shares are a little off.
bool is_close(Device& cpu, const Matrix& logits, const SampleRow& choice, int32_t token) {
  for (const double off : {-1e-5, 0.0, 1e-5}) {
    for (const float cut : {1 - 1e-5F, 1.0F, 1 + 1e-5F}) {
      SampleRow near = choice;
      near.uniform = std::clamp(choice.uniform + off, 0.0, 0x1.fffffffffffffp-1);
      if (choice.top_p < 1) near.top_p = std::min(choice.top_p * cut, 0x1.fffffep-1F);
      if (sample(cpu, logits, {near})[0].token == token) return true;
    }
  }
  return false;
}

TEST_F(CudaSample, DrawsWhatTheCpuDraws) {
  std::mt19937 random(2);
  int drawn = 0;
  int off = 0;
  for (const int64_t columns : {7, 1000, 4099, 32768, 152000}) {
    const auto rows = static_cast<int64_t>(kKinds.size());
    Logits logits(*gpu_, rows, columns, columns + (columns % 2));
    for (int64_t row = 0; row < rows; ++row) fill(kKinds[row], logits.host.row(row), columns, random);
    logits.send(*gpu_);
    for (int repeat = 0; repeat < (columns < 10000 ? 20 : 3); ++repeat) {
      const auto choices = choices_for(rows, random);
      const auto wanted = sample(*cpu_, logits.host, choices);
      const auto got = sample(*gpu_, logits.device, choices);
      const auto again = sample(*gpu_, logits.device, choices);
      for (size_t i = 0; i < choices.size(); ++i) {
        EXPECT_TRUE(same(got[i], again[i]));
        EXPECT_EQ(got[i].sound, wanted[i].sound);
        ++drawn;
        if (got[i].token == wanted[i].token) continue;
        ++off;
        EXPECT_TRUE(is_close(*cpu_, logits.host, choices[i], got[i].token))
            << kKinds[choices[i].row] << " " << columns << ": " << got[i].token << ", not " << wanted[i].token << ", temperature "
            << choices[i].temperature << ", top_k " << choices[i].top_k << ", top_p " << choices[i].top_p << ", uniform "
            << choices[i].uniform;
      }
    }
  }
  RecordProperty("drawn", drawn);
  RecordProperty("off", off);
  std::printf("%d of %d drawn beside a boundary\n", off, drawn);
  EXPECT_LT(off, drawn / 50);
}

TEST_F(CudaSample, GivesLogProbabilities) {
  std::mt19937 random(5);
  for (const int64_t columns : {1, 7, 33, 1000, 4099, 32768, 151936}) {
    for (const char* kind : {"gauss", "equal", "ints", "holes", "peak", "narrow", "zeros", "steps"}) {
      Logits logits(*gpu_, 3, columns, columns + 4);
      for (int64_t row = 0; row < 3; ++row) fill(kind, logits.host.row(row), columns, random);
      logits.host.row(0)[0] = 0;  // a row without any would not be sound
      logits.host.row(2)[columns - 1] = 1;
      logits.send(*gpu_);
      const std::vector<SampleRow> choices{{.row = 2, .likely = kMostLikely},
                                           {.row = 0, .temperature = 0.7F, .uniform = 0.4, .likely = 0},
                                           {.row = 2},
                                           {.row = 2, .given = static_cast<int32_t>(columns - 1), .likely = 5}};
      const auto picks = gpu_->create_picks(8);
      gpu_->sample(logits.device, choices, *picks);
      std::vector<Sampled> out(choices.size());
      gpu_->take(*picks, out);
      EXPECT_EQ(out[3].token, columns - 1);
      for (const size_t i : {0, 1, 3}) {
        const std::span<const float> row(logits.host.row(choices[i].row), static_cast<size_t>(columns));
        const std::vector<double> wanted = testing::log_softmax<float>(row);
        const RowProbabilities& got = picks->probabilities(i);
        EXPECT_NEAR(got.of_token, wanted[static_cast<size_t>(out[i].token)], 2e-5) << kind << " " << columns;
        const auto likely = testing::likely_tokens(row, static_cast<size_t>(choices[i].likely));
        for (size_t place = 0; place < likely.size(); ++place) {
          const double probability = wanted[static_cast<size_t>(likely[place])];
          EXPECT_EQ(got.likely[place].token, likely[place]) << kind << " " << columns << ", " << place;
          if (std::isinf(probability)) continue;
          EXPECT_NEAR(got.likely[place].log_probability, probability, 2e-5) << kind;
        }
      }
    }
  }
}

TEST_F(CudaSample, RefusesWhatDoesNotFit) {
  Logits logits(*gpu_, 2, 8, 8);
  std::vector<Sampled> out(1);
  const std::vector<SampleRow> outside{{.row = 2}};
  EXPECT_THROW(gpu_->sample(logits.device, outside, out), InternalError);
  EXPECT_THROW(gpu_->sample(logits.device, {}, out), InternalError);
  EXPECT_NO_THROW(gpu_->sample(logits.device, {}, {}));
}

TEST_F(CudaSample, PicksTheBestOfProducts) { testing::expect_best_tokens(*gpu_); }

TEST_F(CudaSample, PicksTheBestOfGreedyRowsAlone) {
  Logits logits(*gpu_, 2, 8, 8);
  const auto picks = gpu_->create_picks(2);
  const std::vector<SampleRow> drawn{{.row = 0}, {.row = 1, .temperature = 1}};
  EXPECT_THROW(gpu_->pick_best(logits.device, drawn, *picks), InternalError);
}

TEST_F(CudaSample, PicksWaitUntilTheyAreTaken) {
  constexpr int kRows = 64;
  constexpr int kColumns = 4099;
  const auto picks = gpu_->create_picks(kRows);
  const std::vector<float> rows_of_table = [] {
    std::vector<float> values(kColumns);
    for (int i = 0; i < kColumns; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i % 256);
    return values;
  }();
  const auto table = gpu_->create_weight(rows_of_table.data(), DataType::kF32, kColumns, 1);
  constexpr int kCalls = 5;
  const auto memory = gpu_->allocate(kCalls * kRows * sizeof(float));
  const auto embedded = [&](int call) {
    return Matrix{static_cast<float*>(memory->data()) + call * kRows, DataType::kF32, kRows, 1, 1};
  };
  // Work that takes longer than the host needs to begin all else.
  constexpr int kWide = 1 << 16;
  const auto wide = gpu_->allocate(size_t{2} * 512 * kWide * sizeof(float));
  const std::vector<float> ones(kWide, 1.0F);
  const auto gain = gpu_->create_weight(ones.data(), DataType::kF32, 1, kWide);
  const Matrix x{wide->data(), DataType::kF32, 512, kWide, kWide};
  const Matrix y{static_cast<float*>(wide->data()) + int64_t{512} * kWide, DataType::kF32, 512, kWide, kWide};
  std::mt19937 random(9);
  std::vector<Logits> logits;
  for (int call = 0; call < kCalls; ++call) {
    Logits& now = logits.emplace_back(*gpu_, kRows, kColumns, kColumns);
    for (int64_t row = 0; row < kRows; ++row) fill("gauss", now.host.row(row), kColumns, random);
    now.send(*gpu_);
  }
  const auto choices = [](int call) {
    std::vector<SampleRow> rows;
    for (int i = 0; i < kRows - call; ++i) rows.push_back({.row = (i * 7 + call) % kRows});
    return rows;
  };
  // Each is taken after the next has begun, and embedded before the host knows it.
  for (int call = 0; call <= kCalls; ++call) {
    if (call < kCalls) {
      for (int i = 0; i < 20; ++i) gpu_->rms_norm(x, *gain, 1e-6F, y);
      gpu_->sample(logits[static_cast<size_t>(call)].device, choices(call), *picks);
      std::vector<int32_t> tokens;
      for (int i = 0; i < kRows; ++i) tokens.push_back(-1 - i % picks->rows());
      gpu_->embed(*table, tokens, picks.get(), embedded(call));
    }
    if (call == 0) continue;
    std::vector<Sampled> got(choices(call - 1).size());
    gpu_->take(*picks, got);
    const auto wanted = sample(*cpu_, logits[static_cast<size_t>(call) - 1].host, choices(call - 1));
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].token, wanted[i].token);
  }
  std::vector<float> all(kCalls * kRows);
  gpu_->read(all.data(), memory->data(), all.size() * sizeof(float));
  for (int call = 0; call < kCalls; ++call) {
    const auto wanted = sample(*cpu_, logits[static_cast<size_t>(call)].host, choices(call));
    for (size_t i = 0; i < kRows; ++i) {
      EXPECT_EQ(all[static_cast<size_t>(call) * kRows + i], static_cast<float>(wanted[i % wanted.size()].token % 256)) << call;
    }
  }
  std::vector<Sampled> none(1);
  EXPECT_THROW(gpu_->take(*picks, none), InternalError);
}

TEST_F(CudaSample, TakesLittleTime) {
  constexpr int kCopies = 4;  // more than the caches hold
  constexpr int kCalls = 200;
  std::mt19937 random(4);
  for (const int rows : {1, 64}) {
    std::vector<Logits> logits;
    for (int i = 0; i < kCopies; ++i) {
      Logits& one = logits.emplace_back(*gpu_, rows, 151936, 151936);
      for (int row = 0; row < rows; ++row) {
        if (i == 0 && row < 4) {
          fill("gauss", one.host.row(row), 151936, random);
        } else {
          std::copy_n(logits[0].host.row(row % 4), 151936, one.host.row(row));
        }
      }
      one.send(*gpu_);
    }
    const std::pair<const char*, SampleRow> kinds[] = {{"greedy", {}},
                                                       {"top-k 50, top-p 0.9", {.temperature = 1, .top_k = 50, .top_p = 0.9F}},
                                                       {"top-p 0.9", {.temperature = 1, .top_p = 0.9F}},
                                                       {"temperature", {.temperature = 1}}};
    for (const auto& [name, choice] : kinds) {
      for (const int copies : {1, kCopies}) {
        std::vector<SampleRow> choices(rows, choice);
        for (int row = 0; row < rows; ++row) {
          choices[row].row = row;
          choices[row].uniform = (row + 0.5) / rows;
        }
        const auto wanted = sample(*gpu_, logits[0].device, choices);
        const auto start = std::chrono::steady_clock::now();
        std::vector<Sampled> got(rows);
        for (int i = 0; i < kCalls; ++i) gpu_->sample(logits[i % copies].device, choices, got);
        const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
        std::printf("%2d x 151936, %-20s %s %6.1f us a call\n", rows, name, copies == 1 ? "cached" : "cold  ",
                    spent.count() / kCalls);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), same));
      }
    }
  }
}

}  // namespace
}  // namespace sluice
