#include "agents/generation/engine_options.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::test {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

DeviceInfo device_called(const std::string& name) {
  DeviceInfo info;
  info.name = name;
  return info;
}

TEST(EngineOptions, EnginesOnAGpuAreLarger) {
  GenerationOptions options;
  const EngineOptions cpu = options_of_engine(options, device_called("cpu"), {.free_bytes = 100 * kGiB});
  EXPECT_EQ(cpu.max_batch, 16);
  EXPECT_EQ(cpu.max_pass_tokens, 256);
  EXPECT_EQ(cpu.pool_bytes, kGiB / 4);
  const EngineOptions gpu = options_of_engine(options, device_called("cuda"), {.free_bytes = 100 * kGiB});
  EXPECT_EQ(gpu.max_batch, 64);
  EXPECT_EQ(gpu.max_pass_tokens, 2048);
  options.batch = 1000;
  options.chunk = 100;
  options.pool_bytes = 7 * kGiB;
  for (const char* device : {"cpu", "cuda"}) {
    const EngineOptions given = options_of_engine(options, device_called(device), {.free_bytes = 100 * kGiB});
    EXPECT_EQ(given.max_batch, 1000);
    EXPECT_EQ(given.max_pass_tokens, 1000);  // a row for each
    EXPECT_EQ(given.pool_bytes, 7 * kGiB);
  }
}

TEST(EngineOptions, KeysAndValuesHaveTheTypeThatIsNamed) {
  GenerationOptions options;
  EXPECT_EQ(options_of_engine(options, device_called("cpu"), {}).kv, DataType::kBF16);
  options.kv = DataType::kF32;
  EXPECT_EQ(options_of_engine(options, device_called("cpu"), {}).kv, DataType::kF32);
}

TEST(EngineOptions, EnginesShareTheMemoryOfAGpu) {
  GenerationOptions options;
  const DeviceInfo gpu = device_called("cuda");
  for (const bool shares : {false, true}) {
    for (const bool keeps_state : {false, true}) {
      options.shares_device = shares;
      EngineRoom room{.free_bytes = 120 * kGiB, .weight_bytes = 15 * kGiB, .keeps_state = keeps_state};
      for (room.engines_to_come = 4; room.engines_to_come > 0; --room.engines_to_come) {
        const EngineOptions engine = options_of_engine(options, gpu, room);
        EXPECT_GT(engine.pool_bytes, (keeps_state ? 10 : 20) * kGiB);
        room.free_bytes -= engine.pool_bytes + (keeps_state ? engine.state_bytes : 0);
      }
      EXPECT_GE(room.free_bytes, (shares ? 15 + 8 : 0) * kGiB + kGiB);  // the weights once more, and what judging takes
    }
  }
  // Of two pools that engines share the second gets what the first has left.
  options.shares_cache = true;
  EngineRoom room{.free_bytes = 120 * kGiB, .weight_bytes = 15 * kGiB, .engines_to_come = 4};
  const size_t first = options_of_engine(options, gpu, room).pool_bytes;
  EXPECT_GT(first, 40 * kGiB);
  room.free_bytes -= first;
  room.engines_to_come = 3;
  const size_t second = options_of_engine(options, gpu, room).pool_bytes;
  EXPECT_GT(second, 20 * kGiB);
  EXPECT_GE(room.free_bytes - second, (15 + 8) * kGiB + kGiB);
  // What is missing is said when the engine is made.
  for (const size_t free : {size_t{0}, kGiB, 5 * kGiB}) {
    EXPECT_EQ(options_of_engine(options, gpu, {.free_bytes = free, .weight_bytes = kGiB}).pool_bytes, kGiB / 4);
  }
}

}  // namespace
}  // namespace sluice::test
