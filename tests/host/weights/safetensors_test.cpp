#include "host/weights/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>

#include "host/weights/half.h"
#include "host/weights/safetensors_writer.h"
#include "kernels/cpu/simd/bfloat16.h"
#include "scripting/base/error.h"
#include "tests/host/transformer/tiny_model.h"
#include "tests/support/stored_integers.h"

namespace sluice {
namespace {

using testing::TemporaryDirectory;
using testing::write_text;

// A file image: length, header, `data` bytes that count up.
std::string image(const std::string& header, size_t data) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  for (size_t i = 0; i < data; ++i) bytes += static_cast<char>(i);
  return bytes;
}

std::map<std::string, StoredTensor> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "weights.safetensors");
}

std::string message_of(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_refused(const std::string& bytes, const std::string& why) {
  const std::string message = message_of(bytes);
  EXPECT_NE(message.find(why), std::string::npos) << message;
  EXPECT_EQ(message.rfind("weights.safetensors: ", 0), 0U) << message;
}

constexpr const char* kTwo =
    R"({"a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}, "b": {"dtype": "U8", "shape": [3], "data_offsets": [8, 11]}})";

TEST(Safetensors, FindsTensorsByName) {
  const std::string bytes = image(kTwo, 11);
  const auto tensors = parse(bytes);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors.at("a").shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(tensors.at("a").type, StoredType::kF32);
  ASSERT_EQ(tensors.at("b").bytes.size(), 3U);
  EXPECT_EQ(static_cast<int>(tensors.at("b").bytes[0]), 8);
}

TEST(Safetensors, AcceptsMetadataScalarsAndEmptyTensors) {
  const std::string bytes = image(
      R"({"__metadata__": {"format": "pt"}, "s": {"dtype": "F64", "shape": [], "data_offsets": [0, 8]},
          "e": {"dtype": "F32", "shape": [0, 7], "data_offsets": [8, 8]}})",
      8);
  const auto tensors = parse(bytes);
  EXPECT_EQ(tensors.at("s").elements(), 1);
  EXPECT_EQ(tensors.at("e").elements(), 0);
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string whole = image(kTwo, 11);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_NE(message_of(whole.substr(0, size)), "accepted") << size << " bytes";
  EXPECT_EQ(message_of(whole), "accepted");
}

TEST(Safetensors, RefusesLyingHeaders) {
  const auto tensor = [](const std::string& fields, size_t data) { return image("{\"t\": {" + fields + "}}", data); };
  expect_refused(image(kTwo, 12), "1 bytes at the end belong to no tensor");
  expect_refused(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 9])", 9), "tensor \"t\": F32 [2] takes 8 bytes");
  expect_refused(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [8, 0])", 8), "ends (0) before it begins (8)");
  expect_refused(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [4, 12])", 12), "leaves bytes 0 to 4 without an owner");
  expect_refused(tensor(R"("dtype": "Q4", "shape": [2], "data_offsets": [0, 8])", 8), "unknown dtype \"Q4\"");
  expect_refused(tensor(R"("dtype": "F32", "shape": [-2], "data_offsets": [0, 8])", 8), "not a count");
  expect_refused(tensor(R"("dtype": "F32", "shape": [2.0], "data_offsets": [0, 8])", 8), "not a count");
  expect_refused(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [0])", 8), "needs two numbers");
  expect_refused(tensor(R"("dtype": "F32", "shape": [2])", 8), "\"data_offsets\" is missing");
  expect_refused(tensor(R"("dtype": 1, "shape": [2], "data_offsets": [0, 8])", 8), "\"dtype\" has the wrong type");
  expect_refused(tensor(R"("dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0])", 0),
                 "its shape overflows");
  expect_refused(tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [18446744073709551612, 4])", 8), "ends (4) before");
  expect_refused(
      image(
          R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}})",
          8),
      "tensor \"b\": overlaps");
  expect_refused(
      image(
          R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}, "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})",
          2),
      "tensor \"a\": appears twice");
  expect_refused(image("[]", 0), "not a JSON object");
  expect_refused(image("{", 0), "not valid JSON (line 1, column 2: ");
  expect_refused(image("{\"t\": 3}", 0), "not an object");
}

