#include <fmt/format.h>
#include <gtest/gtest.h>

#include "store/error.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

constexpr Time kHour = 3600LL * 1000000;

TEST(Submissions, ComeBackAsTheyWere) {
  TestStore test;
  const SubmissionId parent = test.store.submit("ada", draft("parent")).id;
  const SubmissionId other = test.store.submit("ada", draft("other")).id;
  Draft given = draft("child", {other, parent, other});
  given.notes = "why\nand how: \xc3\xa4";
  given.script += std::string("bytes \0\xff\xfe", 9);
  given.settings = R"({"suite": "quick", "model": "mini", "device": "cpu"})";
  given.priority = -3;
  const SubmissionId id = test.store.submit("ada", given).id;
  const Submission kept = test.store.get(id).value();
  EXPECT_EQ(kept.agent, "ada");
  EXPECT_EQ(kept.name, "child");
  EXPECT_EQ(kept.notes, given.notes);
  EXPECT_EQ(kept.script, given.script);
  EXPECT_EQ(kept.settings, R"({"device":"cpu","model":"mini","suite":"quick"})");
  EXPECT_EQ(kept.priority, -3);
  EXPECT_EQ(kept.status, Status::kQueued);
  EXPECT_EQ(kept.created, *test.clock.time);
  EXPECT_EQ(kept.parents, (std::vector<SubmissionId>{other, parent}));
  EXPECT_EQ(kept.content_hash.size(), 64U);
  EXPECT_FALSE(test.store.get(id + 1));
}

TEST(Submissions, TheSameContentIsTheSameSubmission) {
  TestStore test;
  test.store.create_agent("bob", Role::kAgent, 0);
  Draft first = draft("one");
  first.settings = R"({"a": 1, "b": 2})";
  const Submitted one = test.store.submit("ada", first);
  EXPECT_TRUE(one.is_new);
  Draft again = first;
  again.name = "another name";
  again.settings = R"({ "b": 2, "a": 1 })";
  const Submitted two = test.store.submit("bob", again);  // for which bob needs no quota
  EXPECT_FALSE(two.is_new);
  EXPECT_EQ(two.id, one.id);
  again.settings = R"({"a": 1, "b": 3})";
  EXPECT_TRUE(test.store.submit("ada", again).is_new);
}

TEST(Submissions, WhatEndedWithoutAVerdictCanBeHandedInAgain) {
  TestStore test(1);
  test.store.create_agent("bob", Role::kAgent, 2);
  const SubmissionId id = test.store.submit("ada", draft("one")).id;
  const auto crash = [&] { EXPECT_EQ(test.store.fail(test.store.claim("w", kHour).value(), "crashed"), Status::kRuntimeError); };
  for (int i = 0; i < 2; ++i) {
    crash();
    const Submitted again = test.store.submit("bob", draft("one"));
    EXPECT_EQ(again.id, id);
    EXPECT_TRUE(again.is_new);
    EXPECT_EQ(test.store.get(id)->status, Status::kQueued);
    EXPECT_FALSE(test.store.submit("bob", draft("one")).is_new) << "it waits already";
  }
  EXPECT_EQ(test.store.quota_of("bob").used, 2);
  crash();
  EXPECT_EQ(kind_thrown_by([&] { test.store.submit("bob", draft("one")); }), ErrorKind::kQuota);
  EXPECT_TRUE(test.store.submit("ada", draft("one")).is_new);
  EXPECT_TRUE(test.store.cancel(id));
  EXPECT_TRUE(test.store.submit("ada", draft("one")).is_new) << "it is ada's own";
  test.store.complete(test.store.claim("w", kHour).value(), passed());
  EXPECT_FALSE(test.store.submit("ada", draft("one")).is_new) << "it has its verdict";
}

TEST(Submissions, WhatItsOwnerCancelledStaysSo) {
  TestStore test;
  test.store.create_agent("bob", Role::kAgent, 10);
  test.store.create_agent("root", Role::kAdmin, 10);
  const SubmissionId id = test.store.submit("ada", draft("one")).id;
  test.store.cancel(id);
  EXPECT_FALSE(test.store.submit("bob", draft("one")).is_new);
  EXPECT_EQ(test.store.get(id)->status, Status::kCancelled);
  EXPECT_EQ(test.store.quota_of("bob").used, 0);
  EXPECT_TRUE(test.store.submit("root", draft("one")).is_new);
  EXPECT_EQ(test.store.get(id)->status, Status::kQueued);
}

