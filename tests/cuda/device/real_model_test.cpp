// SmolLM2-135M-Instruct from its GGUF file on a GPU against transformers (float32, the same weights rounded to bf16).
#include <fmt/format.h>

#include "kernels/device.h"
#include "tests/cuda/gpu.h"
#include "tests/support/real_model_judge.h"

namespace sluice {
namespace {

/// Activations are rounded to bf16 before products.
constexpr double kLogitsError = 0.25;
constexpr double kSureLead = 0.3;

class CudaRealModel : public testing::GpuTest {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    if (!runs()) return;
    SLUICE_SKIP_WITHOUT_REAL_MODEL();
  }
};

TEST_F(CudaRealModel, SaysWhatTransformersSays) {
  testing::RealModelJudge judge(create_device("cuda"), DataType::kBF16);
  const double error = judge.logits_error();
  std::printf("logits are off by %.2e at most; loaded in %.2f s\n", error, judge.load_seconds());
  EXPECT_LT(error, kLogitsError);
  judge.expect_continuations(kSureLead);
  for (const bool fed : {false, true}) {
    for (const auto& loss : judge.losses(fed)) {
      std::printf("loss %.4f beside %.4f, %d of %d right tokens, %s\n", loss.got, loss.wanted, loss.right, loss.wanted_right,
                  fed ? "fed" : "prefilled");
      EXPECT_NEAR(loss.got, loss.wanted, loss.wanted * 1e-3);
    }
  }
}

}  // namespace
}  // namespace sluice
