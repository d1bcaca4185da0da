#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "store/error.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

TEST(Agents, AreKnownByTheirTokenAlone) {
  TestStore test;
  const NewAgent bob = test.store.create_agent("bob", Role::kAdmin, 5);
  EXPECT_EQ(test.store.agent_of_token(bob.token)->name, "bob");
  EXPECT_EQ(test.store.agent_of_token(bob.token)->role, Role::kAdmin);
  for (size_t i = 0; i < bob.token.size(); ++i) {
    std::string wrong = bob.token;
    wrong[i] = wrong[i] == 'x' ? 'y' : 'x';
    EXPECT_FALSE(test.store.agent_of_token(wrong)) << wrong;
  }
  EXPECT_FALSE(test.store.agent_of_token(""));
  EXPECT_FALSE(test.store.agent_of_token(bob.token + "0"));
  const std::string token = test.store.replace_token("bob");
  EXPECT_FALSE(test.store.agent_of_token(bob.token));
  EXPECT_EQ(test.store.agent_of_token(token)->name, "bob");
}

TEST(Agents, TokensAreNowhereInTheDatabase) {
  TestStore test;
  const std::string token = test.store.create_agent("bob", Role::kAgent, 5).token;
  const std::string secret = token.substr(token.rfind('_') + 1);
  std::string files;
  for (const auto& entry : std::filesystem::directory_iterator(test.folder.path())) {
    std::ostringstream bytes;
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    files += bytes.str();
  }
  EXPECT_NE(files.find("bob"), std::string::npos);
  EXPECT_EQ(files.find(secret), std::string::npos);
}

TEST(Agents, NamesMustBeSafeRefs) {
  TestStore test;
  for (const char* name : {"", "Bob", "-b", "_b", "a/b", "a..b", "a b", "a.lock", "@", "b\n", "\xc3\xa4"}) {
    EXPECT_EQ(kind_thrown_by([&] { test.store.create_agent(name, Role::kAgent, 1); }), ErrorKind::kInvalid) << name;
  }
  EXPECT_EQ(kind_thrown_by([&] { test.store.create_agent(std::string(40, 'a'), Role::kAgent, 1); }), ErrorKind::kInvalid);
  EXPECT_EQ(kind_thrown_by([&] { test.store.create_agent("ada", Role::kAgent, 1); }), ErrorKind::kConflict);
  EXPECT_EQ(test.store.create_agent("b-2_c", Role::kAgent, 1).agent.name, "b-2_c");
}

}  // namespace
}  // namespace sluice::store::test
