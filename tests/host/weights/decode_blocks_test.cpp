// Random blocks of every type, and the numbers that PyPI's gguf 0.19.0 gives for them.
#include "host/weights/decode_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "host/weights/safetensors.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

class BlockType : public ::testing::TestWithParam<const char*> {};

TEST_P(BlockType, DecodesAsGgmlDoesToTheBit) {
  const SafetensorsFile golden = SafetensorsFile::open(SLUICE_SOURCE_DIR "/tests/goldens/gguf_blocks.safetensors");
  const std::string name = GetParam();
  const StoredTensor& blocks = golden.at(name + ".blocks");
  const StoredTensor& expected = golden.at(name + ".values");
  std::vector<float> values(static_cast<size_t>(expected.elements()));
  ASSERT_FALSE(values.empty());
  decode_blocks(find_format(name)->type, blocks.bytes, values);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    uint32_t wanted = 0;
    std::memcpy(&bits, &values[i], sizeof bits);
    std::memcpy(&wanted, expected.bytes.data() + i * sizeof wanted, sizeof wanted);
    ASSERT_EQ(bits, wanted) << name << ", value " << i << ": " << values[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Gguf, BlockType,
                         ::testing::Values("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
                                           "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"),
                         [](const auto& test) { return std::string(test.param); });

TEST(DecodeBlocks, KeepsFloat32AndRefusesWhatIsNoNumber) {
  const std::vector<float> values = {1.5F, -0.F, 3e38F};
  std::vector<float> decoded(3);
  decode_blocks(StoredType::kF32, std::as_bytes(std::span(values)), decoded);
  EXPECT_EQ(std::memcmp(values.data(), decoded.data(), sizeof(float) * 3), 0);
  EXPECT_FALSE(holds_real_numbers(StoredType::kI32));
  EXPECT_THROW(decode_blocks(StoredType::kI32, std::as_bytes(std::span(values)), decoded), InternalError);
  EXPECT_THROW(decode_blocks(StoredType::kF32, std::as_bytes(std::span(values)).first(8), decoded), InternalError);
}

}  // namespace
}  // namespace sluice
