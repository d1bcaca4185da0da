#include "agents/model_name.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace sluice {
namespace {

TEST(ModelName, IsTheFoldersHoweverThePathIsWritten) {
  for (const char* path : {"models/qwen3", "models/qwen3/", "/models/./qwen3", "models/llama/../qwen3//"}) {
    EXPECT_EQ(model_name(path), "qwen3") << path;
  }
  EXPECT_EQ(model_name("."), std::filesystem::current_path().filename());
}

}  // namespace
}  // namespace sluice
