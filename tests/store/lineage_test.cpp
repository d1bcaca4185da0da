// The repository as the real `git` sees it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "store/error.h"
#include "store/lineage/lineage.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

namespace fs = std::filesystem;

class LineageTest : public ::testing::Test {
 protected:
  SubmissionId submit(const std::string& agent, const std::string& name, std::vector<SubmissionId> parents = {}) {
    test_.clock.advance(1000000);
    return test_.store.submit(agent, draft(name, std::move(parents))).id;
  }
  void judge(double accuracy = 0.5) {
    test_.clock.advance(1000000);
    test_.store.complete(test_.store.claim("w", 1000).value(), passed(accuracy));
  }
  SubmissionId judged(const std::string& agent, const std::string& name, std::vector<SubmissionId> parents = {}) {
    const SubmissionId id = submit(agent, name, std::move(parents));
    judge();
    return id;
  }
  /// A diamond of two agents: 1, 2 and 3 from 1, 4 from 3 and 2.
  void make_family() {
    test_.store.create_agent("bob", Role::kAgent, 100);
    judged("ada", "root");
    judged("ada", "left", {1});
    judged("bob", "right", {1});
    judged("bob", "merged", {3, 2});
  }
  std::string git(const std::string& arguments) {
    return output_of("git -c user.name=test -c user.email=test@test --git-dir=" + repository_ + " " + arguments);
  }
  std::string all_refs() { return git("for-each-ref --format='%(refname) %(objectname)'"); }
  Lineage open() { return {repository_, test_.folder.file("sluice.db")}; }

  TestStore test_;
  std::string repository_ = test_.folder.file("lineage.git");
};

TEST_F(LineageTest, GitShowsTheFamily) {
  make_family();
  Lineage lineage = open();
  EXPECT_EQ(lineage.sync(), 8U);  // 4 commits and their notes
  EXPECT_EQ(lineage.check(), std::vector<std::string>());
  git("fsck --strict");
  EXPECT_EQ(git("log --format=%s,%an,%ct refs/heads/agents/bob"),
            "merged,bob,1700000007\nright,bob,1700000005\nleft,ada,1700000003\nroot,ada,1700000001");
  EXPECT_EQ(git("log -1 --format=%P refs/submissions/4"), *lineage.commit_of(3) + " " + *lineage.commit_of(2));
  EXPECT_NE(git("log --graph --oneline --all").find("|\\"), std::string::npos);
  EXPECT_EQ(git("show refs/submissions/1:flow.lua") + "\n", test_.store.get(1)->script);
  const std::string difference = git("diff refs/submissions/1 refs/submissions/2 -- flow.lua");
  EXPECT_NE(difference.find("-- root\n+-- left"), std::string::npos) << difference;
  EXPECT_NE(git("notes --ref=metrics show refs/submissions/2").find("\"accuracy\""), std::string::npos);
  EXPECT_NE(git("log -1 --notes=metrics refs/submissions/2").find("\"speedup\""), std::string::npos);
}

TEST_F(LineageTest, RebuildingGivesTheSameHashes) {
  make_family();
  Lineage lineage = open();
  lineage.sync();
  test_.store.judge_again(2);
  judge(0.9);
  for (int i = 0; i < 100; ++i) judged("ada", fmt::format("more {}", i), {1 + i});  // more than one batch
  test_.store.cancel(submit("bob", "cancelled"));
  submit("bob", "waiting");
  lineage.sync();
  const std::string before = all_refs();
  EXPECT_EQ(lineage.check(), std::vector<std::string>());
  EXPECT_EQ(lineage.sync(), 0U);
  lineage.rebuild();
  EXPECT_EQ(all_refs(), before);
  EXPECT_EQ(lineage.check(), std::vector<std::string>());
  EXPECT_NE(git("notes --ref=metrics show refs/submissions/2").find("0.9"), std::string::npos);
  git("fsck --strict");
}

