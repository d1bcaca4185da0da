// Products with weights on the GPU against float64, by whichever way a shape is computed.
#include "kernels/cuda/products/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cpu/simd/bfloat16.h"
#include "kernels/cuda/device/device.h"
#include "tests/cuda/gpu.h"

namespace sluice {
namespace {

using cuda::CudaWeight;
using cuda::DeviceMemory;

constexpr DataType kF32 = DataType::kF32;
constexpr DataType kBF16 = DataType::kBF16;

/// A matrix on the device with gaps between its rows.
struct Held {
  Held(std::vector<float> numbers, int64_t rows, int64_t columns, DataType type, int64_t gap)
      : values(std::move(numbers)), memory((rows * (columns + gap) + 8) * sizeof(float)) {
    matrix = {memory.data(), type, rows, columns, columns + gap};
    std::vector<float> wide(rows * matrix.stride, NAN);
    std::vector<uint16_t> narrow(wide.size(), 0x7fc0);
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t at = i / columns * matrix.stride + i % columns;
      narrow[at] = cpu::round_to_bf16(values[i]);
      wide[at] = values[i];
      values[i] = cpu::widen(narrow[at]);  // products round to it
    }
    memory.upload(type == kBF16 ? static_cast<const void*>(narrow.data()) : wide.data(), wide.size() * size_of(type));
  }

  std::vector<float> values;  // [rows, columns] as bf16
  DeviceMemory memory;
  Matrix matrix;
};

class CudaMatmul : public testing::GpuTest {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    if (runs()) matmul_ = std::make_unique<cuda::Matmul>();
  }

  std::vector<float> draw(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }

  /// What lies in memory after a product into a matrix of bytes 0xff.
  std::vector<std::byte> run(const Matrix& x, const CudaWeight& weight, DataType type, int64_t gap = 0) {
    const int64_t stride = weight.rows() + gap;
    const DeviceMemory memory(x.rows * stride * size_of(type));
    SLUICE_CHECK_CUDA(cudaMemset(memory.data(), 0xff, memory.bytes()));
    matmul_->run(x, weight, {memory.data(), type, x.rows, weight.rows(), stride}, nullptr);
    std::vector<std::byte> bytes(memory.bytes());
    memory.download(bytes.data(), bytes.size());
    return bytes;
  }

  static float at(const std::vector<std::byte>& bytes, DataType type, int64_t index) {
    if (type == kF32) return reinterpret_cast<const float*>(bytes.data())[index];
    return cpu::widen(reinterpret_cast<const uint16_t*>(bytes.data())[index]);
  }

  /// ||got - wanted|| / ||wanted|| of x * weight^T; infinite if anything was written between rows.
  static double error_of(const std::vector<std::byte>& got, DataType type, const Held& x, const std::vector<float>& weight,
                         int64_t outputs, int64_t gap) {
    const int64_t inputs = x.matrix.columns;
    double off = 0;
    double size = 0;
    for (int64_t row = 0; row < x.matrix.rows; ++row) {
      for (int64_t output = 0; output < outputs; ++output) {
        double wanted = 0;
        for (int64_t i = 0; i < inputs; ++i) {
          wanted += static_cast<double>(x.values[row * inputs + i]) * weight[output * inputs + i];
        }
        const double difference = at(got, type, row * (outputs + gap) + output) - wanted;
        off += difference * difference;
        size += wanted * wanted;
      }
      for (int64_t i = 0; i < gap; ++i) {
        if (!std::isnan(at(got, type, row * (outputs + gap) + outputs + i))) return INFINITY;
      }
    }
    return std::sqrt(off / size);
  }

  std::unique_ptr<cuda::Matmul> matmul_;
  std::mt19937 random_{7};
};

