#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/selection/selection.h"
#include "scripting/base/error.h"
#include "tests/cuda/gpu.h"

namespace sluice::cuda {
namespace {

constexpr int32_t kPoison = -77;

struct Leaf {
  int first = 0;
  int last = 0;
  bool listed = true;
  std::vector<std::vector<int32_t>> lists;  // [rows] ascending, less `first`
};

struct Problem {
  int kv_heads = 2;
  int page = 16;
  std::vector<int32_t> lengths;  // [sequences]
  std::vector<Leaf> leaves;
  bool keep_positions = true;

  int sequences() const { return static_cast<int>(lengths.size()); }
  int rows() const { return sequences() * kv_heads; }
  int pages(int sequence) const { return (lengths[sequence] + page - 1) / page; }
  int max_pages() const {
    int most = 0;
    for (int s = 0; s < sequences(); ++s) most = std::max(most, pages(s));
    return most;
  }
};

/// Each of `middle` pages with probability `share`.
std::vector<int32_t> random_list(int middle, double share, std::mt19937_64& random) {
  std::vector<int32_t> list;
  std::bernoulli_distribution takes(share);
  for (int i = 0; i < middle; ++i) {
    if (takes(random)) list.push_back(i);
  }
  return list;
}

Leaf random_leaf(const Problem& p, int first, int last, double share, std::mt19937_64& random) {
  Leaf leaf{first, last, share >= 0, {}};
  for (int row = 0; row < p.rows(); ++row) {
    const int middle = std::max(p.pages(row / p.kv_heads) - first - last, 0);
    leaf.lists.push_back(random_list(middle, std::max(share, 0.0), random));
  }
  return leaf;
}

std::vector<int32_t> judge(const Problem& p, int row) {
  const int pages = p.pages(row / p.kv_heads);
  std::set<int32_t> kept;
  for (const Leaf& leaf : p.leaves) {
    for (int i = 0; i < pages; ++i) {
      if (i < leaf.first || i >= pages - leaf.last) kept.insert(i);
    }
    if (leaf.first + leaf.last >= pages) continue;
    for (const int32_t entry : leaf.lists[row]) kept.insert(leaf.first + entry);
  }
  return {kept.begin(), kept.end()};
}

template <typename T>
DeviceMemory to_device(const std::vector<T>& host) {
  DeviceMemory memory(std::max<size_t>(host.size(), 1) * sizeof(T));
  memory.upload(host.data(), host.size() * sizeof(T));
  return memory;
}

template <typename T>
std::vector<T> to_host(const DeviceMemory& memory) {
  std::vector<T> host(memory.bytes() / sizeof(T));
  memory.download(host.data(), memory.bytes());
  return host;
}

/// A problem in device memory.
struct OnDevice {
  std::vector<int32_t> page_indptr, page_indices;
  std::vector<DeviceMemory> held;
  DeviceMemory positions, pages, starts, tokens, counts, totals;
  Selection selection;

  OnDevice(const Problem& p, std::mt19937_64& random) {
    Selection& s = selection;
    for (const Leaf& leaf : p.leaves) s.leaves[s.leaf_count++] = put(leaf, static_cast<int>(random() % 5));
    page_indptr = {0};
    for (int i = 0; i < p.sequences(); ++i) {
      for (int page = 0; page < p.pages(i); ++page) page_indices.push_back(static_cast<int32_t>(random() % 100'000'000));
      page_indptr.push_back(static_cast<int32_t>(page_indices.size()));
    }
    s.sequences = p.sequences();
    s.kv_heads = p.kv_heads;
    s.page = p.page;
    s.max_pages = p.max_pages() + static_cast<int>(random() % 3 * 40);
    s.stride = p.max_pages() + 3;
    s.lengths = hold(p.lengths);
    s.page_indptr = hold(page_indptr);
    s.page_indices = hold(page_indices);
    const std::vector<int32_t> empty(p.rows() * s.stride, kPoison);
    positions = to_device(empty);
    pages = to_device(empty);
    starts = to_device(std::vector<int32_t>(p.rows(), kPoison));
    tokens = to_device(std::vector<int32_t>(p.rows(), kPoison));
    counts = to_device(std::vector<int32_t>(p.rows(), kPoison));
    totals = to_device(std::vector<unsigned long long>{1000, 2000});
    s.positions = p.keep_positions ? positions.as<int32_t>() : nullptr;
    s.pages = pages.as<int32_t>();
    s.starts = starts.as<int32_t>();
    s.tokens = tokens.as<int32_t>();
    s.counts = counts.as<int32_t>();
    s.attended = totals.as<unsigned long long>();
    s.available = totals.as<unsigned long long>() + 1;
  }

