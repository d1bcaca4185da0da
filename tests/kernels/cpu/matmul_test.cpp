#include <gtest/gtest.h>

#include <bit>

#include "tests/kernels/paged_batch.h"

namespace sluice {
namespace {

struct Case {
  int rows, outputs, inputs;
};

struct Data {
  std::vector<float> x, weight;
  std::vector<uint16_t> narrow;
};

Data random_data(const Case& size, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Data data;
  data.x.resize(static_cast<size_t>(size.rows) * size.inputs);
  data.weight.resize(static_cast<size_t>(size.outputs) * size.inputs);
  for (float& value : data.x) value = normal(random);
  for (float& value : data.weight) {
    value = test::as_stored(normal(random), DataType::kBF16);
    data.narrow.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  }
  return data;
}

std::vector<float> multiply(Device& device, const Case& size, Data& data, DataType type) {
  const void* values = type == DataType::kF32 ? static_cast<const void*>(data.weight.data()) : data.narrow.data();
  const auto weight = device.create_weight(values, type, size.outputs, size.inputs);
  std::vector<float> out(static_cast<size_t>(size.rows) * size.outputs, NAN);
  device.matmul(test::matrix_of(data.x, size.inputs), *weight, test::matrix_of(out, size.outputs));
  return out;
}

/// Every test runs on AMX tiles and on vectors alone; where there is no AMX, both are vectors.
class Matmul : public ::testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<Device> make_device(int threads) { return create_cpu_device({.threads = threads, .tiles = GetParam()}); }
};

INSTANTIATE_TEST_SUITE_P(Cpu, Matmul, ::testing::Bool(), [](const auto& unit) { return unit.param ? "Tiles" : "Vectors"; });

TEST_P(Matmul, AgreesWithFloat64) {
  const auto device = make_device(2);
  for (const Case& size : {Case{1, 1, 1},
                           {1, 32, 64},
                           {2, 33, 7},
                           {3, 31, 65},
                           {5, 100, 256},
                           {12, 64, 129},
                           {13, 768, 256},
                           {29, 17, 33},
                           {97, 256, 96},
                           {200, 70, 300}}) {
    Data data = random_data(size);
    std::vector<double> wanted(static_cast<size_t>(size.rows) * size.outputs);
    for (int r = 0; r < size.rows; ++r) {
      for (int o = 0; o < size.outputs; ++o) {
        for (int i = 0; i < size.inputs; ++i) {
          wanted[static_cast<size_t>(r) * size.outputs + o] +=
              static_cast<double>(data.x[static_cast<size_t>(r) * size.inputs + i]) *
              data.weight[static_cast<size_t>(o) * size.inputs + i];
        }
      }
    }
    for (DataType type : {DataType::kF32, DataType::kBF16}) {
      // On tiles x is split into two bf16 halves: 2^-17 of each product.
      const double tolerance =
          type == DataType::kF32 || !GetParam() ? 5e-5 : 5e-5 + 2e-5 * std::sqrt(static_cast<double>(size.inputs));
      EXPECT_LT(test::largest_error(multiply(*device, size, data, type), wanted), tolerance)
          << size.rows << " x " << size.outputs << " x " << size.inputs << " " << name_of(type);
    }
  }
}

TEST_P(Matmul, GivesTheSameBitsForAnyNumberOfThreadsAndRows) {
  const Case size{40, 200, 130};
  Data data = random_data(size);
  for (DataType type : {DataType::kF32, DataType::kBF16}) {
    const auto one = make_device(1);
    const std::vector<float> wanted = multiply(*one, size, data, type);
    for (int threads : {2, 5}) EXPECT_EQ(multiply(*make_device(threads), size, data, type), wanted);
    for (int row : {0, 11, 12, 39}) {
      Data single = data;
      single.x.assign(data.x.begin() + row * size.inputs, data.x.begin() + (row + 1) * size.inputs);
      const std::vector<float> alone = multiply(*one, {1, size.outputs, size.inputs}, single, type);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), wanted.begin() + row * size.outputs)) << "row " << row;
    }
  }
}

TEST_P(Matmul, LeavesTheRestOfWiderMatricesAlone) {
  const auto device = make_device(2);
  const Case size{3, 20, 16};
  Data data = random_data(size);
  const std::vector<float> wanted = multiply(*device, size, data, DataType::kF32);
  const auto weight = device->create_weight(data.weight.data(), DataType::kF32, size.outputs, size.inputs);
  std::vector<float> wide_out(3 * 50, 7);
  std::vector<float> wide_x(3 * 30, 1e30f);
  for (int r = 0; r < 3; ++r) std::copy_n(data.x.begin() + r * 16, 16, wide_x.begin() + r * 30 + 5);
  device->matmul(test::matrix_of(wide_x, 30).slice_columns(5, 16), *weight, test::matrix_of(wide_out, 50).slice_columns(10, 20));
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 50; ++c)
      EXPECT_EQ(wide_out[r * 50 + c], c >= 10 && c < 30 ? wanted[r * 20 + c - 10] : 7) << r << ", " << c;
  }
}

TEST_P(Matmul, TakesNoRows) {
  const auto device = make_device(2);
  Data data = random_data({0, 40, 32});
  for (DataType type : {DataType::kF32, DataType::kBF16}) EXPECT_TRUE(multiply(*device, {0, 40, 32}, data, type).empty());
}

TEST_P(Matmul, NamesTheDimensionThatDisagrees) {
  const auto device = make_device(1);
  std::vector<float> values(64);
  const auto weight = device->create_weight(values.data(), DataType::kF32, 8, 8);
  EXPECT_THROW(device->matmul(test::matrix_of(values, 16), *weight, test::matrix_of(values, 8)), InternalError);
  EXPECT_THROW(device->create_weight(values.data(), DataType::kE4M3, 8, 8), InputError);
}

}  // namespace
}  // namespace sluice
