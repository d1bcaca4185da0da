#include "store/folder/data_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "store/database/migrations.h"
#include "store/error.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kShort{30};
constexpr Time kLong = 3600LL * 1000000;

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// An agent, and `count` flows that were judged, each the parent of the next.
void fill(const std::string& folder, int count) {
  DataFolder data(folder);
  Store store = data.open_store();
  store.create_agent("ada", Role::kAgent, 100000);
  std::vector<SubmissionId> parents;
  for (int i = 0; i < count; ++i) {
    parents = {store.submit("ada", draft(fmt::format("flow {}", i), parents)).id};
    store.complete(store.claim("w", kLong).value(), passed());
  }
  data.sync_lineage();
}

StoreError error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const StoreError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::kInternal, "nothing was thrown"};
}

TEST(DataFolder, IsMadeAndOpenedAgain) {
  const Folder folder;
  const std::string path = folder.file("a/b");
  fill(path, 3);
  DataFolder data(path);
  EXPECT_EQ(joined(data.notices()), "");
  EXPECT_EQ(data.open_store().list({}).submissions.size(), 3U);
  const FsckReport report = data.fsck();
  EXPECT_EQ(joined(report.problems), "");
  EXPECT_EQ(report.submissions, 3);
  EXPECT_EQ(report.commits, 3);
}

TEST(DataFolder, IsNotMadeAmongFilesOfOthers) {
  const Folder folder;
  std::ofstream(folder.file("thesis.tex")) << "years of work";
  const StoreError error = error_of([&] { const DataFolder data(folder.path()); });
  EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
  EXPECT_NE(std::string(error.what()).find("thesis.tex"), std::string::npos) << error.what();
  EXPECT_FALSE(std::filesystem::exists(folder.file("lock")));
  std::filesystem::remove(folder.file("thesis.tex"));
  std::filesystem::create_directory(folder.file("lost+found"));
  std::ofstream(folder.file("lock")) << "1\n";
  fill(folder.path(), 1);
  std::ofstream(folder.file("notes.txt")) << "in a folder of ours";
  EXPECT_EQ(DataFolder(folder.path()).fsck().submissions, 1);
}

TEST(DataFolder, ADatabaseThatIsGoneIsNotReplaced) {
  for (const bool is_empty : {false, true}) {
    const Folder folder;
    fill(folder.path(), 2);
    for (const char* file : {"sluice.db", "sluice.db-wal", "sluice.db-shm"}) std::filesystem::remove(folder.file(file));
    if (is_empty) {
      std::ofstream(folder.file("sluice.db")).flush();
      EXPECT_EQ(error_of([&] { fsck(folder.path()); }).kind(), ErrorKind::kCorrupted);  // which may write a header
    }
    const StoreError error = error_of([&] { const DataFolder data(folder.path()); });
    EXPECT_EQ(error.kind(), ErrorKind::kCorrupted);
    EXPECT_NE(std::string(error.what()).find(is_empty ? "is empty" : "is gone"), std::string::npos) << error.what();
    EXPECT_TRUE(std::filesystem::exists(folder.file("lineage.git/HEAD")));
    EXPECT_FALSE(std::filesystem::exists(folder.file("lineage.git.damaged.1")));
  }
}

TEST(DataFolder, IsForOneServerAtATime) {
  const Folder folder;
  const DataFolder first(folder.path());
  const StoreError error = error_of([&] { const DataFolder second(folder.path(), kShort); });
  EXPECT_EQ(error.kind(), ErrorKind::kLocked);
  EXPECT_NE(std::string(error.what()).find(fmt::format("process {}", ::getpid())), std::string::npos) << error.what();
  EXPECT_EQ(error_of([&] { fsck(folder.path(), kShort); }).kind(), ErrorKind::kLocked);
}

TEST(DataFolder, WhoComesSecondWaits) {
  const Folder folder;
  std::optional<DataFolder> first(std::in_place, folder.path());
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    first.reset();
  });
  EXPECT_NO_THROW(DataFolder(folder.path()).fsck());
  end.join();
}

TEST(DataFolder, IsMadeOnceByAllWhoMeetInIt) {
  for (int round = 0; round < 10; ++round) {
    const Folder folder;
    const std::string path = folder.file("data");
    const auto work = [&path](int i) {
      if (i % 3 == 2) {
        const DataFolder data(path);
      } else {
        open_store_of(path, true).create_agent(fmt::format("agent{}", i), Role::kAgent, 5);
      }
      return 0;
    };
    EXPECT_EQ(in_processes(6, work), std::vector<int>(6, 0));
    EXPECT_EQ(open_store_of(path, false).agents().size(), 4U);
    EXPECT_TRUE(fsck(path).clean());
  }
}

