// What lies behind a layer's attention, as one kernel for few rows and as operations of its own, against float64.
#include "kernels/cuda/products/layer_chain.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <string>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/runtime/runtime.h"
#include "scripting/base/error.h"
#include "tests/cuda/device/device_fixture.h"

namespace sluice {
namespace {

using testing::error_of;
using testing::Held;
using testing::rounded;

struct LayerShape {
  int hidden = 0;
  int queries = 0;  // numbers of a row
  int intermediate = 0;
  int qkv = 0;
};

/// out[rows, outputs] = x * weight^T.
std::vector<double> product(const std::vector<double>& x, const std::vector<float>& weight, int64_t inputs) {
  const auto rows = static_cast<int64_t>(x.size()) / inputs;
  const auto outputs = static_cast<int64_t>(weight.size()) / inputs;
  std::vector<double> out;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t output = 0; output < outputs; ++output) {
      double sum = 0;
      for (int64_t i = 0; i < inputs; ++i) sum += x[row * inputs + i] * weight[output * inputs + i];
      out.push_back(sum);
    }
  }
  return out;
}

std::vector<double> normed(std::vector<double> x, const std::vector<float>& gain, double epsilon) {
  for (size_t first = 0; first < x.size(); first += gain.size()) {
    double squares = 0;
    for (size_t i = 0; i < gain.size(); ++i) squares += x[first + i] * x[first + i];
    const double factor = 1 / std::sqrt(squares / static_cast<double>(gain.size()) + epsilon);
    for (size_t i = 0; i < gain.size(); ++i) x[first + i] *= factor * gain[i];
  }
  return x;
}

class CudaLayerChain : public testing::CudaDeviceTest {
 protected:
  void SetUp() override {
    testing::CudaDeviceTest::SetUp();
    if (!runs()) return;
    stream_.emplace();
    chain_ = std::make_unique<cuda::LayerChain>();
  }

  static constexpr float kEpsilon = 1e-3F;
  static constexpr double kTolerance = 8e-3;  // what rounding activations to bf16 a few times in a row gives

  /// Random weights of a layer, on the device and as it has them.
  struct Layer {
    std::vector<float> output, mlp_gain, gate_up, down, next_gain, next_qkv;
    std::vector<std::unique_ptr<Weight>> weights = {};

    /// What lies behind its attention, up to the next layer's.
    LayerProgram program(bool is_last) const {
      LayerProgram parts = {ProductPart{weights[0].get(), Activation::kAttended, Activation::kDelta},
                            AddNormPart{weights[1].get(), kEpsilon}, GatedProductPart{weights[2].get()},
                            ProductPart{weights[3].get(), Activation::kActivated, Activation::kDelta}};
      if (is_last) return parts;
      parts.push_back(AddNormPart{weights[4].get(), kEpsilon});
      parts.push_back(ProductPart{weights[5].get(), Activation::kNormed, Activation::kQkv});
      return parts;
    }
  };

  struct Rows {
    Held attended, residual, delta, normed, gate_up, activated, qkv;

    Activations matrices(int64_t count) const {
      Activations rows;
      const auto add = [&](Activation which, const Held& held) { rows[which] = held.matrix.slice_rows(0, count); };
      add(Activation::kAttended, attended);
      add(Activation::kResidual, residual);
      add(Activation::kDelta, delta);
      add(Activation::kNormed, normed);
      add(Activation::kGateUp, gate_up);
      add(Activation::kActivated, activated);
      add(Activation::kQkv, qkv);
      return rows;
    }
  };

  Layer draw_layer(const LayerShape& shape) {
    Layer layer;
    const auto add = [&](std::vector<float>& values, int64_t outputs, int64_t inputs) {
      values = draw(static_cast<size_t>(outputs * inputs), outputs == 1 ? 1 : 1 / std::sqrt(static_cast<float>(inputs)));
      layer.weights.push_back(weight_of(values, outputs, inputs));
      if (outputs == 1) return;
      for (float& value : values) value = rounded(value);
    };
    add(layer.output, shape.hidden, shape.queries);
    add(layer.mlp_gain, 1, shape.hidden);
    add(layer.gate_up, 2 * shape.intermediate, shape.hidden);
    add(layer.down, shape.hidden, shape.intermediate);
    add(layer.next_gain, 1, shape.hidden);
    add(layer.next_qkv, shape.qkv, shape.hidden);
    return layer;
  }

  Rows draw_rows(const LayerShape& shape, int rows, int64_t gap) {
    return {.attended = hold(rows, shape.queries, kBF16, gap),
            .residual = hold(rows, shape.hidden, kF32, gap),
            .delta = empty(rows, shape.hidden, kBF16, gap),
            .normed = empty(rows, shape.hidden, kBF16, gap),
            .gate_up = empty(rows, int64_t{2} * shape.intermediate, kBF16, gap),
            .activated = empty(rows, shape.intermediate, kBF16, gap),
            .qkv = empty(rows, shape.qkv, kBF16, gap)};
  }

