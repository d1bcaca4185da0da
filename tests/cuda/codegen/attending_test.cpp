// The kernel that scores, selects and attends, against the kernels that do so one by one (which other tests compare with the
// reference): a probe sees what was selected, so calls with one take those.
#include <gtest/gtest.h>

#include <array>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <regex>
#include <string>
#include <vector>

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/device/open_pass.h"
#include "kernels/profile/kernel_recorder.h"
#include "scripting/base/error.h"
#include "scripting/lua/trace.h"
#include "tests/cuda/device/device_fixture.h"
#include "tests/support/source_path.h"

namespace sluice {
namespace {

using testing::CudaDeviceTest;
using testing::error_of;
using testing::Held;

enum class Content {
  kDrawn,
  kWhole,     // keys and queries are small whole numbers: scores are exact, however they are added up
  kPlateaus,  // pages are of three kinds, of equal scores each
  kNan,       // every third page has a key that is no number, but for the first and the last few
};

struct AttendingCase {
  friend std::ostream& operator<<(std::ostream& out, const AttendingCase& shape) {
    return out << shape.flow << ", " << shape.instead << ", dim " << shape.dim << ", group " << shape.group << ", page "
               << shape.page << ", " << shape.sequences << " x " << shape.kv_heads << ", tokens " << shape.most_tokens;
  }

  const char* flow;
  const char* selection;  // of the flow's, whose first occurrence becomes the other
  const char* instead;
  int dim, group, page, kv_heads, most_tokens;
  DataType kv = DataType::kBF16;
  int sequences = 0;  // 0: as many as fill the GPU with blocks of several rows
  Content content = Content::kDrawn;
};

/// Sequences of different lengths that decode, a step at a time, with pages of their own.
class Sequences {
 public:
  Sequences(int count, int most_tokens, int page, int steps) : page_(page), batch_(page) {
    int pages = 0;
    for (int s = 0; s < count; ++s) {
      // Some are short, some have a page that is full or begins anew; on average they have to be about as long as the longest.
      const int tokens = s % 12 == 3 ? 1 + s % 40 : most_tokens - s * 13 % (most_tokens / 8) - steps;
      lengths_.push_back(s % 5 == 0 ? (tokens + page - 1) / page * page : tokens);
      const int most = (lengths_.back() + steps + page - 1) / page;
      for (int i = 0; i < most; ++i) pages_.push_back({});
      first_.push_back(pages);
      pages += most;
    }
    // No page lies behind the one before it.
    for (int i = 0; i < pages; ++i) pages_[static_cast<size_t>(i)] = static_cast<int32_t>(int64_t{i} * 7919 % pages);
    if (std::gcd(7919, pages) != 1) throw std::logic_error("pages meet");
  }

  std::span<const int32_t> pages(int s) const {
    return std::span(pages_).subspan(static_cast<size_t>(first_[static_cast<size_t>(s)]),
                                     static_cast<size_t>((length(s) + page_ - 1) / page_));
  }
  /// Pages of fields, which lie in another order from `first` on.
  std::vector<int32_t> field_pages(int s, int32_t first) const {
    std::vector<int32_t> fields;
    for (const int32_t page : pages(s)) fields.push_back(first + static_cast<int32_t>(int64_t{page} * 104729 % all_pages()));
    return fields;
  }
  int length(int s) const { return lengths_[static_cast<size_t>(s)]; }
  int count() const { return static_cast<int>(lengths_.size()); }
  int all_pages() const { return static_cast<int>(pages_.size()); }

  /// Each has one token more.
  PassBatch step() {
    batch_.clear();
    for (int s = 0; s < count(); ++s) {
      ++lengths_[static_cast<size_t>(s)];
      batch_.add({.first = length(s) - 1, .decoding = true, .seed = 3}, pages(s));
    }
    return batch_.batch();
  }
  /// The last step with fields in pages of their own, of group 1.
  PassBatch step_with_fields(int32_t first) {
    with_fields_.clear();
    with_fields_.set_field_group(1);
    for (int s = 0; s < count(); ++s) {
      with_fields_.add({.first = length(s) - 1, .decoding = true, .seed = 3}, pages(s));
      with_fields_.keep(1, field_pages(s, first));
    }
    return with_fields_.batch();
  }