TEST(DataFolder, HasAStoreForOthersWhileItIsHeld) {
  const Folder folder;
  EXPECT_EQ(error_of([&] { open_store_of(folder.path(), false); }).kind(), ErrorKind::kNotFound);
  const FolderLock held(folder.path());
  const StoreError error = error_of([&] { open_store_of(folder.path(), true, kShort); });
  EXPECT_EQ(error.kind(), ErrorKind::kLocked) << "whoever holds it makes nothing";
  EXPECT_NE(std::string(error.what()).find("is in use by process"), std::string::npos) << error.what();
}

TEST(DataFolder, DamagedRepositoryIsMovedAsideAndMadeAnew) {
  const Folder folder;
  fill(folder.path(), 5);
  const std::string refs = "git --git-dir=" + folder.file("lineage.git") + " for-each-ref";
  const std::string before = output_of(refs);
  int aside = 0;
  const auto damaged_by = [&](const std::function<void()>& damage) {
    damage();
    EXPECT_FALSE(fsck(folder.path()).clean());
    const DataFolder data(folder.path());
    EXPECT_NE(joined(data.notices()).find("damaged"), std::string::npos);
    EXPECT_TRUE(fs::exists(folder.file(fmt::format("lineage.git.damaged.{}", ++aside))));
    EXPECT_EQ(output_of(refs), before);
  };
  damaged_by([&] { fs::remove(folder.file("lineage.git/HEAD")); });
  damaged_by([&] { fs::remove_all(folder.file("lineage.git/objects")); });
  damaged_by([&] { std::ofstream(folder.file("lineage.git/refs/notes/metrics")) << "garbage\n"; });
  damaged_by([&] { fs::remove_all(folder.file("lineage.git/refs/submissions")); });
  fs::remove_all(folder.file("lineage.git"));
  EXPECT_FALSE(fsck(folder.path()).clean());
  { const DataFolder data(folder.path()); }
  EXPECT_EQ(output_of(refs), before);
  EXPECT_EQ(joined(fsck(folder.path()).problems), "");
}

TEST(DataFolder, WhatAKilledProcessLeftIsTakenAwayWhenItIsOpened) {
  const Folder folder;
  fill(folder.path(), 1);
  const std::vector<std::string> leftovers = {"packed-refs.lock", "refs/submissions/2.lock", "objects/tmp_object_1"};
  const auto leave = [&] {
    for (const std::string& file : leftovers) std::ofstream(folder.file("lineage.git/" + file)) << "half";
  };
  const auto expect_none = [&] {
    for (const std::string& file : leftovers) EXPECT_FALSE(fs::exists(folder.file("lineage.git/" + file))) << file;
  };
  leave();
  EXPECT_EQ(joined(fsck(folder.path()).problems), "");
  expect_none();
  open_store_of(folder.path(), false).submit("ada", draft("next"));
  open_store_of(folder.path(), false).complete(open_store_of(folder.path(), false).claim("w", kLong).value(), passed());
  leave();
  DataFolder data(folder.path());
  expect_none();
  EXPECT_EQ(joined(data.notices()), "");
  EXPECT_EQ(joined(data.fsck().problems), "");
}