TEST(Submissions, WrongOnesAreRefusedAndLeaveNothing) {
  TestStore test;
  const auto refused = [&](const std::function<void(Draft&)>& change) {
    Draft wrong = draft("wrong");
    change(wrong);
    return kind_thrown_by([&] { test.store.submit("ada", wrong); });
  };
  EXPECT_EQ(refused([](Draft& d) { d.name = ""; }), ErrorKind::kInvalid);
  EXPECT_EQ(refused([](Draft& d) { d.name = "two\nlines"; }), ErrorKind::kInvalid);
  EXPECT_EQ(refused([](Draft& d) { d.name = "\xff"; }), ErrorKind::kInvalid);
  for (const std::string name : {" ", "x ", "\xe2\x80\xae exe", "\xe2\x80\x8b", "a\xc2\x9b[2J", "\xef\xbb\xbfx", "\xe2\x81\xa6x",
                                 "\xe3\x85\xa4", "\xe2\xa0\x80",
                                 "so\xc2\xad"
                                 "ft",
                                 "tag\xf3\xa0\x81\xa1"}) {
    EXPECT_EQ(refused([&](Draft& d) { d.name = name; }), ErrorKind::kInvalid) << name;
  }
  EXPECT_EQ(refused([](Draft& d) { d.name = std::string(201, 'x'); }), ErrorKind::kInvalid);
  EXPECT_EQ(refused([](Draft& d) { d.notes = std::string("a\0b", 3); }), ErrorKind::kInvalid);
  EXPECT_EQ(refused([](Draft& d) { d.script = std::string((64 << 10) + 1, ' '); }), ErrorKind::kInvalid);
  EXPECT_EQ(refused([](Draft& d) { d.settings = "[]"; }), ErrorKind::kInvalid);
  EXPECT_EQ(refused([](Draft& d) { d.settings = "{"; }), ErrorKind::kInvalid);
  EXPECT_EQ(refused([](Draft& d) { d.settings = R"({"a":)" + std::string(5000, '[') + std::string(5000, ']') + "}"; }),
            ErrorKind::kInvalid);
  EXPECT_EQ(refused([](Draft& d) { d.parents = {7}; }), ErrorKind::kNotFound);
  EXPECT_EQ(refused([](Draft& d) { d.parents = {1}; }), ErrorKind::kNotFound);  // itself
  EXPECT_EQ(kind_thrown_by([&] { test.store.submit("nobody", draft("x")); }), ErrorKind::kNotFound);
  EXPECT_TRUE(test.store.list({}).submissions.empty());
  EXPECT_EQ(test.store.last_event(), 0);
  EXPECT_FALSE(test.store.claim("worker", 1));
}

TEST(Submissions, UnknownParentsAreRefusedOfWhatIsThereAlready) {
  TestStore test;
  test.store.submit("ada", draft("one"));
  Draft again = draft("one");
  again.parents = {7};
  EXPECT_EQ(kind_thrown_by([&] { test.store.submit("ada", again); }), ErrorKind::kNotFound);
}

TEST(Submissions, NamesMayBeInAnyScript) {
  TestStore test;
  for (const std::string name :
       {"\xe2\x80\xa2 \xc3\xa4", "\xe6\xbc\xa2\xe5\xad\x97", "\xf0\x9f\x99\x82", "<img onerror=alert(1)>"}) {
    Draft fine = draft(name);
    fine.name = name;
    EXPECT_EQ(test.store.get(test.store.submit("ada", fine).id)->name, name);
  }
}

TEST(Submissions, IdempotencyKeysRepeatTheAnswer) {
  TestStore test;
  Draft given = draft("one");
  given.idempotency_key = "key";
  const SubmissionId id = test.store.submit("ada", given).id;
  EXPECT_EQ(test.store.submit("ada", given).id, id);
  Draft other = draft("two");
  other.idempotency_key = "key";
  EXPECT_EQ(kind_thrown_by([&] { test.store.submit("ada", other); }), ErrorKind::kConflict);
  test.store.create_agent("bob", Role::kAgent, 10);
  EXPECT_TRUE(test.store.submit("bob", other).is_new);  // keys belong to agents
}

TEST(Submissions, QuotaCountsTheLastDay) {
  TestStore test;
  test.store.set_quota("ada", 2);
  test.store.submit("ada", draft("one"));
  test.clock.advance(kHour);
  test.store.submit("ada", draft("two"));
  EXPECT_EQ(kind_thrown_by([&] { test.store.submit("ada", draft("three")); }), ErrorKind::kQuota);
  EXPECT_FALSE(test.store.submit("ada", draft("one")).is_new);
  EXPECT_EQ(test.store.quota_of("ada").used, 2);
  test.clock.advance(23 * kHour);
  EXPECT_EQ(test.store.quota_of("ada").used, 1);
  EXPECT_TRUE(test.store.submit("ada", draft("three")).is_new);
}

