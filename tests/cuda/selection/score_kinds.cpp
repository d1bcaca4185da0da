#include "tests/cuda/selection/score_kinds.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace sluice::testing {
namespace {

uint32_t order_key(float score) {
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof bits);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0;
  if (bits == 0x80000000U) bits = 0;
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

}  // namespace

std::vector<int32_t> best_of(const float* scores, int length, int k) {
  k = std::clamp(k, 0, length);
  std::vector<uint64_t> order(length);
  for (int i = 0; i < length; ++i) order[i] = uint64_t{order_key(scores[i])} << 32 | ~static_cast<uint32_t>(i);
  if (k < length) std::nth_element(order.begin(), order.begin() + k, order.end(), std::greater<>());
  std::vector<int32_t> best(k);
  for (int i = 0; i < k; ++i) best[i] = static_cast<int32_t>(~static_cast<uint32_t>(order[i]));
  std::sort(best.begin(), best.end());
  return best;
}

const std::vector<std::string> kScoreKinds = {"gauss",  "narrow", "relu",    "relu99",  "equal", "nan",   "somenan",
                                              "inf",    "ints",   "rise",    "plateau", "under", "zeros", "anybits",
                                              "denorm", "tail",   "softmax", "fall",    "misled"};

std::vector<float> make_scores(const std::string& kind, int rows, int length, int64_t stride, int k, std::mt19937_64& random) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> scores(rows * stride, inf);  // what lies between rows must not be read as scores
  std::normal_distribution<float> gauss;
  std::uniform_real_distribution<float> uniform(0, 1);
  for (int row = 0; row < rows; ++row) {
    float* at = scores.data() + row * stride;
    for (int i = 0; i < length; ++i) {
      const float g = gauss(random);
      const float u = uniform(random);
      float s = g;
      if (kind == "narrow") s = 1 + 0.001F * u;
      if (kind == "relu") s = std::max(0.0F, g);
      if (kind == "relu99") s = u < 0.01F ? std::fabs(g) : 0;
      if (kind == "equal") s = 0.25F;
      if (kind == "nan") s = nan;
      if (kind == "somenan") s = u < 0.5F ? nan : (u < 0.7F ? -nan : (u < 0.8F ? -inf : g));
      if (kind == "inf") s = u < 0.3F ? inf : (u < 0.6F ? -inf : g);
      if (kind == "ints") s = std::floor(4 * u);
      if (kind == "rise") s = static_cast<float>(i);
      if (kind == "fall") s = -static_cast<float>(i);
      if (kind == "plateau") s = u < 0.5F * k / length ? 2 + u : (u < 0.9F ? 1.0F : -u);  // the threshold lies on a wide plateau
      if (kind == "under") s = u < 1.2F * k / length ? 2 + g * 0.01F : 1.0F;              // the threshold lies just above one
      if (kind == "zeros") s = u < 0.5F ? -0.0F : 0.0F;
      if (kind == "anybits") {
        const auto bits = static_cast<uint32_t>(random());
        std::memcpy(&s, &bits, sizeof s);
      }
      if (kind == "denorm") {
        const auto bits = static_cast<uint32_t>(random() & 0x800fffffU);
        std::memcpy(&s, &bits, sizeof s);
      }
      if (kind == "tail") s = std::exp(20 * g);
      if (kind == "misled" && length >= 32 && i % (length / 32) < 8) s = 10 + u;  // what approximate selections sample
      if (kind == "softmax") s = std::exp(3 * g) / length;
      at[i] = s;
    }
  }
  return scores;
}

}  // namespace sluice::testing