  const int32_t* hold(const std::vector<int32_t>& host) {
    held.push_back(to_device(host));
    return held.back().as<int32_t>();
  }

  SelectionLeaf put(const Leaf& leaf, int slack) {
    SelectionLeaf out{.first = leaf.first, .last = leaf.last};
    if (!leaf.listed) return out;
    size_t longest = 0;
    for (const auto& list : leaf.lists) longest = std::max(longest, list.size());
    out.list_stride = static_cast<int64_t>(longest) + slack;
    std::vector<int32_t> lists, sizes;
    for (const auto& list : leaf.lists) {
      sizes.push_back(static_cast<int32_t>(list.size()));
      lists.insert(lists.end(), list.begin(), list.end());
      lists.resize(sizes.size() * out.list_stride, INT32_MAX);  // must not be taken for entries
    }
    out.list = hold(lists);
    out.counts = hold(sizes);
    return out;
  }
};

std::string differ(const std::string& what, int row, int64_t got, int64_t wanted) {
  if (got == wanted) return "";
  return "row " + std::to_string(row) + ": " + what + " is " + std::to_string(got) + ", not " + std::to_string(wanted);
}

/// Empty if right, else what is wrong.
std::string fault(const Problem& p, const OnDevice& device) {
  finish_selection(device.selection, nullptr);
  const auto positions = to_host<int32_t>(device.positions);
  const auto pages = to_host<int32_t>(device.pages);
  const auto starts = to_host<int32_t>(device.starts);
  const auto tokens = to_host<int32_t>(device.tokens);
  const auto counts = to_host<int32_t>(device.counts);
  const int64_t stride = device.selection.stride;
  unsigned long long attended = 1000;
  unsigned long long available = 2000;
  for (int row = 0; row < p.rows(); ++row) {
    const int sequence = row / p.kv_heads;
    const auto wanted = judge(p, row);
    int64_t wanted_tokens = 0;
    for (const int32_t page : wanted) wanted_tokens += std::min(p.page, p.lengths[sequence] - page * p.page);
    attended += wanted.size();
    available += p.pages(sequence);
    std::string wrong = differ("count", row, counts[row], static_cast<int64_t>(wanted.size()));
    if (wrong.empty()) wrong = differ("start", row, starts[row], row * stride);
    if (wrong.empty()) wrong = differ("tokens", row, tokens[row], wanted_tokens);
    for (int64_t i = 0; i < stride && wrong.empty(); ++i) {
      const bool used = i < static_cast<int64_t>(wanted.size());
      const int32_t page = used ? device.page_indices[device.page_indptr[sequence] + wanted[i]] : kPoison;
      wrong = differ("pages[" + std::to_string(i) + "]", row, pages[row * stride + i], page);
      if (!wrong.empty()) break;
      const int32_t position = used && p.keep_positions ? wanted[i] : kPoison;
      wrong = differ("positions[" + std::to_string(i) + "]", row, positions[row * stride + i], position);
    }
    if (!wrong.empty()) return wrong;
  }
  const auto totals = to_host<unsigned long long>(device.totals);
  if (totals[0] != attended) return "attended is " + std::to_string(totals[0]) + ", not " + std::to_string(attended);
  if (totals[1] != available) return "available is " + std::to_string(totals[1]) + ", not " + std::to_string(available);
  return "";
}

class CudaSelection : public testing::GpuTest {
 protected:
  /// Sequences of up to `pages` pages, the first of exactly so many.
  Problem make_problem(int pages, int sequences, int kv_heads = 2, int page = 16) {
    Problem p;
    p.kv_heads = kv_heads;
    p.page = page;
    for (int i = 0; i < sequences; ++i) {
      const int held = i == 0 ? pages : 1 + static_cast<int>(random_() % pages);
      p.lengths.push_back((held - 1) * page + 1 + static_cast<int>(random_() % page));
    }
    return p;
  }

  void add_leaf(Problem& p, int first, int last, double share) {
    p.leaves.push_back(random_leaf(p, first, last, share, random_));
  }

  void expect_right(const Problem& p) {
    const OnDevice device(p, random_);
    std::string leaves;
    for (const Leaf& leaf : p.leaves) {
      leaves += " (" + std::to_string(leaf.first) + ", " + std::to_string(leaf.last) + (leaf.listed ? ", list)" : ")");
    }
    EXPECT_EQ(fault(p, device), "") << p.max_pages() << " pages, " << p.sequences() << " x " << p.kv_heads << leaves;
  }