TEST(Lists, FilterByEverything) {
  TestStore test;
  test.store.create_agent("bob", Role::kAgent, 10);
  Draft one = draft("First 100%_");
  one.settings = R"({"model":"mini","device":"cpu","suite":"quick"})";
  Draft two = draft("second");
  two.settings = R"({"model":"qwen","device":"cuda","suite":"full"})";
  const SubmissionId a = test.store.submit("ada", one).id;
  const SubmissionId b = test.store.submit("bob", two).id;
  test.store.cancel(b);
  const auto found = [&](const Filter& filter) {
    std::vector<SubmissionId> ids;
    for (const SubmissionSummary& summary : test.store.list(filter).submissions) ids.push_back(summary.id);
    return ids;
  };
  using Ids = std::vector<SubmissionId>;
  EXPECT_EQ(found({}), (Ids{b, a}));
  EXPECT_EQ(found({.agent = "bob"}), Ids{b});
  EXPECT_EQ(found({.status = Status::kQueued}), Ids{a});
  EXPECT_EQ(found({.model = "mini"}), Ids{a});
  EXPECT_EQ(found({.device = "cuda"}), Ids{b});
  EXPECT_EQ(found({.suite = "full"}), Ids{b});
  EXPECT_EQ(found({.text = "fIRST"}), Ids{a});
  EXPECT_EQ(found({.text = "100%_"}), Ids{a});
  EXPECT_EQ(found({.text = "0%f"}), Ids{});  // no wildcard
  EXPECT_EQ(found({.text = "sluice.flow"}), (Ids{b, a}));
  EXPECT_EQ(found({.agent = "bob", .model = "mini"}), Ids{});
  EXPECT_EQ(found({.agent = "' OR TRUE --"}), Ids{});
}

TEST(Lists, CursorsAreStableWhileRowsAreAdded) {
  TestStore test;
  for (int i = 0; i < 10; ++i) test.store.submit("ada", draft(fmt::format("old {}", i)));
  std::vector<SubmissionId> seen;
  std::string cursor;
  do {
    const Page page = test.store.list({}, cursor, 3);
    for (const SubmissionSummary& summary : page.submissions) seen.push_back(summary.id);
    cursor = page.next;
    test.store.submit("ada", draft(fmt::format("new {}", seen.size())));
  } while (!cursor.empty());
  EXPECT_EQ(seen, (std::vector<SubmissionId>{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}));
  for (const char* wrong : {"x", "b", "b0", "bzz", "b1 ", "-1"}) {
    EXPECT_EQ(kind_thrown_by([&] { test.store.list({}, wrong); }), ErrorKind::kInvalid) << wrong;
  }
}

TEST(Lists, TellHowManyThereAreOnTheirFirstPage) {
  TestStore test;
  test.store.create_agent("bob", Role::kAgent, 10);
  for (int i = 0; i < 7; ++i) test.store.submit("ada", draft(fmt::format("old {}", i)));
  test.store.submit("bob", draft("other"));
  const Page first = test.store.list({}, "", 3);
  EXPECT_EQ(first.total, 8);
  EXPECT_EQ(test.store.list({}, first.next, 3).total, std::nullopt);
  EXPECT_EQ(test.store.list({.agent = "ada"}, "", 3).total, 7);
  EXPECT_EQ(test.store.list({.agent = "bob"}, "", 3).total, 1);
  EXPECT_EQ(test.store.list({.text = "old"}, "", 3).total, std::nullopt);
  EXPECT_EQ(test.store.list({.text = "old"}, "", 7).total, 7);
  EXPECT_EQ(test.store.list({.text = "nothing"}, "", 3).total, 0);
}

TEST(Events, AreReplayedFromASequenceOn) {
  TestStore test;
  const SubmissionId id = test.store.submit("ada", draft("one")).id;
  test.store.complete(test.store.claim("worker", kHour).value(), passed());
  test.store.append_event("progress", id, R"({"done": 3})");
  const std::vector<Event> events = test.store.events_after(0, 100);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].kind, "submitted");
  EXPECT_EQ(events[1].kind, "running");
  EXPECT_EQ(events[2].kind, "finished");
  EXPECT_EQ(events[2].data, R"({"status":"passed"})");
  EXPECT_EQ(events[3].data, R"({"done":3})");
  EXPECT_EQ(test.store.last_event(), events[3].sequence);
  const std::vector<Event> later = test.store.events_after(events[1].sequence, 1);
  ASSERT_EQ(later.size(), 1U);
  EXPECT_EQ(later[0].sequence, events[2].sequence);
}

}  // namespace
}  // namespace sluice::store::test
