#include <gtest/gtest.h>

#include "store/error.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

TEST(Studies, ComeBackAsTheyWere) {
  TestStore test;
  const CreatedStudy made =
      test.store.create_study("ada", {"ratios of quest", "find the knee\n\xc3\xa4", R"({"suite": "quick", "model": "mini"})"});
  EXPECT_TRUE(made.is_new);
  const Study kept = test.store.study(made.id).value();
  EXPECT_EQ(kept.agent, "ada");
  EXPECT_EQ(kept.name, "ratios of quest");
  EXPECT_EQ(kept.goal, "find the knee\n\xc3\xa4");
  EXPECT_EQ(kept.settings, R"({"model":"mini","suite":"quick"})");
  EXPECT_EQ(kept.state, StudyState::kOpen);
  EXPECT_EQ(kept.created, *test.clock.time);
  EXPECT_TRUE(kept.trials.empty());
  EXPECT_FALSE(test.store.study(made.id + 1));
  expect_whole(test);
}

TEST(Studies, ANameIsOneStudyOfAnAgent) {
  TestStore test;
  test.store.create_agent("bob", Role::kAgent, 5);
  const CreatedStudy made = test.store.create_study("ada", {"one", "goal", R"({"a": 1, "b": 2})"});
  const CreatedStudy again = test.store.create_study("ada", {"one", "goal", R"({"b":2,"a":1})"});
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.id, made.id);
  EXPECT_EQ(kind_thrown_by([&] {
              test.store.create_study("ada", {"one", "another goal", R"({"a":1,"b":2})"});
            }),
            ErrorKind::kConflict);
  EXPECT_EQ(kind_thrown_by([&] { test.store.create_study("ada", {"one", "goal", "{}"}); }), ErrorKind::kConflict);
  EXPECT_TRUE(test.store.create_study("bob", {"one", "goal", "{}"}).is_new);
}

TEST(Studies, WhatIsNoStudyIsRefused) {
  TestStore test;
  const auto kind_of = [&](const StudyDraft& draft) { return kind_thrown_by([&] { test.store.create_study("ada", draft); }); };
  EXPECT_EQ(kind_of({"", "", "{}"}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({"two\nlines", "", "{}"}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({std::string(Limits::kName + 1, 'x'), "", "{}"}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({"x", std::string(Limits::kGoal + 1, 'x'), "{}"}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({"x", "\xff", "{}"}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of({"x", "", "[]"}), ErrorKind::kInvalid);
  EXPECT_EQ(kind_thrown_by([&] { test.store.create_study("nobody", {"x", "", "{}"}); }), ErrorKind::kNotFound);
  EXPECT_TRUE(test.store.studies({}).studies.empty());
}

TEST(Studies, AreListedNewestFirstPageByPage) {
  TestStore test;
  test.store.create_agent("bob", Role::kAgent, 5);
  std::vector<StudyId> ids;
  for (const char* name : {"a", "b", "c", "d", "e"}) ids.push_back(test.store.create_study("ada", {name, "", "{}"}).id);
  test.store.create_study("bob", {"f", "", "{}"});
  test.store.set_study_state(ids[1], StudyState::kClosed);
  const StudyPage first = test.store.studies({.agent = "ada"}, "", 3);
  ASSERT_EQ(first.studies.size(), 3U);
  EXPECT_EQ(first.studies[0].id, ids[4]);
  EXPECT_EQ(first.total, 5);
  const StudyPage second = test.store.studies({.agent = "ada"}, first.next, 3);
  ASSERT_EQ(second.studies.size(), 2U);
  EXPECT_EQ(second.studies[1].id, ids[0]);
  EXPECT_EQ(second.next, "");
  EXPECT_FALSE(second.total);
  EXPECT_EQ(test.store.studies({.state = StudyState::kClosed}).studies.at(0).id, ids[1]);
  EXPECT_EQ(test.store.studies({}).total, 6);
  for (const char* cursor : {"b", "x1", "b0", "b-1", "bx", "b1 "}) {
    EXPECT_EQ(kind_thrown_by([&] { test.store.studies({}, cursor); }), ErrorKind::kInvalid) << cursor;
    EXPECT_EQ(kind_thrown_by([&] { test.store.trials(ids[0], {}, cursor); }), ErrorKind::kInvalid) << cursor;
  }
}

TEST(Studies, AreCountedByDays) {
  TestStore test;
  test.store.create_agent("bob", Role::kAgent, 2);
  test.store.create_agent("root", Role::kAdmin, 0);
  test.store.create_study("bob", {"a", "", "{}"});
  test.store.create_study("bob", {"b", "", "{}"});
  EXPECT_EQ(kind_thrown_by([&] { test.store.create_study("bob", {"c", "", "{}"}); }), ErrorKind::kQuota);
  EXPECT_FALSE(test.store.create_study("bob", {"b", "", "{}"}).is_new) << "which makes none";
  EXPECT_TRUE(test.store.create_study("root", {"c", "", "{}"}).is_new);
  test.clock.advance(Time{24} * 3600 * 1000000);
  EXPECT_TRUE(test.store.create_study("bob", {"c", "", "{}"}).is_new);
}

TEST(Studies, OfNoNumberCannotBeClosed) {
  TestStore test;
  EXPECT_EQ(kind_thrown_by([&] { test.store.set_study_state(1, StudyState::kClosed); }), ErrorKind::kNotFound);
}

}  // namespace
}  // namespace sluice::store::test
