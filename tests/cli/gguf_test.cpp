// A GGUF file wherever a model is named, and the model that ./dev model fetches.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/refused.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/real_model.h"
#include "tests/support/small_gguf.h"

namespace sluice::test {
namespace {

using testing::GgufWriter;
using testing::small_gguf;

constexpr double kRefusalSeconds = kIsSanitized ? 20 : 3;  // on a busy machine

TEST(GgufFile, IsAModelWhereverOneIsNamed) {
  const Folder folder;
  const std::string model = folder.write("small.gguf", small_gguf().image());
  const std::string generated = run_sluice({"generate", "--model", model, "--prompt", "ab", "--max-tokens", "4"}).out;
  ASSERT_FALSE(generated.empty());
  const std::string plain = folder.write("without_suffix", small_gguf().image());
  EXPECT_EQ(run_sluice({"generate", "--model", plain, "--prompt", "ab", "--max-tokens", "4"}).out, generated);
  EXPECT_EQ(run_shell("SLUICE_MODEL=" + model + " \"$SLUICE\" generate --prompt ab --max-tokens 4").out, generated);
  EXPECT_EQ(run_sluice({"bench", "serve", "--model", model, "--seconds", "0", "--tokens", "32"}).exit_code, 0);
  const Ran judged = run_sluice({"eval", "full", "--model", model, "--suite", "verify"});
  EXPECT_EQ(judged.exit_code, 0) << judged.err;
  const Ran session = run_shell("echo 'q' | \"$SLUICE\" repl --model " + model + " --prompt \"ab ab ab ab ab ab ab\"");
  EXPECT_EQ(session.exit_code, 0) << session.err;
  EXPECT_NE(session.out.find("f32 [head 2, dim 16]"), std::string::npos) << session.out;
}

TEST(GgufFile, IsNeverWrittenOver) {
  const Folder folder;
  const std::string model = folder.write("small.gguf", small_gguf().image());
  expect_refused(run_sluice({"eval", "full", "--model", model, "--suite", "verify", "--json", model}), model);
  EXPECT_EQ(read_file(model), small_gguf().image());
}

TEST(GgufFile, IsRefusedWithOneMessageByEveryCommand) {
  const Folder folder;
  GgufWriter writer = small_gguf();
  writer.put("general.architecture", "gemma3");
  const std::string model = folder.write("other.gguf", writer.image());
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"eval", "full"}, {"generate", "--ids", "1"}, {"serve", "--port", "0"}, {"repl"}, {"bench", "serve"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--model", model});
    expect_refused(run_sluice(arguments), "general.architecture is \"gemma3\"; it is not supported", kRefusalSeconds);
  }
}

TEST(GgufFile, ThatIsDamagedIsRefusedAtOnce) {
  const auto expect = [](const std::string& image, const std::string& why) {
    const Folder folder;
    const std::string model = folder.write("damaged.gguf", image);
    expect_refused(run_sluice({"generate", "--model", model, "--prompt", "ab"}), why, kRefusalSeconds);
  };
  const std::string whole = small_gguf().image();
  expect("", "does not begin with \"GGUF\"");
  expect(whole.substr(0, whole.size() / 2), "the file holds");
  expect(whole.substr(0, 1000), "truncated");
  GgufWriter writer = small_gguf();
  writer.claimed_tensors = uint64_t{1} << 60;
  expect(writer.image(), "claims 1152921504606846976 tensors");
  writer = small_gguf();
  writer.put("tokenizer.ggml.pre", "unheard-of");
  expect(writer.image(), "tokenizer.ggml.pre is \"unheard-of\"");
  writer = small_gguf();
  writer.put("split.count", uint32_t{2});
  expect(writer.image(), "split.count is 2");
}

TEST(GgufFile, ThatIsNotThereIsNamed) {
  expect_refused(run_sluice({"generate", "--model", "/nowhere/model.gguf", "--prompt", "a"}),
                 "/nowhere/model.gguf: No such file");
}

TEST(SmolLm2, IsTakenFromTheUsersFolderOfModels) {
  const Folder folder;
  std::filesystem::create_directories(folder.path("data/sluice/models"));
  const std::string line =
      "XDG_DATA_HOME=" + folder.path("data") + " \"$SLUICE\" generate --model smollm2 --prompt ab --max-tokens 4";
  const Ran missing = run_shell(line);
  expect_refused(missing, "the model smollm2 is not in " + folder.path("data/sluice/models"));
  EXPECT_NE(missing.err.find("./dev model"), std::string::npos) << missing.err;
  folder.write("data/sluice/models/smollm2.gguf", small_gguf().image());
  EXPECT_EQ(run_shell(line).exit_code, 0);
}

/// Whatever `./dev model` leaves in the user's folder of models.
std::vector<std::string> kept_by_dev_model(const Folder& folder, const std::string& file, int exit_code) {
  const Ran ran = run_shell("XDG_DATA_HOME=" + folder.path("data") + " " SLUICE_SOURCE_DIR "/dev model " + file);
  EXPECT_EQ(ran.exit_code, exit_code) << ran.err;
  std::vector<std::string> kept;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("data/sluice/models"))) {
    kept.push_back(entry.path().filename());
  }
  return kept;
}

TEST(DevModel, KeepsNothingOfAnotherFile) {
  const Folder folder;
  EXPECT_TRUE(kept_by_dev_model(folder, folder.write("other.gguf", small_gguf().image()), 1).empty());
  EXPECT_TRUE(kept_by_dev_model(folder, folder.path("nowhere.gguf"), 1).empty());
}

TEST(DevModel, PutsTheModelWhereItsNameFindsIt) {
  SLUICE_SKIP_WITHOUT_REAL_MODEL();
  const Folder folder;
  const std::string file = std::filesystem::absolute(testing::real_model_file("SmolLM2-135M-Instruct.Q4_1.gguf"));
  EXPECT_EQ(kept_by_dev_model(folder, file, 0), std::vector<std::string>{"smollm2.gguf"});
  const Ran ran = run_shell("XDG_DATA_HOME=" + folder.path("data") +
                            " \"$SLUICE\" generate --model smollm2 --prompt 'The capital of France is' --max-tokens 2");
  EXPECT_EQ(ran.out, " Paris.\n");
}

}  // namespace
}  // namespace sluice::test
