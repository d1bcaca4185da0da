// Who launches kernels whose blocks wait for each other cooperatively, and that nobody's answer changes while somebody launches.
#include "kernels/cuda/runtime/gang.h"

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "tests/cuda/gpu.h"

namespace sluice::cuda {
namespace {

class CudaGang : public testing::GpuTest {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    if (!runs()) return;
    if (is_gpu_shared()) GTEST_SKIP() << "CUDA's Multi-Process Service runs";
    gang_.emplace();
    ASSERT_FALSE(answer(*gang_));
  }

  static bool answer(Gang& gang) {
    const Gang::Launches launches(gang);
    return gang.cooperative();
  }

  std::optional<Gang> gang_;
};

TEST_F(CudaGang, LaunchesCooperativelyWhileThereIsAnother) {
  {
    Gang idle;
    EXPECT_FALSE(answer(*gang_)) << "the other has launched nothing";
    EXPECT_TRUE(answer(idle));
    EXPECT_TRUE(answer(*gang_));
    Gang third;
    EXPECT_TRUE(answer(third));
  }
  EXPECT_FALSE(answer(*gang_));
}

TEST_F(CudaGang, CountsNobodyWhileAnotherLaunches) {
  Gang other;
  std::future<bool> others;
  {
    const Gang::Launches launches(*gang_);
    others = std::async(std::launch::async, [&] { return answer(other); });
    EXPECT_EQ(others.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
    const Gang::Launches nested(*gang_);
    EXPECT_FALSE(gang_->cooperative());
  }
  EXPECT_TRUE(others.get());
}

TEST_F(CudaGang, AnswersTheSameAsLongAsItLaunchesWhileOthersComeAndGo) {
  std::atomic<int> changes = 0;
  std::atomic<int> with_others = 0;
  std::jthread comes_and_goes([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      Gang other;
      for (int i = 0; i < 3; ++i) {
        const Gang::Launches launches(other);
        if (!other.cooperative()) ++changes;  // gang_ is there all the time
        std::this_thread::yield();
      }
    }
  });
  for (int i = 0; i < 5000 || (with_others == 0 && i < 1000000); ++i) {
    const Gang::Launches launches(*gang_);
    const bool before = gang_->cooperative();
    std::this_thread::yield();
    if (gang_->cooperative() != before) ++changes;
    if (before) ++with_others;
  }
  comes_and_goes.request_stop();
  comes_and_goes.join();
  EXPECT_EQ(changes, 0);
  EXPECT_GT(with_others, 0);
  EXPECT_FALSE(answer(*gang_));
}

}  // namespace
}  // namespace sluice::cuda