TEST_F(CudaMatmul, MultipliesEveryShape) {
  // Tiles of 64, 128 and 192 outputs, clusters of 1 to 4 blocks, one tile of a block or several of even and odd numbers of
  // chunks, the last tile and chunk full or not, and what only cuBLASLt takes.
  const std::pair<int, int> shapes[] = {{16, 8},     {64, 64},    {48, 72},     {1000, 768}, {33, 40},    {50, 36},
                                        {80, 2056},  {1536, 256}, {528, 1000},  {3088, 136}, {12304, 64}, {36480, 136},
                                        {256, 4104}, {42240, 72}, {42240, 328}, {18432, 840}};
  for (const auto& [outputs, inputs] : shapes) {
    const Held weights(draw(static_cast<size_t>(outputs) * inputs), outputs, inputs, kBF16, 0);
    const CudaWeight weight(weights.values.data(), kF32, outputs, inputs);
    for (const int rows : {1, 2, 7, 8, 9, 16, 23, 33, 64, 65, 130}) {
      if (rows * outputs > 200'000 && rows != 33) continue;  // the reference takes long
      for (const DataType x_type : {kBF16, kF32}) {
        for (const DataType type : {kBF16, kF32}) {
          const int64_t gap = rows % 2 * 8;
          const Held x(draw(static_cast<size_t>(rows) * inputs), rows, inputs, x_type, gap);
          const auto got = run(x.matrix, weight, type, gap);
          EXPECT_LT(error_of(got, type, x, weights.values, outputs, gap), type == kF32 ? 1e-5 : 3e-3)
              << rows << " x " << inputs << " x " << outputs;
          EXPECT_EQ(got, run(x.matrix, weight, type, gap)) << "two runs, " << rows << " x " << inputs << " x " << outputs;
        }
      }
    }
  }
}

TEST_F(CudaMatmul, TakesRowsThatAreNotAligned) {
  const Held weights(draw(size_t{64} * 128), 64, 128, kBF16, 0);
  const CudaWeight weight(weights.values.data(), kF32, 64, 128);
  for (const int64_t gap : {1, 2, 4}) {
    const Held x(draw(3 * 128), 3, 128, kBF16, gap);
    for (const DataType type : {kBF16, kF32}) {
      EXPECT_LT(error_of(run(x.matrix, weight, type, gap), type, x, weights.values, 64, gap), type == kF32 ? 1e-5 : 3e-3) << gap;
    }
  }
}

TEST_F(CudaMatmul, GivesARowTheSameBitsInEveryBatch) {
  for (const auto& [outputs, inputs] : {std::pair{2048, 2048}, {4096, 2048}, {12288, 512}, {2560, 2560}}) {
    const auto numbers = draw(static_cast<size_t>(outputs) * inputs);
    const CudaWeight weight(numbers.data(), kF32, outputs, inputs);
    const Held x(draw(static_cast<size_t>(cuda::DecodeMatmul::kMostRows) * inputs), cuda::DecodeMatmul::kMostRows, inputs, kBF16,
                 0);
    const auto all = run(x.matrix, weight, kF32);
    for (const int rows : {1, 5, 8, 9, 16, 17, 32, 33, 63}) {
      const auto some = run(x.matrix.slice_rows(0, rows), weight, kF32);
      EXPECT_EQ(std::memcmp(some.data(), all.data(), some.size()), 0) << rows << " x " << inputs << " x " << outputs;
    }
  }
}

TEST_F(CudaMatmul, GatesARowToTheSameBitsInEveryBatch) {
  constexpr int kRows = cuda::DecodeMatmul::kMostRows;
  for (const auto& [outputs, inputs] : {std::pair{12288, 512}, {1536, 2048}, {4112, 128}}) {
    const auto numbers = draw(static_cast<size_t>(outputs) * inputs);
    const CudaWeight weight(numbers.data(), kF32, outputs, inputs);
    const Held x(draw(static_cast<size_t>(kRows) * inputs), kRows, inputs, kBF16, 0);
    const DeviceMemory memory(static_cast<size_t>(kRows) * outputs / 2 * sizeof(uint16_t));
    const auto run = [&](int rows) {
      const Matrix out{memory.data(), kBF16, rows, outputs / 2, outputs / 2};
      EXPECT_TRUE(cuda::Matmul::takes_gated(x.matrix.slice_rows(0, rows), weight, out));
      SLUICE_CHECK_CUDA(cudaMemset(memory.data(), 0xff, memory.bytes()));
      matmul_->run_gated(x.matrix.slice_rows(0, rows), weight, out, nullptr);
      std::vector<uint16_t> result(static_cast<size_t>(rows) * outputs / 2);
      memory.download(result.data(), result.size() * sizeof(uint16_t));
      return result;
    };
    const auto all = run(kRows);
    EXPECT_EQ(std::count(all.begin(), all.end(), 0xffff), 0) << "not written, " << inputs << " x " << outputs;
    for (const int rows : {1, 5, 8, 9, 16, 17, 32, 33, 63}) {
      const auto some = run(rows);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << rows << " x " << inputs << " x " << outputs;
    }
  }
}

TEST_F(CudaMatmul, RunsProductsBehindEachOtherAndInGraphs) {
  // Each product reads what the one before it wrote, while their weights are on the way at once.
  constexpr int kSize = 1024;
  constexpr int kProducts = 6;
  cudaStream_t stream = nullptr;
  SLUICE_CHECK_CUDA(cudaStreamCreate(&stream));
  for (const int rows : {1, 40}) {
    std::vector<std::unique_ptr<CudaWeight>> weights;
    std::vector<std::unique_ptr<Held>> results;
    results.push_back(std::make_unique<Held>(draw(static_cast<size_t>(rows) * kSize), rows, kSize, kBF16, 0));
    for (int i = 0; i < kProducts; ++i) {
      std::vector<float> numbers = draw(size_t{kSize} * kSize);
      for (float& number : numbers) number /= 32;
      weights.push_back(std::make_unique<CudaWeight>(numbers.data(), kF32, kSize, kSize));
      results.push_back(std::make_unique<Held>(std::vector<float>(static_cast<size_t>(rows) * kSize), rows, kSize, kBF16, 0));
    }
    const auto contents = [&](int i) {
      std::vector<std::byte> bytes(static_cast<size_t>(rows) * kSize * sizeof(uint16_t));
      results[i]->memory.download(bytes.data(), bytes.size());
      return bytes;
    };
    std::vector<std::vector<std::byte>> wanted;
    for (int i = 0; i < kProducts; ++i) {
      matmul_->run(results[i]->matrix, *weights[i], results[i + 1]->matrix, stream);
      SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream));
      wanted.push_back(contents(i + 1));
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    SLUICE_CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < kProducts; ++i) matmul_->run(results[i]->matrix, *weights[i], results[i + 1]->matrix, stream);
    SLUICE_CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    SLUICE_CHECK_CUDA(cudaGraphInstantiate(&replay, graph, 0));
    for (int repeat = 0; repeat < 20; ++repeat) {
      for (int i = 1; i <= kProducts; ++i) {
        SLUICE_CHECK_CUDA(cudaMemsetAsync(results[i]->matrix.data, 0xff, static_cast<size_t>(rows) * kSize * 2, stream));
      }
      SLUICE_CHECK_CUDA(cudaGraphLaunch(replay, stream));
      SLUICE_CHECK_CUDA(cudaStreamSynchronize(stream));
      for (int i = 0; i < kProducts; ++i) EXPECT_EQ(contents(i + 1), wanted[i]) << "product " << i << ", repeat " << repeat;
    }
    SLUICE_CHECK_CUDA(cudaGraphExecDestroy(replay));
    SLUICE_CHECK_CUDA(cudaGraphDestroy(graph));
  }
  SLUICE_CHECK_CUDA(cudaStreamDestroy(stream));
}

TEST(CutWeight, GivesEveryMultiprocessorAShare) {
  const auto cut = [](int64_t outputs, int64_t inputs) {
    const cuda::WeightCut found = cuda::cut_weight(outputs, inputs, 132);
    return std::pair{found.outputs, found.split};
  };
  EXPECT_EQ(cut(4096, 2048), std::pair(64, 2));
  EXPECT_EQ(cut(2048, 2048), std::pair(64, 4));
  EXPECT_EQ(cut(12288, 2048), std::pair(192, 2));
  EXPECT_EQ(cut(2048, 6144), std::pair(64, 4));
  EXPECT_EQ(cut(151936, 2048), std::pair(192, 1));
  EXPECT_EQ(cut(6144, 4096), std::pair(64, 1));   // four blocks of 192 outputs would leave a ring no room
  EXPECT_EQ(cut(36480, 136), std::pair(192, 2));  // more tiles than clusters that run at once
  EXPECT_EQ(cut(16, 64), std::pair(64, 1));       // no fewer chunks than blocks
}

}  // namespace
}  // namespace sluice
