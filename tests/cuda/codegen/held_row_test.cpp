// Selection as kernels do it in which a cluster of blocks attends (held_row.cuh), in a kernel of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/codegen/embedded.h"
#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/runtime/kernel_library.h"
#include "kernels/cuda/runtime/runtime.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/selection/score_kinds.h"

namespace sluice::cuda {
namespace {

/// As held_row.cuh has it.
struct Selecting {
  int first, last, begin, end, k;
};

constexpr int kThreads = 256;

const char* const kKernel = R"(
namespace sluice::cuda {
template <int kThreads, class Crew>
__device__ void select(const float* scores, const int* pages, const Selecting* what, int stride, int* lists, int* counts) {
  extern __shared__ __align__(16) float row[];
  __shared__ typename HeldRow<kThreads, Crew>::Told told;
  const int length = pages[blockIdx.x];
  const long long begin = static_cast<long long>(blockIdx.x) * stride;
  for (int i = threadIdx.x; i < stride; i += blockDim.x) row[i] = i < length ? scores[begin + i] : SLUICE_INF;
  __syncthreads();
  if (threadIdx.x < blockDim.x - kThreads) return;
  HeldRow<kThreads, Crew> held(row, length, what[blockIdx.x], told);
  const int count = held.select([&](int rank, int page) { lists[begin + rank] = page; });
  if (threadIdx.x == blockDim.x - 1) counts[blockIdx.x] = count;
}
extern "C" __global__ void select_by_half(const float* scores, const int* pages, const Selecting* what, int stride, int* lists,
                                          int* counts) {
  select<kChooserThreads, Choosers>(scores, pages, what, stride, lists, counts);
}
extern "C" __global__ void select_by_all(const float* scores, const int* pages, const Selecting* what, int stride, int* lists,
                                         int* counts) {
  select<kAttenderThreads, WholeBlock>(scores, pages, what, stride, lists, counts);
}
}
)";

class CudaHeldRow : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!runs()) return;
    library_.emplace(KernelLibrary::compile(codegen::shared_text(false) + codegen::kRowText + codegen::kTypesText +
                                                codegen::kAttendingText + codegen::kClusterAttendingText + kKernel,
                                            nullptr));
  }

  /// Rows of one length and kind with what is selected of them at random.
  void expect_exact(const std::string& kind, int length) {
    constexpr int kRows = 64;
    const int stride = (length + 31) / 32 * 32 + 32;
    std::uniform_int_distribution<int> any(0, length);
    const int typical = 1 + any(random_) / 4;
    const std::vector<float> scores = testing::make_scores(kind, kRows, length, stride, typical, random_);
    std::vector<Selecting> what;
    for (int row = 0; row < kRows; ++row) {
      Selecting one{};
      one.begin = std::min(length, static_cast<int>(random_() % 4));
      one.end = std::max(one.begin, length - static_cast<int>(random_() % 4));
      one.first = one.begin + static_cast<int>(random_() % 3 == 0 ? random_() % 6 : 0);
      one.last = length - one.end + static_cast<int>(random_() % 3 == 0 ? random_() % 6 : 0);
      const int all = one.end - one.begin;
      const int budgets[] = {0, 1, all, all - 1, typical, typical, any(random_)};
      one.k = std::clamp(budgets[random_() % 7], 0, all);
      what.push_back(one);
    }
    const std::vector<int32_t> lengths(kRows, length);
    std::vector<int32_t> lists(static_cast<size_t>(kRows) * stride, -1);
    std::vector<int32_t> counts(kRows, -1);
    DeviceMemory scores_there(scores.size() * sizeof(float)), lengths_there(kRows * sizeof(int32_t));
    DeviceMemory what_there(kRows * sizeof(Selecting)), lists_there(lists.size() * sizeof(int32_t));
    DeviceMemory counts_there(kRows * sizeof(int32_t));
    scores_there.upload(scores.data(), scores_there.bytes());
    lengths_there.upload(lengths.data(), lengths_there.bytes());
    what_there.upload(what.data(), what_there.bytes());
    lists_there.upload(lists.data(), lists_there.bytes());
    void* const pointers[] = {scores_there.data(), lengths_there.data(), what_there.data(), lists_there.data(),
                              counts_there.data()};
    int stride_there = stride;
    void* parameters[] = {const_cast<void**>(&pointers[0]), const_cast<void**>(&pointers[1]),
                          const_cast<void**>(&pointers[2]), &stride_there,
                          const_cast<void**>(&pointers[3]), const_cast<void**>(&pointers[4])};
    cudaLaunchConfig_t config{};
    config.gridDim = kRows;
    config.blockDim = kThreads;
    config.dynamicSmemBytes = static_cast<size_t>(stride) * sizeof(float);
    for (const char* const name : {"select_by_half", "select_by_all"}) {
      const void* const kernel = reinterpret_cast<const void*>(library_->kernel(name));
      SLUICE_CHECK_CUDA(cudaLaunchKernelExC(&config, kernel, parameters));
      lists_there.download(lists.data(), lists_there.bytes());
      counts_there.download(counts.data(), counts_there.bytes());
      for (int row = 0; row < kRows; ++row) {
        const Selecting& one = what[static_cast<size_t>(row)];
        std::set<int32_t> wanted;
        for (int page = 0; page < std::min(one.first, length); ++page) wanted.insert(page);
        for (int page = std::max(0, length - one.last); page < length; ++page) wanted.insert(page);
        const float* const begin = scores.data() + static_cast<int64_t>(row) * stride + one.begin;
        for (const int32_t place : testing::best_of(begin, one.end - one.begin, one.k)) wanted.insert(one.begin + place);
        const auto list = lists.begin() + static_cast<int64_t>(row) * stride;
        SCOPED_TRACE(std::string(name) + ", " + kind + ", " + std::to_string(length) + ", k " + std::to_string(one.k));
        ASSERT_EQ(counts[static_cast<size_t>(row)], static_cast<int>(wanted.size()));
        ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), list));
      }
    }
  }

  std::optional<KernelLibrary> library_;
  std::mt19937_64 random_{7};
};

TEST_F(CudaHeldRow, SelectsExactly) {
  for (const std::string& kind : testing::kScoreKinds) {
    for (const int length : {0, 1, 3, 4, 127, 128, 129, 511, 512, 513, 1000, 2047, 4095, 4096}) expect_exact(kind, length);
  }
}

}  // namespace
}  // namespace sluice::cuda