TEST(DataFolder, ARepositoryThatCannotBeMadeAnewAtOnceIsToldLater) {
  const Folder folder;
  fill(folder.path(), 3);
  const int code = in_process([&] {
    DataFolder data(folder.path());
    Store store = data.open_store();
    store.submit("ada", draft("later"));
    store.complete(store.claim("worker", 1'000'000).value(), passed());
    fs::remove_all(folder.file("lineage.git/objects"));
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{1, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &none);  // as if the disk were full
    error_of([&] { data.sync_lineage(); });
    if (!fs::exists(folder.file("lineage.git.damaged.1"))) return 1;
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &all);
    return data.sync_lineage().find("lineage.git.damaged.1") != std::string::npos && data.sync_lineage().empty() ? 0 : 2;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(joined(fsck(folder.path()).problems), "");
  fs::remove_all(folder.file("lineage.git"));
  EXPECT_NE(joined(DataFolder(folder.path()).notices()).find("lineage.git.damaged.1"), std::string::npos)
      << "of a process that ended";
  EXPECT_EQ(joined(DataFolder(folder.path()).notices()), "");
}

TEST(DataFolder, ARepositoryDamagedMeanwhileIsMadeAnew) {
  const Folder folder;
  fill(folder.path(), 3);
  const std::string refs = "git --git-dir=" + folder.file("lineage.git") + " for-each-ref";
  DataFolder data(folder.path());
  EXPECT_EQ(data.sync_lineage(), "");
  std::ofstream(folder.file("lineage.git/refs/notes/metrics")) << "garbage\n";
  fs::remove_all(folder.file("lineage.git/objects"));
  Store store = data.open_store();
  const SubmissionId id = store.submit("ada", draft("later")).id;
  store.complete(store.claim("worker", 1'000'000).value(), passed());
  EXPECT_NE(data.sync_lineage().find("damaged"), std::string::npos);
  EXPECT_EQ(data.sync_lineage(), "");
  EXPECT_EQ(joined(data.fsck().problems), "");
  EXPECT_NE(output_of(refs).find(fmt::format("refs/submissions/{}", id)), std::string::npos);
}

TEST(DataFolder, DamagedOrForeignDatabasesAreRefused) {
  const Folder folder;
  fill(folder.path(), 30);
  const std::string whole = text_of(folder.file("sluice.db"));
  const auto kind_with = [&](const std::string& content) {
    std::ofstream(folder.file("sluice.db"), std::ios::binary) << content;
    return error_of([&] { const DataFolder data(folder.path()); }).kind();
  };
  EXPECT_EQ(kind_with("this is no database at all, but long enough to have a header of one hundred bytes, if it were "
                      "one, which it is not"),
            ErrorKind::kCorrupted);
  std::string broken = whole;
  for (size_t i = broken.size() / 2; i < broken.size(); ++i) broken[i] = '\x5a';
  EXPECT_EQ(kind_with(broken), ErrorKind::kCorrupted);
  EXPECT_EQ(kind_with(whole.substr(0, whole.size() / 2)), ErrorKind::kCorrupted);
  EXPECT_EQ(text_of(folder.file("sluice.db")).size(), whole.size() / 2) << "what is damaged is left for people to look at";

  fs::remove(folder.file("sluice.db"));
  Database(folder.file("sluice.db"), Database::Mode::kCreate, 1000).execute("CREATE TABLE recipes (name TEXT)");
  EXPECT_EQ(error_of([&] { const DataFolder data(folder.path()); }).kind(), ErrorKind::kCorrupted);
}

TEST(DataFolder, NewerDatabaseIsRefused) {
  const Folder folder;
  fill(folder.path(), 1);
  Database(folder.file("sluice.db"), Database::Mode::kReadWrite, 1000).execute("PRAGMA user_version = 99");
  const StoreError error = error_of([&] { const DataFolder data(folder.path()); });
  EXPECT_EQ(error.kind(), ErrorKind::kTooNew);
  EXPECT_NE(std::string(error.what()).find("version 99"), std::string::npos) << error.what();
  EXPECT_EQ(error_of([&] { fsck(folder.path()); }).kind(), ErrorKind::kTooNew);
}

/// Every table's columns and indices, however the SQL was spelt.
std::string shape_of(const std::string& path) {
  Database database(path, Database::Mode::kReadOnly, 1000);
  std::string shape;
  Query query(database,
              "SELECT t.name, c.name, c.type, c.\"notnull\", c.pk, c.hidden FROM sqlite_schema t, pragma_table_xinfo(t.name) c "
              "WHERE t.type = 'table' UNION ALL SELECT 'index', name, coalesce(sql, ''), 0, 0, 0 FROM sqlite_schema "
              "WHERE type = 'index' ORDER BY 1, 2");
  while (query.step()) {
    shape += fmt::format("{} {} {} {} {} {}\n", query.text(0), query.text(1), query.text(2), query.integer(3), query.integer(4),
                         query.integer(5));
  }
  return shape;
}

TEST(Migrations, BringVersionOneUpToDateWithABackup) {
  const Folder folder;
  {
    Database old(folder.file("sluice.db"), Database::Mode::kCreate, 1000);
    old.execute(text_of(SLUICE_SOURCE_DIR "/tests/store/schema_1.sql").c_str());
    old.execute(
        "INSERT INTO agents (name, role, token_salt, token_hash, quota, created) VALUES ('ada', 'agent', x'00', x'00', 5, 1);"
        "INSERT INTO submissions (agent, name, status, priority, content_hash, created, updated, first_finished, notes, "
        "settings, script) VALUES (1, 'old', 'cancelled', 0, x'01', 1, 1, 1, '', '{\"model\":\"mini\"}', 'return 1');"
        "PRAGMA user_version = 1");
  }
  EXPECT_EQ(error_of([&] { const Store store(folder.file("sluice.db")); }).kind(), ErrorKind::kInvalid);
  std::ofstream(folder.file("sluice.db.version1.part")) << "of one that was killed at it";
  {
    DataFolder data(folder.path());
    EXPECT_NE(joined(data.notices()).find("sluice.db.version1"), std::string::npos);
    EXPECT_EQ(data.open_store().list({.model = "mini"}).submissions.at(0).name, "old");
    EXPECT_EQ(joined(data.fsck().problems), "");
  }
  EXPECT_EQ(Database(folder.file("sluice.db.version1"), Database::Mode::kReadOnly, 1000).version(), 1);
  EXPECT_FALSE(fs::exists(folder.file("sluice.db.version1.part")));
  const Folder fresh;
  { const DataFolder data(fresh.path()); }
  EXPECT_EQ(shape_of(folder.file("sluice.db")), shape_of(fresh.file("sluice.db")));
  const DataFolder again(folder.path());
  EXPECT_EQ(joined(again.notices()), "");
}

TEST(DataFolder, ReadOnlyFolderIsRefused) {
  const Folder folder;
  fill(folder.path(), 1);
  fs::remove(folder.file("lock"));
  ASSERT_EQ(::chmod(folder.path().c_str(), 0555), 0);
  const int code = in_process([&] {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) return 2;  // root may write anywhere
    return error_of([&] { const DataFolder data(folder.path()); }).kind() == ErrorKind::kUnwritable ? 0 : 1;
  });
  ::chmod(folder.path().c_str(), 0755);
  EXPECT_EQ(code, 0);
}

