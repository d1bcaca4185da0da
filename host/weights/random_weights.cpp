#include "host/weights/random_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>

#include "host/serving/random.h"
#include "host/transformer/config.h"
#include "host/transformer/weights.h"
#include "kernels/device/checks.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

struct PublicModel {
  const char* name;
  int hidden;
  int layers;
  int query_heads;
  int intermediate;
  bool tied;
};

// From the models' config.json; what is not here is the same in all of them.
constexpr PublicModel kQwen3[] = {
    {"qwen3-0.6b", 1024, 28, 16, 3072, true},  {"qwen3-1.7b", 2048, 28, 16, 6144, true},
    {"qwen3-4b", 2560, 36, 32, 9728, true},    {"qwen3-8b", 4096, 36, 32, 12288, false},
    {"qwen3-14b", 5120, 40, 40, 17408, false}, {"qwen3-32b", 5120, 64, 64, 25600, false},
};

constexpr size_t kNumbers = 4194301;  // a prime: rows that repeat the numbers do not begin at the same one
constexpr double kDeviation = 0.02;

uint16_t to_bf16(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// By Box and Muller: two normal numbers of two uniform ones.
std::vector<uint16_t> draw_numbers() {
  std::vector<uint16_t> numbers;
  numbers.reserve(kNumbers + 1);
  for (uint64_t i = 0; numbers.size() < kNumbers; i += 2) {
    const double radius = kDeviation * std::sqrt(-2 * std::log(1 - counter_uniform(1, i)));
    const double angle = 2 * std::numbers::pi * counter_uniform(1, i + 1);
    numbers.push_back(to_bf16(radius * std::cos(angle)));
    numbers.push_back(to_bf16(radius * std::sin(angle)));
  }
  numbers.resize(kNumbers);
  return numbers;
}

/// The same numbers again and again, each weight from where the one before ended.
class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(Device& device) : device_(device), numbers_(draw_numbers()) {}

  std::unique_ptr<Weight> matrix(const std::vector<std::string>&, const std::vector<int64_t>& rows, int64_t columns) override {
    const int64_t all_rows = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    values_.resize(static_cast<size_t>(all_rows * columns));
    for (std::span<uint16_t> left = values_; !left.empty();) {
      const auto part = std::span<const uint16_t>(numbers_).subspan(at_).first(std::min(numbers_.size() - at_, left.size()));
      std::copy(part.begin(), part.end(), left.begin());
      left = left.subspan(part.size());
      at_ = (at_ + part.size()) % numbers_.size();
    }
    return device_.create_weight(values_.data(), DataType::kBF16, all_rows, columns);
  }

  std::unique_ptr<Weight> vector(const std::string&, int64_t columns) override {
    return device_.create_weight(std::vector<float>(static_cast<size_t>(columns), 1).data(), DataType::kF32, 1, columns);
  }

  void ignore(const std::string&) override {}
  void check_all_used(const std::string&) const override {}

 private:
  Device& device_;
  std::vector<uint16_t> numbers_;
  std::vector<uint16_t> values_;  // of the weight that is being made
  size_t at_ = 0;
};

}  // namespace

std::vector<std::string> known_geometries() {
  std::vector<std::string> names;
  for (const PublicModel& model : kQwen3) names.emplace_back(model.name);
  return names;
}

ModelConfig known_geometry(const std::string& name, int layers) {
  const auto* const found =
      std::find_if(std::begin(kQwen3), std::end(kQwen3), [&](const PublicModel& model) { return model.name == name; });
  if (found == std::end(kQwen3)) {
    throw InputError(fmt::format("there is no geometry \"{}\"", name),
                     fmt::format("known are {}", fmt::join(known_geometries(), ", ")));
  }
  if (layers < 0 || layers > found->layers) {
    throw InputError(fmt::format("{} layers of {}: it has {}", layers, name, found->layers));
  }
  ModelConfig config;
  config.architecture = "Qwen3ForCausalLM";
  config.layers = layers == 0 ? found->layers : layers;
  config.hidden = found->hidden;
  config.query_heads = found->query_heads;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.intermediate = found->intermediate;
  config.vocabulary = 151936;
  config.max_positions = 40960;
  config.tied_embeddings = found->tied;
  config.rope = plain_rope(1e6, config.head_dim);
  return config;
}

std::unique_ptr<Model> create_random_model(const ModelConfig& config, Device& device) {
  require_group(device.info(), config.group());
  RandomWeights weights(device);
  return create_transformer(config, weights);
}

}  // namespace sluice