TEST(Safetensors, RefusesDeepHeaders) {
  for (const int depth : {9, 500'000}) {
    expect_refused(image("{\"t\": " + std::string(depth, '[') + std::string(depth, ']') + "}", 0),
                   "the header is nested more than 8 levels deep");
  }
}

TEST(Safetensors, KeepsMessagesShort) {
  const std::string longest(100000, 'x');
  for (const std::string& header : {"{\"" + longest + "\": 3}", "{\"" + longest,
                                    R"({"t": {"dtype": ")" + longest + R"(", "shape": [], "data_offsets": [0, 0]}})"}) {
    expect_refused(image(header, 0), "xxxxx");
    EXPECT_LT(message_of(image(header, 0)).size(), 500U);
  }
}

TEST(Safetensors, RefusesAbsurdHeaderLengths) {
  for (const uint64_t length : {uint64_t{3}, uint64_t{99'000'000}, uint64_t{100'000'001}, std::numeric_limits<uint64_t>::max()}) {
    std::string bytes = image("{}", 0);
    std::memcpy(bytes.data(), &length, 8);
    expect_refused(bytes, "header of " + std::to_string(length) + " bytes");
  }
}

TEST(Safetensors, ConvertsToFloat32) {
  const std::vector<float> values = {0, -1.5, 65504, 1e-7F, std::numeric_limits<float>::infinity()};
  const std::vector<uint16_t> halves = {0x0000, 0xbe00, 0x7bff, 0x0002, 0x7c00};  // 1e-7 rounds to 2 * 2^-24
  StoredTensor half{"h", StoredType::kF16, {5}, std::as_bytes(std::span(halves))};
  EXPECT_EQ(half.to_f32(), (std::vector<float>{0, -1.5, 65504, 0x1p-23F, std::numeric_limits<float>::infinity()}));
  std::vector<uint16_t> brains;
  for (const float value : values) brains.push_back(cpu::round_to_bf16(value));
  const std::vector<float> widened = StoredTensor{"b", StoredType::kBF16, {5}, std::as_bytes(std::span(brains))}.to_f32();
  for (size_t i = 0; i + 1 < values.size(); ++i) EXPECT_NEAR(widened[i], values[i], std::abs(values[i]) / 256);
  EXPECT_EQ(widened[4], values[4]);
  const std::vector<int64_t> integers = {1, -7, int64_t{1} << 40};
  const StoredTensor long_integers{"i", StoredType::kI64, {3}, std::as_bytes(std::span(integers))};
  EXPECT_THROW(long_integers.to_f32(), InputError);
}

TEST(Safetensors, Float16AgreesWithTheCompiler) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const int exponent = (half >> 10) & 31;
    const double sign = (half & 0x8000) != 0 ? -1 : 1;
    const double mantissa = half & 0x3ff;
    const float value = float_from_f16(half);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0);
      EXPECT_EQ(std::isinf(value), mantissa == 0);
    } else {
      EXPECT_EQ(value, sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25)));
    }
  }
}

TEST(Safetensors, ReadsWhatWasWritten) {
  const TemporaryDirectory directory;
  const std::vector<float> reals = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> integers = {-1, 7};
  SafetensorsWriter writer;
  writer.add("reals", {2, 3}, std::span<const float>(reals));
  writer.add("integers", {2}, std::span<const int32_t>(integers));
  writer.write(directory.file("x.safetensors"));
  const SafetensorsFile file = SafetensorsFile::open(directory.file("x.safetensors"));
  EXPECT_EQ(file.at("reals").to_f32(), reals);
  EXPECT_EQ(file.at("reals").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(testing::integers_of(file.at("integers")), integers);
  EXPECT_EQ(file.find("other"), nullptr);
  EXPECT_THROW(file.at("other"), InputError);
}

TEST(Safetensors, RandomDamageNeverCrashes) {
  const std::string whole = image(kTwo, 11);
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = whole;
    for (int change = 0; change < 1 + round % 4; ++change) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      size_t bytes = 0;
      for (const auto& [name, tensor] : parse(damaged)) bytes += tensor.bytes.size();
      EXPECT_EQ(bytes, 11U) << "tensors cover the data exactly";
      ++accepted;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(accepted, 0);  // damage to the data or to a name
}

}  // namespace
}  // namespace sluice
