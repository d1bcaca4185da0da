// Numbers as pages store them: every code of 8 bits, and what lies between.
#include "kernels/cpu/flow/storage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/flow/kernels.h"
#include "kernels/reference/oracle.h"

namespace sluice::cpu::flows {
namespace {

TEST(Storage, VectorsWidenEveryCode) {
  for (const DataType type : {DataType::kE4M3, DataType::kE5M2}) {
    std::vector<std::byte> codes;
    for (int i = 0; i < 256 + 7; ++i) codes.push_back(static_cast<std::byte>(i));  // a ragged end
    std::vector<float> wide(codes.size());
    widen(type, codes.data(), static_cast<int64_t>(codes.size()), wide.data());
    for (size_t i = 0; i < codes.size(); ++i) {
      const float wanted = float_from_byte(type, static_cast<uint8_t>(codes[i]));
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(wide[i])) << name_of(type) << " " << i;
      } else {
        EXPECT_EQ(wide[i], wanted) << name_of(type) << " " << i;
        EXPECT_EQ(std::signbit(wide[i]), std::signbit(wanted)) << name_of(type) << " " << i;
      }
    }
  }
}

// Every number there is, the middle of two, and its neighbours, as the reference rounds them.
TEST(Storage, NarrowsToTheNearestEven) {
  for (const DataType type : {DataType::kE4M3, DataType::kE5M2}) {
    for (int code = 0; code < byte_format(type).largest; ++code) {
      const float low = float_from_byte(type, static_cast<uint8_t>(code));
      const float high = float_from_byte(type, static_cast<uint8_t>(code + 1));
      const float middle = (low + high) / 2;
      for (const float number : {low, high, middle, std::nextafter(middle, low), std::nextafter(middle, high)}) {
        for (const float each : {number, -number}) {
          const float rounded = float_from_byte(type, byte_from_float(type, each));
          EXPECT_EQ(rounded, static_cast<float>(oracle::round_to(type, each))) << name_of(type) << " " << each;
        }
      }
    }
    const float largest = float_from_byte(type, byte_format(type).largest);
    for (const float number : {largest, 2 * largest, 3.4e38F, INFINITY}) {
      EXPECT_EQ(float_from_byte(type, byte_from_float(type, number)), largest);
      EXPECT_EQ(float_from_byte(type, byte_from_float(type, -number)), -largest);
    }
    EXPECT_TRUE(std::isnan(float_from_byte(type, byte_from_float(type, NAN))));
    for (const float tiny : {1e-30F, 1e-40F, 0.0F}) EXPECT_EQ(float_from_byte(type, byte_from_float(type, tiny)), 0);
  }
}

}  // namespace
}  // namespace sluice::cpu::flows
