#include "host/weights/gguf.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>

#include "host/weights/gguf_tensors.h"
#include "scripting/base/error.h"
#include "tests/host/transformer/tiny_model.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using testing::GgufWriter;
using testing::little_endian;

Gguf parse(const std::string& image) { return parse_gguf(std::as_bytes(std::span(image)), "model.gguf"); }

std::string message_of(const std::string& image) {
  try {
    parse(image);
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("model.gguf: ", 0), 0U) << error.what();
    EXPECT_LT(std::string(error.what()).size(), 500U);
    return error.what();
  }
  return "accepted";
}

void expect_refused(const std::string& image, const std::string& why) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = message_of(image);
  EXPECT_NE(message.find(why), std::string::npos) << message;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1)) << message;
}

/// Values of every type, and two tensors.
GgufWriter small_file() {
  GgufWriter writer;
  writer.put("general.architecture", "llama");
  writer.put("small.count", uint32_t{7});
  writer.put("small.share", 0.5F);
  writer.put("small.yes", true);
  writer.put("small.words", std::vector<std::string>{"a", "", "ü"});
  writer.put("small.kinds", std::vector<int32_t>{1, -3});
  writer.put_bytes("small.long", 11, little_endian(int64_t{-5}));
  writer.put_bytes("small.double", 12, little_endian(0.25));
  writer.put_bytes(
      "small.nested", 9,
      little_endian(uint32_t{9}) + little_endian(uint64_t{1}) + little_endian(uint32_t{0}) + little_endian(uint64_t{2}) + "xy");
  writer.add("matrix", {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  writer.add("blocks", {2, 32}, 8, std::string(68, '\2'));
  return writer;
}

TEST(Gguf, ReadsMetadataAndTensorsOfBothVersions) {
  for (const uint32_t version : {2U, 3U}) {
    GgufWriter writer = small_file();
    writer.version = version;
    const std::string image = writer.image();
    const Gguf gguf = parse(image);
    EXPECT_EQ(gguf.metadata.text("general.architecture"), "llama");
    EXPECT_EQ(gguf.metadata.integer("small.count", 0, 10), 7);
    EXPECT_EQ(gguf.metadata.integer("small.long", -10, 10), -5);
    EXPECT_EQ(gguf.metadata.number("small.share", 0, 1), 0.5);
    EXPECT_EQ(gguf.metadata.number("small.double", 0, 1), 0.25);
    EXPECT_EQ(gguf.metadata.find_boolean("small.yes"), true);
    EXPECT_EQ(gguf.metadata.texts("small.words", 3), (std::vector<std::string_view>{"a", "", "ü"}));
    EXPECT_EQ(gguf.metadata.integers("small.kinds", 2), (std::vector<int64_t>{1, -3}));
    EXPECT_EQ(gguf.metadata.find_text("other"), std::nullopt);
    ASSERT_EQ(gguf.tensors.size(), 2U);
    EXPECT_EQ(gguf.at("matrix").shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(gguf.at("matrix").to_f32(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(gguf.at("blocks").type, StoredType::kQ80);
    EXPECT_EQ(gguf.at("blocks").elements(), 64);
    EXPECT_LT(gguf.header.size(), image.size());
    EXPECT_THROW(gguf.at("other"), InputError);
  }
}

TEST(Gguf, TakesTensorsInAnyOrderAndAnyAlignment) {
  GgufWriter writer;
  writer.alignment = 64;
  writer.put("general.alignment", uint32_t{64});
  writer.add("a", {2}, std::vector<float>{1, 2});
  writer.add("b", {1}, std::vector<float>{3});
  writer.claim_offset("a", 64);
  writer.claim_offset("b", 0);
  const std::string image = writer.image();
  const Gguf gguf = parse(image);
  EXPECT_EQ(gguf.at("b").to_f32(), std::vector<float>{1});
  EXPECT_EQ(gguf.at("a").to_f32(), (std::vector<float>{3, 0}));
}

TEST(Gguf, RefusesEveryTruncation) {
  const std::string whole = small_file().image();
  const size_t used = whole.size() - 28;  // the last tensor takes 68 of 96 bytes
  for (size_t size = 0; size < used; ++size) EXPECT_NE(message_of(whole.substr(0, size)), "accepted") << size << " bytes";
  EXPECT_EQ(message_of(whole.substr(0, used)), "accepted");
}

TEST(Gguf, RefusesOtherFormatsAndVersions) {
  expect_refused("", "does not begin with \"GGUF\"");
  expect_refused("PK\3\4 something else", "does not begin with \"GGUF\"");
  GgufWriter writer = small_file();
  for (const uint32_t version : {0U, 1U, 4U}) {
    writer.version = version;
    expect_refused(writer.image(), "version " + std::to_string(version) + " of GGUF; 2 and 3 are read");
  }
  writer.version = 3U << 24;
  expect_refused(writer.image(), "big-endian");
}

TEST(Gguf, RefusesAbsurdCounts) {
  for (const uint64_t count : {uint64_t{1} << 60, ~uint64_t{0}, uint64_t{1000}}) {
    GgufWriter writer = small_file();
    writer.claimed_tensors = count;
    expect_refused(writer.image(), "claims " + std::to_string(count) + " tensors");
    writer = small_file();
    writer.claimed_keys = count;
    expect_refused(writer.image(), "claims " + std::to_string(count) + " keys of metadata");
    writer = small_file();
    writer.put_bytes("long", 8, little_endian(count));
    expect_refused(writer.image(), std::to_string(count) + " bytes are wanted");
    for (const uint32_t type : {0U, 8U, 9U, 12U}) {
      writer.put_bytes("long", 9, little_endian(type) + little_endian(count));
      expect_refused(writer.image(), "claims " + std::to_string(count) + " elements of an array");
    }
  }
  std::string many = "GGUF" + little_endian(uint32_t{3}) + little_endian(uint64_t{70'000}) + little_endian(uint64_t{0});
  many.resize(many.size() + size_t{70'000} * 32);
  expect_refused(many, "claims 70000 tensors; at most 65536 are read");
}

TEST(Gguf, RefusesMetadataThatLies) {
  GgufWriter writer = small_file();
  writer.put_bytes("unknown", 13, "");
  expect_refused(writer.image(), "unknown type 13 of metadata");
  std::string deep;
  for (int i = 0; i < 5; ++i) deep += little_endian(uint32_t{9}) + little_endian(uint64_t{1});
  writer = small_file();
  writer.put_bytes("deep", 9, deep + little_endian(uint32_t{0}) + little_endian(uint64_t{0}));
  expect_refused(writer.image(), "nested more than 4 levels deep");
  const std::string key = little_endian(uint64_t{1}) + "k" + little_endian(uint32_t{0}) + "v";
  const std::string head = "GGUF" + little_endian(uint32_t{3}) + little_endian(uint64_t{0}) + little_endian(uint64_t{2});
  expect_refused(head + key + key, "the key \"k\" appears twice");
  writer = small_file();
  writer.put("general.alignment", uint32_t{0});
  expect_refused(writer.image(), "general.alignment is 0; an integer from 8 to 1048576 is wanted");
  writer.put("general.alignment", uint32_t{12});
  expect_refused(writer.image(), "general.alignment is 12; a multiple of 8 is wanted");
}

TEST(Gguf, RefusesTensorsThatLie) {
  const auto with = [](const std::vector<uint64_t>& shape, uint32_t type) {
    GgufWriter writer = small_file();
    writer.add("t", shape, type, std::string(1024, 'x'));
    return writer.image();
  };
  expect_refused(with({}, 0), "tensor \"t\": has 0 dimensions");
  expect_refused(with({1, 1, 1, 1, 1}, 0), "tensor \"t\": has 5 dimensions");
  expect_refused(with({4, 0}, 0), "tensor \"t\": has no elements");
  expect_refused(with({uint64_t{1} << 40, uint64_t{1} << 40}, 0), "tensor \"t\": its shape overflows");
  expect_refused(with({uint64_t{1} << 55}, 0), "but the file holds");
  expect_refused(with({2, 48}, 2), "rows of 48 elements are no whole blocks of Q4_0, which have 32");
  expect_refused(with({256}, 16), "tensor \"t\" is of type 16 (IQ2_XXS), which is not read");
  expect_refused(with({256}, 4), "tensor \"t\" is of type 4, which is not read");
  expect_refused(with({256}, 1'000'000), "tensor \"t\" is of type 1000000, which is not read");
  GgufWriter writer = small_file();
  writer.claim_offset("blocks", 33);
  expect_refused(writer.image(), "tensor \"blocks\": begins at byte 33, which is no multiple of 32");
  writer.claim_offset("blocks", ~uint64_t{31});
  expect_refused(writer.image(), "but the file holds");
  writer.claim_offset("blocks", 0);
  expect_refused(writer.image(), "overlaps tensor");
  writer = small_file();
  writer.add("matrix", {1}, std::vector<float>{1});
  expect_refused(writer.image(), "tensor \"matrix\": appears twice");
  writer = small_file();
  writer.add(std::string(100'000, 'x'), {1}, 99, "xxxx");
  expect_refused(writer.image(), "xxx");
}

TEST(Gguf, RefusesPartsAndOtherThings) {
  GgufWriter writer = small_file();
  writer.put_bytes("split.count", 2, little_endian(uint16_t{3}));
  expect_refused(writer.image(), "split.count is 3; models in one file are read");
  writer = small_file();
  writer.put("general.type", "adapter");
  expect_refused(writer.image(), "general.type is \"adapter\"; \"model\" is wanted");
}

TEST(Gguf, NamesKeysOfTheWrongType) {
  const std::string image = small_file().image();
  const GgufMetadata metadata = parse(image).metadata;
  const auto expect_thrown = [](const auto& call, const std::string& why) {
    try {
      call();
      ADD_FAILURE() << why;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  expect_thrown([&] { metadata.integer("small.count", 0, 6); }, "small.count is 7; an integer from 0 to 6 is wanted");
  expect_thrown([&] { metadata.integer("small.words", 0, 6); }, "small.words is an array of 3; an integer");
  expect_thrown([&] { metadata.integer("nowhere", 0, 6); }, "nowhere is missing from the metadata");
  expect_thrown([&] { metadata.number("small.yes", 0, 6); }, "small.yes is true; a number");
  expect_thrown([&] { metadata.text("small.share"); }, "small.share is 0.5; a text");
  expect_thrown([&] { metadata.texts("small.kinds", 2); }, "small.kinds is an array of 2; an array of texts is wanted");
  expect_thrown([&] { metadata.integers("small.words", 9); }, "an array of integers is wanted");
  expect_thrown([&] { metadata.integers("small.count", 9); }, "an array is wanted");
  expect_thrown([&] { metadata.texts("small.words", 2); }, "small.words is an array of 3; at most 2 are wanted");
  expect_thrown([&] { metadata.find_boolean("small.count"); }, "true or false is wanted");
}

TEST(Gguf, RandomDamageNeverCrashes) {
  const std::string whole = small_file().image();
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = whole;
    for (int change = 0; change < 1 + round % 4; ++change) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      const Gguf gguf = parse(damaged);
      for (const auto& [name, tensor] : gguf.tensors) tensor.to_f32();
      huggingface_tensors(gguf);
      ++accepted;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(accepted, 0);  // damage to the data or to a name
}

TEST(Gguf, IsKnownByItsSuffixOrItsFirstBytes) {
  const testing::TemporaryDirectory directory;
  testing::write_text(directory.file("without_suffix"), "GGUF and more");
  testing::write_text(directory.file("damaged.gguf"), "GG");
  testing::write_text(directory.file("other"), "GGML");
  EXPECT_TRUE(is_gguf(directory.file("without_suffix")));
  EXPECT_TRUE(is_gguf(directory.file("damaged.gguf")));
  EXPECT_TRUE(is_gguf(directory.file("nowhere.gguf")));
  EXPECT_FALSE(is_gguf(directory.file("other")));
  EXPECT_FALSE(is_gguf(directory.file("nowhere")));
  std::filesystem::create_directory(directory.file("folder.gguf"));
  EXPECT_FALSE(is_gguf(directory.file("folder.gguf")));
}

}  // namespace
}  // namespace sluice