  /// The residual, then q, k and v of the next layer (of the last: delta).
  struct Result {
    std::vector<float> residual, out;
    bool operator==(const Result&) const = default;
  };
  struct Wanted {
    std::vector<double> residual, out;
  };

  /// Makes a bf16 matrix NaN, so that nothing is left of an earlier run.
  void spoil(const Matrix& matrix) {
    const std::vector<uint16_t> row(static_cast<size_t>(matrix.columns), 0x7fc0);
    for (int64_t i = 0; i < matrix.rows; ++i) {
      device_->write(static_cast<uint16_t*>(matrix.data) + i * matrix.stride, row.data(), row.size() * sizeof(uint16_t));
    }
  }

  /// Runs `finish`, which may count on nothing but `attended` and the residual. The residual is as it was afterwards.
  template <typename Finish>
  Result run(const Activations& rows, bool is_last, const Finish& finish) {
    const Matrix& residual = rows[Activation::kResidual];
    const std::vector<float> before = fetch(residual);
    for (const Activation which :
         {Activation::kDelta, Activation::kNormed, Activation::kGateUp, Activation::kActivated, Activation::kQkv}) {
      spoil(rows[which]);
    }
    finish();
    stream_->wait();
    Result result{fetch(residual), fetch(rows[is_last ? Activation::kDelta : Activation::kQkv])};
    restore(residual, before);
    return result;
  }
  void restore(const Matrix& residual, const std::vector<float>& before) {
    for (int64_t row = 0; row < residual.rows; ++row) {
      device_->write(residual.row(row), before.data() + row * residual.columns,
                     static_cast<size_t>(residual.columns) * sizeof(float));
    }
  }
  Result run(const Layer& layer, const Activations& rows, bool is_last) {
    return run(rows, is_last, [&] { finish(layer.program(is_last), rows); });
  }
  static bool takes(const LayerProgram& parts, const Activations& rows) {
    const auto chain = cuda::LayerChain::find(parts, rows);
    return chain && cuda::LayerChain::takes(*chain);
  }
  /// As one kernel, however small the layer is, where that can be.
  void finish(const LayerProgram& parts, const Activations& rows) {
    if (takes(parts, rows)) {
      chain_->run(*cuda::LayerChain::find(parts, rows), cooperative_, stream_->get());
    } else {
      device_->run(parts, rows);
    }
  }
  /// What the device does as one, by the names that it tells.
  std::vector<std::string> operations(const LayerProgram& parts, const Activations& rows) {
    const std::vector<float> before = fetch(rows[Activation::kResidual]);
    struct Names : OperationObserver {
      void begin() override {}
      void end(const std::string& name) override { names.push_back(name); }
      std::vector<std::string> names;
    } told;
    device_->observe(&told);
    device_->run(parts, rows);
    device_->observe(nullptr);
    restore(rows[Activation::kResidual], before);
    return told.names;
  }

  static Wanted judge(const Layer& layer, const Rows& rows, int count, bool is_last) {
    const int64_t hidden = rows.residual.matrix.columns;
    const auto first_rows = [&](const Held& held) {
      return std::vector<double>(held.values.begin(), held.values.begin() + count * held.matrix.columns);
    };
    const auto add = [](std::vector<double>& to, const std::vector<double>& more) {
      for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
    };
    std::vector<double> residual = first_rows(rows.residual);
    add(residual, product(first_rows(rows.attended), layer.output, rows.attended.matrix.columns));
    const std::vector<double> gate_up = product(normed(residual, layer.mlp_gain, kEpsilon), layer.gate_up, hidden);
    const int64_t intermediate = rows.activated.matrix.columns;
    std::vector<double> activated;
    for (int64_t i = 0; i < count * intermediate; ++i) {
      const double gate = gate_up[i / intermediate * 2 * intermediate + i % intermediate];
      activated.push_back(gate / (1 + std::exp(-gate)) * gate_up[(i / intermediate * 2 + 1) * intermediate + i % intermediate]);
    }
    std::vector<double> delta = product(activated, layer.down, intermediate);
    if (is_last) return {residual, delta};
    add(residual, delta);
    return {residual, product(normed(residual, layer.next_gain, kEpsilon), layer.next_qkv, hidden)};
  }

  std::optional<testing::OwnStream> stream_;
  std::unique_ptr<cuda::LayerChain> chain_;
  bool cooperative_ = false;  // launches
};