TEST_F(LineageTest, HashesDoNotDependOnTheOrderOfWork) {
  make_family();
  open().sync();
  const std::string all_at_once = all_refs();
  TestStore other;
  const std::string repository = other.folder.file("lineage.git");
  other.store.create_agent("bob", Role::kAgent, 100);
  Lineage lineage(repository, other.folder.file("sluice.db"));
  const std::vector<std::pair<std::string, Draft>> drafts = {
      {"ada", draft("root")}, {"ada", draft("left", {1})}, {"bob", draft("right", {1})}, {"bob", draft("merged", {3, 2})}};
  for (const auto& [agent, given] : drafts) {
    other.clock.advance(1000000);
    other.store.submit(agent, given);
    other.clock.advance(1000000);
    other.store.complete(other.store.claim("w", 1000).value(), passed());
    lineage.sync();
  }
  EXPECT_EQ(output_of("git --git-dir=" + repository + " for-each-ref --format='%(refname) %(objectname)'"), all_at_once);
}

TEST_F(LineageTest, AFinishedChildBringsItsUnfinishedParents) {
  submit("ada", "parent");
  submit("ada", "unrelated");
  Draft urgent = draft("child", {1});
  urgent.priority = 1;
  test_.store.submit("ada", urgent);
  judge();
  Lineage lineage = open();
  lineage.sync();
  EXPECT_TRUE(lineage.commit_of(1));
  EXPECT_FALSE(lineage.commit_of(2));
  EXPECT_EQ(git("rev-parse refs/submissions/3^"), *lineage.commit_of(1));
  EXPECT_EQ(lineage.check(), std::vector<std::string>());
  judge();
  judge();
  EXPECT_EQ(lineage.sync(), 3U);  // the second commit, and two notes
  EXPECT_EQ(lineage.check(), std::vector<std::string>());
}

TEST_F(LineageTest, LeftoversOfAKilledProcessDoNotStopIt) {
  make_family();
  open().sync();
  std::ofstream(repository_ + "/refs/submissions/5.lock") << "half";
  std::ofstream(repository_ + "/refs/notes/metrics.lock") << "";
  judged("ada", "next");
  Lineage lineage = open();
  EXPECT_EQ(kind_thrown_by([&] { lineage.sync(); }), ErrorKind::kUnwritable) << "they may be of one that runs";
  remove_leftovers(repository_);
  lineage.sync();
  EXPECT_EQ(lineage.check(), std::vector<std::string>());
}

TEST_F(LineageTest, WhatIsYetToBeWrittenIsNoDamage) {
  make_family();
  Lineage lineage = open();
  lineage.sync();
  test_.store.judge_again(2);
  judge(0.9);
  judged("ada", "next");
  EXPECT_EQ(lineage.damage(), std::vector<std::string>());
  EXPECT_EQ(lineage.check().size(), 2U);
}

TEST_F(LineageTest, TimesBefore1970AreWhatGitCanRead) {
  test_.clock.advance(-2'000'000'000'000'000);  // to 1960
  make_family();
  Lineage lineage = open();
  lineage.sync();
  EXPECT_EQ(lineage.check(), std::vector<std::string>());
  EXPECT_EQ(git("log -1 --format=%at refs/submissions/1"), "0");
  EXPECT_EQ(output_of("git --git-dir=" + repository_ + " fsck 2>&1 | grep -c error || true"), "0");
}

TEST_F(LineageTest, CheckFindsEveryKindOfDamage) {
  make_family();
  Lineage lineage = open();
  lineage.sync();
  const auto damaged = [&](const std::string& command) {
    git(command);
    auto found = open().check();
    lineage.rebuild();
    return found;
  };
  EXPECT_EQ(damaged("update-ref -d refs/submissions/2").size(), 1U);
  EXPECT_EQ(damaged("update-ref refs/submissions/2 refs/submissions/1").size(), 1U);
  EXPECT_EQ(damaged("update-ref refs/heads/agents/eve refs/submissions/1").size(), 1U);
  EXPECT_EQ(damaged("update-ref refs/heads/agents/ada refs/submissions/1").size(), 1U);
  EXPECT_EQ(damaged("notes --ref=metrics remove refs/submissions/2").size(), 1U);

  const std::string blob = git("rev-parse refs/submissions/2:flow.lua");
  const fs::path object = fs::path(repository_) / "objects" / blob.substr(0, 2) / blob.substr(2);
  fs::permissions(object, fs::perms::owner_all);
  std::ofstream(object) << "no object at all";
  EXPECT_EQ(open().check().size(), 1U);
  fs::remove(object);
  EXPECT_EQ(open().check().size(), 1U);
}

}  // namespace
}  // namespace sluice::store::test
