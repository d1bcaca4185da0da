#include "host/weights/checkpoint.h"

#include <gtest/gtest.h>

#include <vector>

#include "host/weights/safetensors_writer.h"
#include "scripting/base/error.h"
#include "tests/host/transformer/tiny_model.h"
#include "tests/support/gguf_writer.h"

namespace sluice {
namespace {

using testing::TemporaryDirectory;
using testing::write_text;

class CheckpointTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& tensor) {
    const std::vector<float> values = {1, 2};
    SafetensorsWriter writer;
    writer.add(tensor, {2}, std::span<const float>(values));
    writer.write(directory_.file(name));
  }
  std::string message_of_open() {
    try {
      Checkpoint::open(directory_.path());
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }
  void index(const std::string& map) {
    write_text(directory_.file("model.safetensors.index.json"), "{\"weight_map\": " + map + "}");
  }

  TemporaryDirectory directory_;
};

TEST_F(CheckpointTest, JoinsTheFilesOfAnIndex) {
  write("one.safetensors", "a");
  write("two.safetensors", "b");
  index(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  const Checkpoint checkpoint = Checkpoint::open(directory_.path());
  EXPECT_NE(checkpoint.find("a"), nullptr);
  EXPECT_EQ(checkpoint.at("b").elements(), 2);
  EXPECT_THROW(checkpoint.at("c"), InputError);
}

TEST_F(CheckpointTest, RefusesIndexesThatLie) {
  write("one.safetensors", "a");
  index(R"({"b": "one.safetensors"})");
  EXPECT_NE(message_of_open().find("holds tensor \"b\", which it does not"), std::string::npos);
  index(R"({"a": "../one.safetensors"})");
  EXPECT_NE(message_of_open().find("not a plain file name"), std::string::npos);
  index(R"({"a": 3})");
  EXPECT_NE(message_of_open().find("not a file name"), std::string::npos);
  index("[]");
  EXPECT_NE(message_of_open().find("an object is wanted"), std::string::npos);
  index(R"({"a": "one.safetensors"})");
  EXPECT_EQ(message_of_open(), "accepted");
}

TEST_F(CheckpointTest, RefusesATensorInTwoFiles) {
  write("one.safetensors", "a");
  const std::vector<float> values = {1, 2};
  SafetensorsWriter both;
  both.add("a", {2}, std::span<const float>(values));
  both.add("b", {2}, std::span<const float>(values));
  both.write(directory_.file("two.safetensors"));
  index(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  EXPECT_NE(message_of_open().find("tensor \"a\" is in two files"), std::string::npos);
}

TEST_F(CheckpointTest, NamesTheFileThatIsMissing) {
  EXPECT_NE(message_of_open().find("model.safetensors"), std::string::npos);
  index(R"({"a": "gone.safetensors"})");
  EXPECT_NE(message_of_open().find("gone.safetensors"), std::string::npos);
}

/// A llama of one head of four rows, whose number is in every row.
testing::GgufWriter llama_file() {
  testing::GgufWriter writer;
  writer.put("general.architecture", "llama");
  writer.put("llama.attention.head_count", uint32_t{2});
  writer.put("llama.attention.head_count_kv", uint32_t{1});
  const std::vector<float> rows = {0, 1, 2, 3, 4, 5, 6, 7};
  writer.add("blk.0.attn_q.weight", {8, 1}, rows);
  writer.add("blk.0.attn_k.weight", {4, 1}, std::span(rows).first(4));
  writer.add("blk.0.attn_v.weight", {4, 1}, std::span(rows).first(4));
  return writer;
}

TEST_F(CheckpointTest, PutsTurnedRowsOfLlamaFilesBackInOrder) {
  llama_file().write(directory_.file("model.gguf"));
  const Checkpoint checkpoint = Checkpoint::open(directory_.file("model.gguf"));
  const auto rows = [&](const std::string& name) {
    return checkpoint.at("model.layers.0.self_attn." + name + "_proj.weight").to_f32();
  };
  EXPECT_EQ(rows("q"), (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(rows("k"), (std::vector<float>{0, 2, 1, 3}));
  EXPECT_EQ(rows("v"), (std::vector<float>{0, 1, 2, 3}));
  std::vector<float> row(2);
  checkpoint.at("model.layers.0.self_attn.q_proj.weight").read_rows(5, 2, row.data());
  EXPECT_EQ(row, (std::vector<float>{6, 5}));
}

TEST_F(CheckpointTest, LeavesRowsOfQwenFilesInOrder) {
  testing::GgufWriter writer = llama_file();
  writer.put("general.architecture", "qwen3");
  writer.write(directory_.file("model.gguf"));
  EXPECT_EQ(Checkpoint::open(directory_.file("model.gguf")).at("model.layers.0.self_attn.k_proj.weight").to_f32(),
            (std::vector<float>{0, 1, 2, 3}));
}

TEST_F(CheckpointTest, HasTensorsOfGgufFilesUnderTheirOtherNames) {
  testing::GgufWriter writer = llama_file();
  const std::vector<float> one = {1};
  for (const char* name : {"token_embd.weight", "output_norm.weight", "output.weight", "blk.12.ffn_gate.weight",
                           "blk.12.attn_q_norm.weight", "blk.12.attn_v.bias", "rope_freqs.weight", "blk.0.unheard_of.weight"}) {
    writer.add(name, {1}, one);
  }
  writer.write(directory_.file("model.gguf"));
  const Checkpoint checkpoint = Checkpoint::open(directory_.file("model.gguf"));
  EXPECT_EQ(checkpoint.tensors().size(), 10U);
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.layers.12.mlp.gate_proj.weight",
        "model.layers.12.self_attn.q_norm.weight", "model.layers.12.self_attn.v_proj.bias", "blk.0.unheard_of.weight"}) {
    ASSERT_NE(checkpoint.find(name), nullptr) << name;
    EXPECT_EQ(checkpoint.at(name).name, name);
  }
}

TEST_F(CheckpointTest, RefusesHeadsThatDoNotDivideRows) {
  testing::GgufWriter writer = llama_file();
  writer.put("llama.attention.head_count", uint32_t{3});
  writer.write(directory_.file("model.gguf"));
  EXPECT_THROW(Checkpoint::open(directory_.file("model.gguf")), InputError);
}

}  // namespace
}  // namespace sluice