TEST_F(CudaLayerChain, GivesWhatTheOperationsGive) {
  // More and fewer tiles than blocks, tiles of fewer stages than warps and of more, the last stage full or not; and what only the
  // operations take.
  const LayerShape shapes[] = {{1024, 2048, 3072, 4096}, {320, 64, 1088, 192}, {64, 64, 64, 64},
                               {576, 2112, 4352, 960},   {72, 64, 136, 96},    {256, 256, 768, 512}};
  for (const LayerShape& shape : shapes) {
    const Layer layer = draw_layer(shape);
    for (const int rows : {1, 3, 4, 8, 9, 17, 33, 64}) {
      if (rows > 9 && shape.hidden > 512) continue;  // the judge takes long
      const Rows held = draw_rows(shape, rows, rows % 2 * 8);
      const Activations matrices = held.matrices(rows);
      EXPECT_EQ(takes(layer.program(false), matrices), rows <= 8 && shape.hidden % 64 == 0);
      for (const bool is_last : {false, true}) {
        const std::string which = std::to_string(rows) + " rows of " + std::to_string(shape.hidden) + (is_last ? ", last" : "");
        const Result got = run(layer, matrices, is_last);
        const Wanted wanted = judge(layer, held, rows, is_last);
        EXPECT_LT(error_of(got.residual, wanted.residual), kTolerance) << which;
        EXPECT_LT(error_of(got.out, wanted.out), kTolerance) << which;
        EXPECT_EQ(run(layer, matrices, is_last), got) << which << ", once more";
        const Result apart = run(matrices, is_last, [&] {
          for (const LayerPart& part : layer.program(is_last)) device_->run({&part, 1}, matrices);
        });
        EXPECT_LT(error_of(got.out, {apart.out.begin(), apart.out.end()}), kTolerance) << which;
      }
    }
  }
}

TEST_F(CudaLayerChain, WithAnMlpOfOneKernelBeyondItsRowsGivesWhatFloat64Gives) {
  const LayerShape shape{1600, 64, 6144, 192};
  const Layer layer = draw_layer(shape);
  for (const int rows : {9, 64}) {
    const Rows held = draw_rows(shape, rows, rows % 2 * 8);
    const Activations matrices = held.matrices(rows);
    if (cuda::multiprocessors() == 132 && !cuda::is_gpu_shared()) {
      EXPECT_EQ(operations(layer.program(false), matrices),
                (std::vector<std::string>{"matmul 1600 x 64", "add_rms_norm", "decode_mlp", "matmul 192 x 1600"}));
    }
    EXPECT_EQ(operations(layer.program(true), matrices).size(), 4U);  // no norm follows the MLP, so that it is no such kernel's
    const Result got = run(layer, matrices, false);
    const Wanted wanted = judge(layer, held, rows, false);
    EXPECT_LT(error_of(got.residual, wanted.residual), kTolerance) << rows;
    EXPECT_LT(error_of(got.out, wanted.out), kTolerance) << rows;
    EXPECT_EQ(run(layer, matrices, false), got) << rows << ", once more";
  }
}

TEST_F(CudaLayerChain, RefusesAnMlpOfSizesThatDoNotFit) {
  const LayerShape shape{1600, 64, 6144, 192};
  const Layer layer = draw_layer(shape);
  const Rows held = draw_rows(shape, 9, 0);
  const Activations matrices = held.matrices(9);
  const LayerProgram all = layer.program(false);
  const LayerProgram mlp(all.begin() + 2, all.begin() + 5);
  Activations wrong = matrices;
  wrong[Activation::kResidual] = matrices[Activation::kResidual].slice_rows(0, 8);
  EXPECT_THROW(device_->run(mlp, wrong), InternalError);
  wrong = matrices;
  wrong[Activation::kResidual] = matrices[Activation::kResidual].slice_columns(0, 1536);
  EXPECT_THROW(device_->run(mlp, wrong), InternalError);
  wrong = matrices;
  wrong[Activation::kActivated] = matrices[Activation::kActivated].slice_columns(0, 6080);
  EXPECT_THROW(device_->run(mlp, wrong), InternalError);
  LayerProgram other_gain = mlp;
  std::get<AddNormPart>(other_gain[2]).gain = layer.weights[2].get();
  EXPECT_THROW(device_->run(other_gain, matrices), InternalError);
}

TEST_F(CudaLayerChain, JoinsNothingAcrossAPartOfAnotherKind) {
  const LayerShape shape{2048, 2048, 6144, 4096};
  const Layer layer = draw_layer(shape);
  const Rows held = draw_rows(shape, 4, 0);
  const Activations matrices = held.matrices(4);
  const LayerProgram parts = layer.program(false);
  if (chain_->fits()) {
    EXPECT_EQ(operations(parts, matrices), std::vector<std::string>{"layer_chain"});
  }
  // A norm where a router or a sum over devices would stand: between the output's product and its norm.
  LayerProgram parted = parts;
  parted.insert(parted.begin() + 1, NormPart{layer.weights[1].get(), kEpsilon, Activation::kDelta, Activation::kDelta});
  const std::vector<std::string> told = operations(parted, matrices);
  EXPECT_EQ(std::count(told.begin(), told.end(), "layer_chain"), 0);
  EXPECT_EQ(told.front(), "matmul 2048 x 2048");
}

