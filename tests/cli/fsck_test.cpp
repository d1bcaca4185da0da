#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "store/folder/data_folder.h"
#include "tests/cli/program.h"

namespace sluice::test {
namespace {

TEST(Fsck, SaysWhetherAFolderIsClean) {
  const Folder folder;
  const std::string data = folder.path("data");
  { const store::DataFolder made(data); }
  const Ran clean = run_sluice({"fsck", "--data", data});
  EXPECT_EQ(clean.exit_code, 0) << clean.err;
  EXPECT_NE(clean.out.find("clean"), std::string::npos) << clean.out;

  std::filesystem::remove(data + "/lineage.git/HEAD");
  const Ran damaged = run_sluice({"fsck", "--data", data});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_NE(damaged.out.find("lineage.git"), std::string::npos) << damaged.out;
  EXPECT_NE(damaged.err.find("1 problem in"), std::string::npos) << damaged.err;
}

TEST(Fsck, LooksAtTheSeed) {
  const Folder folder;
  const std::string data = folder.path("data");
  { const store::DataFolder made(data); }
  const std::string seed = data + "/seed";
  const auto outcome = [&] { return run_sluice({"fsck", "--data", data}).exit_code; };
  for (const std::string& text : {std::string(), std::string("short"), std::string(63, 'a')}) {
    std::ofstream(seed) << text;
    EXPECT_EQ(outcome(), 1) << text;
  }
  std::ofstream(seed) << std::string(64, 'a') << '\n';
  EXPECT_EQ(outcome(), 0);
  std::filesystem::remove(seed);
  EXPECT_EQ(outcome(), 0) << "nothing was judged";
  {
    store::Store made = store::open_store_of(data, false);
    made.create_agent("ada", store::Role::kAgent, 10);
    store::Draft draft;
    draft.name = draft.script = "x";
    made.submit("ada", draft);
    made.claim("worker", 60'000'000);
  }
  { const store::DataFolder judged(data); }
  EXPECT_NE(run_sluice({"fsck", "--data", data}).out.find("the seed is missing"), std::string::npos);
  std::filesystem::create_directory(seed);
  EXPECT_EQ(outcome(), 1);
}

TEST(Fsck, RefusesWhatIsNoDataFolderOrInUse) {
  const Folder folder;
  const Ran missing = run_sluice({"fsck", "--data", folder.path("none")});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("there is no database"), std::string::npos) << missing.err;

  const store::DataFolder held(folder.path("data"));
  const Ran in_use = run_sluice({"fsck", "--data", folder.path("data")});
  EXPECT_EQ(in_use.exit_code, 1);
  EXPECT_NE(in_use.err.find("is in use by process"), std::string::npos) << in_use.err;
}

}  // namespace
}  // namespace sluice::test