 private:
  int page_;
  std::vector<int32_t> lengths_, pages_, first_;
  BatchBuilder batch_;
  BatchBuilder with_fields_{{page_, page_}};
};

FlowGraph traced(const AttendingCase& shape) {
  std::ifstream file(testing::source_path("scripting/flows/" + std::string(shape.flow) + ".lua"));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t at = text.find(shape.selection);
  if (at == std::string::npos) throw std::logic_error(std::string("no selection in ") + shape.flow);
  text.replace(at, std::string(shape.selection).size(), shape.instead);
  text = std::regex_replace(text, std::regex("page = [0-9]+"), "page = " + std::to_string(shape.page));
  TraceOptions options;
  options.head_dim = shape.dim;
  options.group = shape.group;
  FlowGraph graph = trace(text, "test.lua", options);
  graph.geometry.kv = shape.kv;
  return graph;
}

/// Makes bf16 numbers x whole: round(2 x).
void make_whole(std::vector<std::byte>& bytes) {
  for (size_t at = 0; at + sizeof(uint16_t) <= bytes.size(); at += sizeof(uint16_t)) {
    uint16_t narrow = 0;
    std::memcpy(&narrow, bytes.data() + at, sizeof(narrow));
    const float number = std::round(2 * std::bit_cast<float>(uint32_t{narrow} << 16));
    narrow = static_cast<uint16_t>(std::bit_cast<uint32_t>(std::isfinite(number) ? number : 0.0F) >> 16);
    std::memcpy(bytes.data() + at, &narrow, sizeof(narrow));
  }
}

/// A pool and a flow of one layer, with steps of attention over them.
struct Side {
  Side(Device& device, const Plan& plan, int kv_heads, int pages)
      : pool(device.create_pool(map_of_plan(1, kv_heads, pages, plan))),
        flow(device.compile(plan, 1, kv_heads)),
        repetition(device.create_repetition()) {
    if (!plan.has_field_pages()) return;
    field_group = 1;
    first_field_page = pool->map().first_page(1, 1);
  }