TEST_F(CudaLayerChain, GivesARowTheSameBitsInEveryBatch) {
  const LayerShape shape{1024, 2048, 3072, 4096};
  const Layer layer = draw_layer(shape);
  const Rows held = draw_rows(shape, 8, 0);
  const Result all = run(layer, held.matrices(8), false);
  for (const int rows : {1, 2, 5, 7}) {
    const Result some = run(layer, held.matrices(rows), false);
    EXPECT_TRUE(std::equal(some.residual.begin(), some.residual.end(), all.residual.begin())) << rows;
    EXPECT_TRUE(std::equal(some.out.begin(), some.out.end(), all.out.begin())) << rows;
  }
}

TEST_F(CudaLayerChain, LayersRunBehindEachOther) {
  // Each begins to read weights while the one before it ends, and their blocks wait for each other in turn.
  constexpr int kLayers = 6;
  const LayerShape shape{1024, 1024, 3072, 1024};
  std::vector<Layer> layers;
  for (int i = 0; i < kLayers; ++i) layers.push_back(draw_layer(shape));
  for (const auto& [rows, cooperative] : {std::pair{2, false}, {8, false}, {8, true}}) {
    cooperative_ = cooperative;
    const Rows held = draw_rows(shape, rows, 0);
    Activations there = held.matrices(rows);
    const auto all = [&](bool waits) {
      return run(there, false, [&] {
        for (int i = 0; i < kLayers; ++i) {
          if (i > 0)
            std::swap(there[Activation::kAttended], there[Activation::kQkv]);  // q of a layer stands for what the next attends to
          finish(layers[static_cast<size_t>(i)].program(false), there);
          if (waits) stream_->wait();
        }
      });
    };
    // The first layer's rows are written over, and written anew before each run.
    const std::vector<float> first = fetch(there[Activation::kAttended]);
    std::optional<Result> wanted;
    for (int repeat = 0; repeat < 40; ++repeat) {
      for (int row = 0; row < rows; ++row) {
        std::vector<uint16_t> narrow;
        for (int i = 0; i < shape.queries; ++i) {
          narrow.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(first[row * shape.queries + i]) >> 16));
        }
        const Matrix& attended = there[Activation::kAttended];
        device_->write(static_cast<uint16_t*>(attended.data) + row * attended.stride, narrow.data(),
                       narrow.size() * sizeof(uint16_t));
      }
      const Result got = all(repeat == 0);
      if (!wanted) wanted = got;
      EXPECT_EQ(got, *wanted) << rows << " rows, repeat " << repeat;
    }
  }
}

TEST_F(CudaLayerChain, PaysWhereWeightsTakeLongToReadAndRowsAreFew) {
  const auto pays = [&](int rows, const LayerShape& shape) {
    std::vector<std::unique_ptr<Weight>> weights;
    const auto add = [&](int64_t outputs, int64_t inputs) {
      const std::vector<uint16_t> zeros(static_cast<size_t>(outputs * inputs));
      weights.push_back(device_->create_weight(zeros.data(), kBF16, outputs, inputs));
      return weights.back().get();
    };
    cuda::LayerChain::Chain chain;
    chain.output = add(shape.hidden, shape.queries);
    chain.gate_up = add(2 * shape.intermediate, shape.hidden);
    chain.down = add(shape.hidden, shape.intermediate);
    chain.residual.rows = rows;
    chain.residual.columns = shape.hidden;
    return cuda::LayerChain::pays(chain);
  };
  EXPECT_FALSE(pays(1, {.hidden = 1024, .queries = 2048, .intermediate = 3072}));
  EXPECT_TRUE(pays(8, {.hidden = 2048, .queries = 2048, .intermediate = 6144}));
  EXPECT_TRUE(pays(4, {.hidden = 4096, .queries = 4096, .intermediate = 12288}));
  EXPECT_FALSE(pays(8, {.hidden = 4096, .queries = 4096, .intermediate = 12288}));
}

TEST_F(CudaLayerChain, RefusesWhatItDoesNotTake) {
  const LayerShape shape{72, 64, 136, 96};
  const Layer layer = draw_layer(shape);
  const Rows held = draw_rows(shape, 2, 0);
  const auto chain = cuda::LayerChain::find(layer.program(false), held.matrices(2));
  ASSERT_TRUE(chain);
  EXPECT_THROW(chain_->run(*chain, false, nullptr), InternalError);
}

}  // namespace
}  // namespace sluice