/// Submits until the store refuses. How many were accepted; they are told to `accepted` one by one.
ErrorKind submit_until_refused(Store& store, int accepted) {
  for (int i = 0;; ++i) {
    Draft given = draft(fmt::format("large {}", i));
    given.script += std::string(60000, '-');
    try {
      const SubmissionId id = store.submit("ada", given).id;
      if (::write(accepted, &id, sizeof(id)) != sizeof(id)) return ErrorKind::kInternal;
    } catch (const StoreError& error) {
      return error.kind();
    }
  }
}

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() {
    ::close(ends[0]);
    if (ends[1] >= 0) ::close(ends[1]);
  }
  /// Until an id was written, or the writer has ended.
  void wait() const {
    pollfd waiting{ends[0], POLLIN, 0};
    constexpr int kPatienceMs = 10000;
    ::poll(&waiting, 1, kPatienceMs);
  }
  /// All ids that were written; the writing end is closed.
  std::vector<SubmissionId> ids() {
    ::close(ends[1]);
    ends[1] = -1;
    std::vector<SubmissionId> read;
    SubmissionId id = 0;
    while (::read(ends[0], &id, sizeof(id)) == sizeof(id)) read.push_back(id);
    return read;
  }
  int ends[2] = {-1, -1};
};

void expect_all_there(const std::string& folder, const std::vector<SubmissionId>& ids) {
  DataFolder data(folder);
  Store store = data.open_store();
  for (const SubmissionId id : ids) EXPECT_TRUE(store.get(id)) << id;
  EXPECT_EQ(joined(data.fsck().problems), "");
}

