#include "host/weights/model_path.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>

#include "host/weights/default_model.h"
#include "scripting/base/error.h"
#include "tests/host/transformer/tiny_model.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

/// An empty folder to work in, a folder of data beside it, and the environment as it was when the test ends.
class ModelPath : public ::testing::Test {
 protected:
  ModelPath() : before_(fs::current_path()) {
    for (const char* name : {"XDG_DATA_HOME", "HOME", "SLUICE_MODEL"}) {
      const char* value = ::getenv(name);
      environment_.emplace_back(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
    }
    fs::create_directories(models());
    fs::create_directory(directory_.file("here"));
    fs::current_path(directory_.file("here"));
    ::setenv("XDG_DATA_HOME", directory_.file("data").c_str(), 1);
    ::setenv("HOME", directory_.file("home").c_str(), 1);
    ::unsetenv("SLUICE_MODEL");
  }
  ~ModelPath() override {
    fs::current_path(before_);
    for (const auto& [name, value] : environment_) value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }

  std::string models() const { return directory_.file("data/sluice/models"); }

  testing::TemporaryDirectory directory_;
  fs::path before_;
  std::vector<std::pair<const char*, std::optional<std::string>>> environment_;
};

TEST_F(ModelPath, FindsANameInTheUsersFolder) {
  testing::write_text(models() + "/smollm2.gguf", "GGUF");
  fs::create_directory(models() + "/other");
  EXPECT_EQ(model_path("smollm2"), models() + "/smollm2.gguf");
  EXPECT_EQ(model_path("other"), models() + "/other");
  ::setenv("SLUICE_MODEL", "smollm2", 1);
  EXPECT_EQ(model_path(""), models() + "/smollm2.gguf");
}

TEST_F(ModelPath, LooksInTheHomeWhereNoFolderOfDataIsNamed) {
  fs::create_directories(directory_.file("home/.local/share/sluice/models"));
  const std::string file = directory_.file("home/.local/share/sluice/models/smollm2.gguf");
  testing::write_text(file, "GGUF");
  for (const char* unusable : {"", "relative/data"}) {
    ::setenv("XDG_DATA_HOME", unusable, 1);
    EXPECT_EQ(model_path("smollm2"), file);
  }
}

TEST_F(ModelPath, PrefersWhatIsThere) {
  testing::write_text(models() + "/smollm2.gguf", "GGUF");
  fs::create_directory("smollm2");
  EXPECT_EQ(model_path("smollm2"), "smollm2");
  EXPECT_EQ(model_path("./smollm2.gguf"), "./smollm2.gguf") << "a path with a slash means itself";
}

TEST_F(ModelPath, SaysHowToGetTheModelThatIsMissing) {
  try {
    model_path("smollm2");
    FAIL() << "nothing is there";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()), "the model smollm2 is not in " + models());
    EXPECT_NE(error.hint().find("./dev model"), std::string::npos);
  }
  EXPECT_EQ(model_path("./elsewhere"), "./elsewhere");
  EXPECT_THROW(model_path("elsewhere"), InputError);
  ::unsetenv("HOME");
  ::unsetenv("XDG_DATA_HOME");
  EXPECT_THROW(model_path("smollm2"), InputError);
}

}  // namespace
}  // namespace sluice