  std::unique_ptr<Pool> pool;
  int field_group = -1;
  int32_t first_field_page = 0;
  std::unique_ptr<CompiledFlow> flow;
  std::unique_ptr<Device::Repetition> repetition;
};

/// Null where kernels cannot be recorded, as under another profiler, so that nobody sees which one ran; where tests run for the
/// GPU's sake that is a failure.
std::unique_ptr<KernelRecorder> recorder() {
  try {
    auto recorder = create_kernel_recorder("cuda");
    recorder->start();
    recorder->stop();
    return recorder;
  } catch (const InputError& error) {
    if (std::getenv("SLUICE_NEEDS_GPU") != nullptr) ADD_FAILURE() << error.what();
    return nullptr;
  }
}

std::string names_of(const DeviceRecording& recording) {
  std::string names;
  for (const DeviceActivity& activity : recording.activities) names += activity.name + "\n";
  return names;
}

bool has_kernel(const std::string& names, const std::string& name) {
  return (names + "\n").find(name + "\n") != std::string::npos;
}

class CudaAttending : public CudaDeviceTest {
 protected:
  /// Steps by the kernel of that name, and by those that select and attend one after the other.
  void expect_agreement(const std::string& kernel, const AttendingCase& shape);
};

TEST_F(CudaAttending, UnevenSequencesTakeSeveralKernels) {
  const std::unique_ptr<KernelRecorder> kernels = recorder();
  if (kernels == nullptr) GTEST_SKIP() << "kernels cannot be recorded";
  const AttendingCase shape{"block_topk", "ratio = 1 / 8", "k = 5", 128, 2, 16, 4, 400};
  const Plan plan = compile(traced(shape)).plan;
  const int count = cuda::multiprocessors() * 9 / 10;
  const Side side(*device_, plan, shape.kv_heads, count);
  const Held query = hold(count, shape.kv_heads * shape.group * shape.dim, kBF16);
  const Held out = empty(count, shape.kv_heads * shape.group * shape.dim, kBF16);
  for (const bool even : {true, false}) {
    // Pages that all share: who reads what does not matter here.
    std::vector<int> lengths(static_cast<size_t>(count), 400);
    for (size_t s = 0; !even && s < lengths.size(); s += 2) lengths[s] = 100;
    BatchBuilder builder(shape.page);
    for (int s = 0; s < count; ++s) {
      const int length = lengths[static_cast<size_t>(s)];
      std::vector<int32_t> pages;
      for (int i = 0; i < pages_for(length, shape.page); ++i) pages.push_back((s + i) % count);
      builder.add({.first = length - 1, .decoding = true}, pages);
    }
    const PassBatch batch = builder.batch();
    Device::Attention call;
    call.query_heads = shape.kv_heads * shape.group;
    call.scale = 0.1F;
    call.flow = side.flow.get();
    kernels->start();
    {
      const OpenPass pass(*device_, batch, *side.pool);
      device_->attention(call, query.matrix, out.matrix);
    }
    const std::string names = names_of(kernels->stop());
    EXPECT_EQ(has_kernel(names, "attend_rows"), even) << names;
  }
}

void CudaAttending::expect_agreement(const std::string& kernel, const AttendingCase& shape) {
  constexpr int kSteps = 9;
  const std::vector<float> drawn = draw(1000003);
  const std::unique_ptr<KernelRecorder> kernels = recorder();
  SCOPED_TRACE(std::string(shape.flow) + ", dim " + std::to_string(shape.dim) + ", group " + std::to_string(shape.group) +
               ", page " + std::to_string(shape.page));
  const Plan plan = compile(traced(shape)).plan;
  // Blocks of four KV heads, or three, on nine tenths of the multiprocessors.
  const int filling = cuda::multiprocessors() * 9 / 10 * (shape.kv_heads % 4 == 0 ? 4 : 3) / shape.kv_heads;
  const int most = cuda::multiprocessors() / shape.kv_heads;  // with more, a row has no multiprocessor of its own
  const int count = shape.sequences > 0 ? std::min(shape.sequences, most) : filling;
  const int heads = shape.kv_heads * shape.group;
  const int columns = heads * shape.dim;
  const int kv_columns = shape.kv_heads * shape.dim;
  Sequences sequences(count, shape.most_tokens, shape.page, kSteps);
  Side one(*device_, plan, shape.kv_heads, sequences.all_pages());
  Side several(*device_, plan, shape.kv_heads, sequences.all_pages());
  Side apart(*device_, with_field_pages(plan), shape.kv_heads, sequences.all_pages());
  for (int s = 0; s < sequences.count(); ++s) {
    std::vector<float> keys(static_cast<size_t>(sequences.length(s)) * kv_columns);
    std::vector<float> values(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      const size_t page_numbers = static_cast<size_t>(shape.page) * kv_columns;
      const size_t page = i / page_numbers;
      size_t key = i;
      if (shape.content == Content::kPlateaus) key = i % page_numbers + page % 3 * 104729;
      keys[i] = drawn[(key + 7919 * static_cast<size_t>(s)) % drawn.size()];
      if (shape.content == Content::kWhole) keys[i] = std::round(2 * keys[i]);
      const bool is_odd = page % 3 == 1 && page > 3 && page + 4 < sequences.pages(s).size();
      if (shape.content == Content::kNan && is_odd && i % 7919 == 5) keys[i] = std::numeric_limits<float>::quiet_NaN();
      values[i] = drawn[(i + 104729 * static_cast<size_t>(s) + 50) % drawn.size()];
    }
    const int last = (sequences.length(s) - 1) % shape.page + 1;
    for (const Side* side : {&one, &several, &apart}) {
      side->pool->write(sequences.pages(s), sequences.length(s), keys.data(), values.data());
      const std::vector<int32_t> fields = sequences.field_pages(s, side->first_field_page);
      device_->refresh_pages(*side->pool, 0,
                             {.pages = sequences.pages(s),
                              .last_tokens = last,
                              .field_group = side->field_group,
                              .field_pages = side->field_group < 0 ? std::span<const int32_t>{} : fields},
                             *side->flow);
    }
  }
  // At the same places in every step, so that graphs can replay what they recorded.
  const Held qkv = empty(count, columns + 2 * kv_columns, kBF16, 8);
  const Held out = empty(count, columns, kBF16);
  const std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::vector<int32_t> counts(static_cast<size_t>(count) * shape.kv_heads);
  AttentionProbe probe;
  probe.counts = counts.data();
  for (int step = 0; step < kSteps; ++step) {
    const Held now = hold(count, columns + 2 * kv_columns, kBF16, 8);
    std::vector<std::byte> bytes(((now.matrix.rows - 1) * now.matrix.stride + now.matrix.columns) * size_of(kBF16));
    device_->read(bytes.data(), now.matrix.data, bytes.size());
    if (shape.content == Content::kWhole) make_whole(bytes);
    device_->write(qkv.matrix.data, bytes.data(), bytes.size());
    const PassBatch batch = sequences.step();
    const auto attend = [&](const Side& side, AttentionProbe* asked) {
      device_->append(0, qkv.matrix.slice_columns(columns, kv_columns),
                      qkv.matrix.slice_columns(columns + kv_columns, kv_columns));
      device_->refresh_fields(0, *side.flow);
      Device::Attention call;
      call.query_heads = heads;
      call.scale = 4 / std::sqrt(static_cast<float>(shape.dim));
      call.flow = side.flow.get();
      call.probe = asked;
      device_->attention(call, qkv.matrix.slice_columns(0, columns), out.matrix);
    };
    if (kernels != nullptr) kernels->start();
    {
      const OpenPass pass(*device_, batch, *one.pool);
      device_->repeat(one.repetition.get(), tokens, std::array<const CompiledFlow*, 1>{one.flow.get()},
                      [&] { attend(one, nullptr); });
    }
    if (kernels != nullptr) {
      const std::string names = names_of(kernels->stop());
      EXPECT_TRUE(has_kernel(names, kernel)) << "step " << step << "\n" << names;
    }
    const std::vector<float> got = fetch(out.matrix);
    if (kernels != nullptr) kernels->start();
    {
      const OpenPass pass(*device_, sequences.step_with_fields(apart.first_field_page), *apart.pool);
      device_->repeat(apart.repetition.get(), tokens, std::array<const CompiledFlow*, 1>{apart.flow.get()},
                      [&] { attend(apart, nullptr); });
    }
    if (kernels != nullptr) {
      const std::string names = names_of(kernels->stop());
      EXPECT_TRUE(has_kernel(names, kernel)) << "step " << step << "\n" << names;
    }
    EXPECT_EQ(fetch(out.matrix), got) << "step " << step << ": fields in pages of their own";
    if (kernels != nullptr) kernels->start();
    {
      const OpenPass pass(*device_, batch, *several.pool);
      attend(several, &probe);
    }
    if (kernels != nullptr) {
      const std::string names = names_of(kernels->stop());
      EXPECT_FALSE(has_kernel(names, kernel)) << "step " << step << "\n" << names;
    }
    const std::vector<float> numbers = fetch(out.matrix);
    ASSERT_LT(error_of(got, {numbers.begin(), numbers.end()}), 2e-3) << "step " << step;
    EXPECT_EQ(one.flow->counters().pages_attended, several.flow->counters().pages_attended);
    EXPECT_EQ(one.flow->counters().pages_available, several.flow->counters().pages_available);
  }
}

constexpr const char* kOfTopK = "ratio = 1 / 8";
constexpr const char* kWhole = "sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })";

constexpr AttendingCase kSeveralRows[] = {
    {"block_topk", kOfTopK, "k = 20", 128, 2, 16, 8, 900},
    {"block_topk", kOfTopK, "ratio = 1 / 8", 128, 4, 16, 8, 1100},
    {"block_topk", kOfTopK, "k = 9", 64, 16, 32, 4, 700},
    {"block_topk", kOfTopK, "k = 40", 128, 3, 8, 3, 500},
    {"block_topk", kOfTopK, "k = 1", 128, 1, 64, 4, 1000},
    {"block_topk", kOfTopK, "k = 33", 64, 9, 16, 4, 700},
    {"block_topk", kWhole, "sluice.union(sluice.topk(score, { k = 9, last = 1 }), sluice.window { first = 4, last = 3 })", 128, 2,
     16, 8, 700},
    {"quest", kOfTopK, "k = 33", 128, 2, 16, 8, 700},
    {"quest", kOfTopK, "k = 20", 128, 3, 16, 3, 600},
    {"block_topk", kOfTopK, "k = 20", 128, 2, 16, 8, 900, DataType::kE4M3},
    {"block_topk", kOfTopK, "k = 12", 128, 5, 16, 4, 500, DataType::kE5M2},
    {"block_topk", kWhole, "sluice.approx_topk(score, { k = 12, first = 1, last = 2, tolerate = 0.4 })", 128, 2, 16, 8, 900,
     DataType::kBF16, 0, Content::kWhole},
};

constexpr AttendingCase kFewRows[] = {
    // From one block a row to as many as there are.
    {"block_topk", kOfTopK, "k = 61", 128, 2, 16, 8, 9000, DataType::kBF16, 4},
    {"block_topk", kOfTopK, "ratio = 1 / 8", 128, 4, 16, 8, 20'000, DataType::kBF16, 1},
    {"block_topk", kOfTopK, "ratio = 1 / 3", 128, 4, 16, 4, 30'000, DataType::kBF16, 1},
    {"block_topk", kOfTopK, "k = 20", 128, 2, 16, 8, 4000, DataType::kBF16, 8},
    {"block_topk", kOfTopK, "k = 20", 128, 2, 16, 8, 3000, DataType::kBF16, 15},
    // Rows of which a thread has more than four pages, plateaus of scores, and scores that are no numbers.
    {"block_topk", kOfTopK, "k = 61", 128, 2, 16, 4, 50'000, DataType::kBF16, 2},
    {"block_topk", kOfTopK, "k = 900", 128, 2, 16, 4, 65'500, DataType::kBF16, 2, Content::kPlateaus},
    {"block_topk", kOfTopK, "k = 300", 128, 2, 16, 4, 30'000, DataType::kBF16, 2, Content::kPlateaus},
    {"block_topk", kOfTopK, "k = 20", 128, 2, 16, 8, 8000, DataType::kBF16, 3, Content::kPlateaus},
    {"block_topk", kOfTopK, "k = 20", 128, 2, 16, 8, 8000, DataType::kBF16, 4, Content::kNan},
    {"block_topk", kOfTopK, "k = 1000", 128, 2, 16, 8, 3000, DataType::kBF16, 3},
    // Groups, heads and pages of all kinds.
    {"block_topk", kOfTopK, "k = 9", 64, 16, 32, 4, 3000, DataType::kBF16, 7},
    {"block_topk", kOfTopK, "k = 40", 128, 3, 8, 3, 3000, DataType::kBF16, 10},
    {"block_topk", kOfTopK, "k = 1", 128, 1, 64, 4, 5000, DataType::kBF16, 5},
    {"block_topk", kOfTopK, "k = 33", 128, 16, 128, 2, 20'000, DataType::kBF16, 2},
    {"block_topk", kWhole, "sluice.union(sluice.topk(score, { k = 9, last = 1 }), sluice.window { first = 4, last = 3 })", 128, 2,
     16, 8, 2500, DataType::kBF16, 4},
    {"quest", kOfTopK, "k = 33", 128, 2, 16, 8, 9000, DataType::kBF16, 4},
    {"quest", kOfTopK, "k = 20", 128, 3, 16, 3, 600, DataType::kBF16, 30},
    {"block_topk", kWhole,
     "sluice.union(sluice.topk(score, { k = 9, first = 6, last = 1 }), sluice.window { first = 2, last = 3 })", 128, 2, 16, 8,
     2500, DataType::kBF16, 4},
    {"quest", kOfTopK, "k = 12", 64, 12, 16, 4, 3000, DataType::kBF16, 3},
    {"block_topk", kOfTopK, "k = 0", 128, 2, 16, 8, 1500, DataType::kBF16, 4},
    {"block_topk", kOfTopK, "k = 30", 128, 12, 8, 4, 2000, DataType::kE4M3, 3},
    {"block_topk", kOfTopK, "k = 20", 128, 2, 16, 8, 5000, DataType::kE4M3, 4},
    {"block_topk", kOfTopK, "k = 12", 128, 5, 16, 4, 5000, DataType::kE5M2, 2},
    {"block_topk", kWhole, "sluice.approx_topk(score, { k = 12, first = 1, last = 2, tolerate = 0.4 })", 128, 2, 16, 8, 9000,
     DataType::kBF16, 4, Content::kWhole},
};

constexpr const char* kOfCover = "{ k = 3 }";

/// Pages that are opened, and summaries of the others.
constexpr AttendingCase kCovers[] = {
    {"covers/luka", kOfCover, kOfCover, 128, 2, 16, 8, 9000, DataType::kBF16, 4},
    {"covers/luka", kOfCover, kOfCover, 128, 4, 16, 8, 20'000, DataType::kBF16, 1},
    {"covers/luka", kOfCover, "{ k = 61 }", 128, 2, 16, 4, 30'000, DataType::kBF16, 2},
    {"covers/luka", kOfCover, "{ k = 20 }", 128, 2, 16, 8, 4000, DataType::kBF16, 8},
    {"covers/luka", kOfCover, "{ ratio = 1 / 8 }", 128, 1, 16, 8, 3000, DataType::kBF16, 15},
    {"covers/luka", kOfCover, "{ ratio = 1 / 3 }", 64, 3, 16, 3, 2600, DataType::kBF16, 10},
    {"covers/luka", kOfCover, kOfCover, 64, 16, 32, 4, 30'000, DataType::kBF16, 2},
    {"covers/luka", kOfCover, "{ k = 300 }", 128, 5, 16, 2, 40'000, DataType::kBF16, 3},
    {"covers/luka", kOfCover, "{ k = 1 }", 128, 2, 16, 8, 200, DataType::kBF16, 4},
    {"covers/luka", kOfCover, "{ k = 1000 }", 128, 2, 16, 8, 9000, DataType::kBF16, 4},
    {"covers/luka", kOfCover, "{ k = 5 }", 128, 2, 16, 4, 30'000, DataType::kBF16, 2, Content::kPlateaus},
    {"covers/luka", "tail = 128", "tail = 16, mass = 'renormalise'", 128, 2, 16, 8, 9000, DataType::kBF16, 4},
    {"covers/luka", "tail = 128", "tail = 16, bias = 'none'", 128, 3, 16, 8, 5000, DataType::kBF16, 4},
    {"covers/luka", kOfCover, "{ k = 7 }", 128, 2, 16, 8, 9000, DataType::kE4M3, 4},
    {"covers/luka", kOfCover, "{ k = 7 }", 128, 5, 16, 4, 5000, DataType::kE5M2, 2},
    {"covers/luka", "page = 16", "fields = { ksum = 'e4m3', vsum = 'e4m3' }, page = 16", 128, 2, 16, 8, 9000, DataType::kBF16, 4},
    {"covers/luka", "page = 16", "fields = { ksum = 'e5m2', vsum = 'e5m2' }, page = 16", 64, 4, 32, 4, 12'000, DataType::kBF16,
     4},
    {"covers/luka", "page = 16", "fields = { vsum = 'e5m2' }, page = 16", 128, 4, 16, 4, 20'000, DataType::kE4M3, 2},
    // Short rows keep all of their pages: nothing is selected, and some blocks have nothing.
    {"covers/luka", kOfCover, "{ k = 3, last = 40 }", 128, 2, 16, 4, 9000, DataType::kBF16, 6},
    {"covers/luka", kOfCover, "{ k = 12, last = 40 }", 64, 4, 16, 2, 3000, DataType::kBF16, 5},
    {"covers/luka", kOfCover, "{ k = 12 }", 64, 4, 16, 2, 640, DataType::kBF16, 4},
    // More blocks than clusters that are alone find places for: some share a multiprocessor.
    {"covers/luka", kOfCover, kOfCover, 64, 4, 16, 2, 9000, DataType::kBF16, 16},
    {"covers/luka", kOfCover, "{ k = 8 }", 64, 8, 16, 4, 16'000, DataType::kBF16, 8},
    {"covers/luka_near", kOfCover, kOfCover, 64, 2, 16, 2, 4000, DataType::kBF16, 16},
    // Blocks of so many pages that their summaries come in turn.
    {"covers/luka", kOfCover, "{ k = 20 }", 128, 2, 16, 8, 16'000, DataType::kBF16, 12},
    {"covers/luka", kOfCover, kOfCover, 128, 4, 16, 8, 16'000, DataType::kE4M3, 10},
    {"covers/luka", "tail = 128", "tail = 16, mass = 'renormalise'", 64, 4, 16, 4, 30'000, DataType::kBF16, 20},
    {"covers/luka_near", kOfCover, kOfCover, 128, 2, 16, 8, 9000, DataType::kBF16, 4},
    {"covers/luka_near", kOfCover, "{ ratio = 1 / 8 }", 128, 4, 16, 8, 5000, DataType::kBF16, 3},
    {"covers/luka_near", kOfCover, "{ k = 12 }", 128, 6, 16, 4, 3000, DataType::kE4M3, 5},
};

class CudaBlocksOfSeveralRows : public CudaAttending, public ::testing::WithParamInterface<AttendingCase> {};
TEST_P(CudaBlocksOfSeveralRows, AgreeWithSeveralKernels) { expect_agreement("attend_rows", GetParam()); }
INSTANTIATE_TEST_SUITE_P(All, CudaBlocksOfSeveralRows, ::testing::ValuesIn(kSeveralRows));

class CudaClusterForEachRow : public CudaAttending, public ::testing::WithParamInterface<AttendingCase> {};
TEST_P(CudaClusterForEachRow, AgreesWithSeveralKernels) { expect_agreement("attend_in_cluster", GetParam()); }
INSTANTIATE_TEST_SUITE_P(All, CudaClusterForEachRow, ::testing::ValuesIn(kFewRows));

class CudaClusterUnderCover : public CudaAttending, public ::testing::WithParamInterface<AttendingCase> {};
TEST_P(CudaClusterUnderCover, AgreesWithSeveralKernels) { expect_agreement("cover_in_cluster", GetParam()); }
INSTANTIATE_TEST_SUITE_P(All, CudaClusterUnderCover, ::testing::ValuesIn(kCovers));

}  // namespace
}  // namespace sluice
