#include "host/weights/model_digest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "scripting/base/error.h"
#include "tests/support/small_gguf.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

const std::string kMini = SLUICE_SOURCE_DIR "/host/models/mini";

std::string copy_of_mini(const testing::TemporaryDirectory& directory, const std::string& name) {
  const std::string path = directory.file(name);
  std::filesystem::create_directories(path);
  for (const char* file : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocabulary.json",
                           "model.safetensors"}) {
    std::filesystem::copy(kMini + "/" + file, path + "/" + file);
  }
  return path;
}

void change_byte(const std::string& path, std::streamoff from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(-from_end, std::ios::end);
  file.put(byte);
}

TEST(ModelDigest, IsTheModelsWhateverItsDirectoryIsCalled) {
  const testing::TemporaryDirectory directory;
  EXPECT_EQ(model_digest(copy_of_mini(directory, "a")), model_digest(kMini));
  EXPECT_EQ(model_digest(kMini).size(), 32U);
}

TEST(ModelDigest, IsNoneWhereAFileCannotBeRead) {
  const testing::TemporaryDirectory directory;
  const std::string model = copy_of_mini(directory, "a");
  std::filesystem::create_directory(model + "/chat_template.jinja");
  EXPECT_THROW(model_digest(model), InputError) << "it would be another model's";
}

TEST(ModelDigest, TellsModelsApartByWeightsConfigurationAndTokenizer) {
  const testing::TemporaryDirectory directory;
  const std::string weights = copy_of_mini(directory, "weights");
  for (const std::streamoff from_end : {1, 2'222, 100'001, 5'000'001}) {
    change_byte(weights + "/model.safetensors", from_end);
    EXPECT_NE(model_digest(weights), model_digest(kMini)) << from_end;
    change_byte(weights + "/model.safetensors", from_end);
    EXPECT_EQ(model_digest(weights), model_digest(kMini));
  }
  for (const std::string file : {"config.json", "tokenizer.json", "generation_config.json", "vocabulary.json"}) {
    const std::string other = copy_of_mini(directory, file);
    std::ofstream(other + "/" + file, std::ios::app) << "\n";
    EXPECT_NE(model_digest(other), model_digest(kMini)) << file;
  }
}

TEST(ModelDigest, TellsGgufFilesApartByMetadataAndWeights) {
  const testing::TemporaryDirectory directory;
  testing::small_gguf().write(directory.file("a.gguf"));
  const std::string digest = model_digest(directory.file("a.gguf"));
  testing::small_gguf().write(directory.file("b.gguf"));
  EXPECT_EQ(model_digest(directory.file("b.gguf")), digest);
  change_byte(directory.file("b.gguf"), 100);
  EXPECT_NE(model_digest(directory.file("b.gguf")), digest);
  testing::GgufWriter other = testing::small_gguf();
  other.put("tokenizer.ggml.pre", "smollm");
  other.write(directory.file("b.gguf"));
  EXPECT_NE(model_digest(directory.file("b.gguf")), digest);
  testing::GgufWriter turned = testing::small_gguf();
  turned.add("rope_freqs.weight", {8}, std::vector<float>(8, 1));
  turned.write(directory.file("a.gguf"));
  turned.drop_tensor("rope_freqs.weight");
  turned.add("rope_freqs.weight", {8}, std::vector<float>(8, 2));
  turned.write(directory.file("b.gguf"));
  EXPECT_NE(model_digest(directory.file("a.gguf")), model_digest(directory.file("b.gguf")));
}

TEST(ModelDigest, RefusesADirectoryWithoutWeights) {
  const testing::TemporaryDirectory directory;
  EXPECT_THROW(model_digest(directory.file("none")), InputError);
}

}  // namespace
}  // namespace sluice