  std::mt19937_64 random_{23};
};

TEST_F(CudaSelection, AgreesWithASetOnRandomLeaves) {
  const int ends[] = {0, 1, 2, 5, 31, 32, 33, 70, 700};
  const double shares[] = {-1, 0, 0.02, 0.1, 0.5, 1};  // -1: a window
  for (const int pages : {1, 2, 3, 31, 32, 33, 64, 100, 257, 1023, 1024, 1025, 2048, 4097, 5000}) {
    for (int turn = 0; turn < 24; ++turn) {
      Problem p = make_problem(pages, 1 + turn % 4, 1 + turn % 3, turn % 2 == 0 ? 16 : 8);
      p.keep_positions = turn % 5 != 0;
      for (int leaf = 0; leaf <= turn % 4; ++leaf) {
        add_leaf(p, ends[random_() % 9], ends[random_() % 9], shares[random_() % 6]);
      }
      expect_right(p);
    }
  }
}

TEST_F(CudaSelection, TakesMorePagesThanSixteenBitsCount) {
  for (const double share : {0.001, 0.1, 1.0}) {
    Problem p = make_problem(70'000, 2);
    add_leaf(p, 1, 2, share);
    expect_right(p);
    add_leaf(p, 3, 1, share);
    add_leaf(p, 0, 40, -1);
    expect_right(p);
  }
}

TEST_F(CudaSelection, TakesAsManyPagesAsItSays) {
  Problem p = make_problem(100, 1);
  add_leaf(p, 1, 0, 0.5);
  add_leaf(p, 0, 3, 0.5);
  OnDevice device(p, random_);
  device.selection.max_pages = Selection::kMostMergedPages;
  EXPECT_EQ(fault(p, device), "");
  device.selection.max_pages += 1;
  EXPECT_THROW(finish_selection(device.selection, nullptr), InternalError);
  device.selection.leaf_count = 1;
  EXPECT_NO_THROW(finish_selection(device.selection, nullptr));
}

TEST_F(CudaSelection, CountsAPageOnceThatSeveralLeavesName) {
  Problem p = make_problem(3000, 3);
  add_leaf(p, 4, 4, 0.2);
  for (int i = 0; i < 3; ++i) p.leaves.push_back(p.leaves.front());  // the same lists
  expect_right(p);
  for (int i = 0; i < 4; ++i) add_leaf(p, i, 8 - i, 0.9);  // and nearly all pages four times more
  expect_right(p);
}

TEST_F(CudaSelection, KeepsEveryPageOfShortSequences) {
  for (const int pages : {1, 7, 8, 9}) {
    Problem p = make_problem(pages, 3);
    add_leaf(p, 4, 4, 0.5);
    expect_right(p);
    add_leaf(p, 2, 6, 0.5);
    expect_right(p);
  }
}

TEST_F(CudaSelection, KeepsNothingWhereNoLeafHasAPage) {
  Problem p = make_problem(300, 2);
  add_leaf(p, 0, 0, 0);
  expect_right(p);
  add_leaf(p, 0, 0, -1);
  expect_right(p);
  add_leaf(p, 0, 0, 0);
  expect_right(p);
  p.lengths[1] = 0;  // nor is there any to keep
  add_leaf(p, 1, 2, -1);
  for (Leaf& leaf : p.leaves) leaf.lists.assign(p.rows(), {});
  expect_right(p);
}

TEST_F(CudaSelection, FollowsLengthsThatChange) {
  Problem p = make_problem(200, 1);
  add_leaf(p, 1, 2, -1);
  OnDevice device(p, random_);
  EXPECT_EQ(fault(p, device), "");
  device.totals = to_device(std::vector<unsigned long long>{1000, 2000});
  device.selection.attended = device.totals.as<unsigned long long>();
  device.selection.available = device.totals.as<unsigned long long>() + 1;
  p.lengths[0] -= 40;
  SLUICE_CHECK_CUDA(
      cudaMemcpy(const_cast<int32_t*>(device.selection.lengths), p.lengths.data(), sizeof(int32_t), cudaMemcpyHostToDevice));
  EXPECT_EQ(fault(p, device), "");
}

TEST_F(CudaSelection, RefusesRowsThatStartBeyond32Bits) {
  Problem p = make_problem(10, 2);
  add_leaf(p, 1, 1, -1);
  OnDevice device(p, random_);
  device.selection.stride = int64_t{1} << 30;  // the last of four rows starts at 3 << 30
  EXPECT_THROW(finish_selection(device.selection, nullptr), InternalError);
  device.selection.leaf_count = 0;
  EXPECT_THROW(finish_selection(device.selection, nullptr), InternalError);
}

}  // namespace
}  // namespace sluice::cuda
