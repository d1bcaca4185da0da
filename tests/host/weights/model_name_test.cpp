#include "host/weights/model_name.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "scripting/base/error.h"

namespace sluice {
namespace {

TEST(ModelName, IsTheFoldersHoweverThePathIsWritten) {
  for (const char* path : {"models/qwen3", "models/qwen3/", "/models/./qwen3", "models/llama/../qwen3//"}) {
    EXPECT_EQ(model_name(path), "qwen3") << path;
  }
  EXPECT_EQ(model_name("."), std::filesystem::current_path().filename());
}

TEST(ModelName, IsThatOfAFileWithoutItsSuffix) {
  EXPECT_EQ(model_name("models/SmolLM2-135M.Q4_1.gguf"), "SmolLM2-135M.Q4_1");
  EXPECT_EQ(model_name(".gguf"), ".gguf");
}

TEST(ModelName, IsTextOrRefused) {
  EXPECT_EQ(model_name("modèle/模型"), "模型");
  EXPECT_EQ(model_name("mo\xff/fine"), "fine");
  for (const char* path : {"models/mo\xff"
                           "del",
                           "mo\xe2\x80", "a/\xed\xa0\x80/"})
    EXPECT_THROW(model_name(path), InputError) << path;
}

}  // namespace
}  // namespace sluice