TEST(DataFolder, FilesThatCannotGrowLoseNothing) {
  const Folder folder;
  fill(folder.path(), 2);
  Pipe accepted;
  const int code = in_process([&] {
    DataFolder data(folder.path());
    Store store = data.open_store();
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2 << 20, 2 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const ErrorKind kind = submit_until_refused(store, accepted.ends[1]);
    return kind == ErrorKind::kFull || kind == ErrorKind::kUnwritable ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  const auto ids = accepted.ids();
  EXPECT_GT(ids.size(), 5U);
  expect_all_there(folder.path(), ids);
}

TEST(DataFolder, FullDiskLosesNothing) {
  const Folder folder;
  constexpr int kNoMount = 77;
  const int code = in_process([&] {
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=4m") == 0;
    if (!mounted) return kNoMount;
    fill(folder.path(), 2);
    Pipe accepted;
    {
      DataFolder data(folder.path());
      Store store = data.open_store();
      if (!data.trouble().empty()) return 5;
      std::ofstream(folder.file("ballast")) << std::string(1 << 20, 'x');
      if (submit_until_refused(store, accepted.ends[1]) != ErrorKind::kFull) return 1;
      if (store.list({}).submissions.empty()) return 2;  // reading goes on
      if (data.trouble().find("full") == std::string::npos) return 6;
    }
    if (error_of([&] { fill(folder.file("another"), 1); }).kind() != ErrorKind::kFull) return 3;
    fs::remove(folder.file("ballast"));
    expect_all_there(folder.path(), accepted.ids());
    return ::testing::Test::HasFailure() ? 4 : 0;
  });
  if (code == kNoMount) GTEST_SKIP() << "only root may mount a small disk";
  EXPECT_EQ(code, 0);
}

TEST(Fsck, FindsRowsThatContradictOneAnother) {
  const Folder folder;
  fill(folder.path(), 2);
  const auto problems_after = [&](const std::string& sql, const std::string& undo) {
    Database(folder.file("sluice.db"), Database::Mode::kReadWrite, 1000).execute(("PRAGMA foreign_keys = OFF;" + sql).c_str());
    std::string problems = joined(fsck(folder.path()).problems);
    Database(folder.file("sluice.db"), Database::Mode::kReadWrite, 1000).execute(("PRAGMA foreign_keys = OFF;" + undo).c_str());
    return problems;
  };
  EXPECT_NE(problems_after("UPDATE submissions SET status = 'queued' WHERE id = 1",
                           "UPDATE submissions SET status = 'passed' WHERE id = 1")
                .find("not in the queue"),
            std::string::npos);
  EXPECT_NE(problems_after("UPDATE submissions SET status = 'timeout' WHERE id = 1",
                           "UPDATE submissions SET status = 'passed' WHERE id = 1")
                .find("without a verdict"),
            std::string::npos);
  EXPECT_NE(problems_after("UPDATE submissions SET agent = 7 WHERE id = 2", "UPDATE submissions SET agent = 1 WHERE id = 2")
                .find("missing row of agents"),
            std::string::npos);
  EXPECT_NE(problems_after("UPDATE submissions SET script = script || ' ' WHERE id = 2",
                           "UPDATE submissions SET script = rtrim(script, ' ') WHERE id = 2")
                .find("lineage.git: submission 2"),
            std::string::npos);
  EXPECT_EQ(joined(fsck(folder.path()).problems), "");
  EXPECT_EQ(error_of([] { fsck("/no/such/folder"); }).kind(), ErrorKind::kNotFound);
}

/// Everything that a server does with a folder, until it is killed.
[[noreturn]] void work_until_killed(const std::string& folder, int round, int accepted) {
  DataFolder data(folder);
  Store store = data.open_store();
  for (int i = 0;; ++i) {
    const SubmissionId id = store.submit("ada", draft(fmt::format("round {} flow {}", round, i), {1})).id;
    if (::write(accepted, &id, sizeof(id)) != sizeof(id)) ::_exit(1);
    const auto lease = store.claim("w", 1);
    if (lease && i % 5 != 0) store.complete(*lease, passed());
    store.expire_leases();
    data.sync_lineage();
  }
}

TEST(DataFolder, SurvivesBeingKilledAtAnyMoment) {
  const Folder folder;
  fill(folder.path(), 1);
  std::mt19937 random(1);
  size_t accepted_in_all = 0;
  for (int round = 0; round < 100; ++round) {
    Pipe accepted;
    const pid_t child = ::fork();
    if (child == 0) work_until_killed(folder.path(), round, accepted.ends[1]);
    if (round % 2 == 1) accepted.wait();  // every other child is killed while it opens the folder, or soon after
    ::usleep(std::uniform_int_distribution<useconds_t>(0, 40000)(random));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the child failed by itself";
    const auto ids = accepted.ids();
    accepted_in_all += ids.size();
    expect_all_there(folder.path(), ids);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GE(accepted_in_all, 50U);
  output_of("git --git-dir=" + folder.file("lineage.git") + " fsck --strict");
}

}  // namespace
}  // namespace sluice::store::test
