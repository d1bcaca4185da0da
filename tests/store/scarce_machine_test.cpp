// What the machine lacks or refuses says nothing about the data: it is told, and no sound repository is moved aside for it.

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/error.h"
#include "store/folder/data_folder.h"
#include "store/folder/system_error.h"
#include "store/lineage/git.h"
#include "store/lineage/repository_files.h"
#include "tests/store/folder.h"

namespace {

bool zlib_has_memory = true;
bool refuses_indices = false;  // of packs, until somebody reads the repository from the start
int refused_indices = 0;
bool refuses_renames = false;
std::string vanishing;               // a file that goes away right before it is opened
std::function<void()> before_check;  // runs once, before a connection that was opened since reads the database as it is then

/// Tells of what a new connection does.
int watch(sqlite3* database, char** /*error*/, const sqlite3_api_routines* /*api*/) {
  const auto tell = [](unsigned, void*, void*, void* text) {
    if (before_check && std::string_view(static_cast<const char*>(text)) == "BEGIN") std::exchange(before_check, nullptr)();
    return 0;
  };
  return ::sqlite3_trace_v2(database, SQLITE_TRACE_STMT, tell, nullptr);
}

}  // namespace

// The program's own definitions come before the libraries'.
extern "C" int open(  // NOLINT(cert-dcl50-cpp,readability-inconsistent-declaration-parameter-name)
    const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (std::string_view(path).ends_with("/config")) refuses_indices = false;
  if (refuses_indices && std::string_view(path).ends_with(".idx")) {
    ++refused_indices;
    errno = EMFILE;
    return -1;
  }
  if (!vanishing.empty() && path == vanishing) ::unlink(path);
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" int rename(  // NOLINT(cert-dcl50-cpp,readability-inconsistent-declaration-parameter-name)
    const char* from, const char* to) noexcept {
  if (refuses_renames && std::string_view(to).find(".damaged.") != std::string_view::npos) {
    errno = EBUSY;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

extern "C" int inflateInit_(z_streamp stream, const char* version, int size) {
  if (!zlib_has_memory) return Z_MEM_ERROR;
  static const auto real = reinterpret_cast<int (*)(z_streamp, const char*, int)>(::dlsym(RTLD_NEXT, "inflateInit_"));
  return real(stream, version, size);
}

namespace sluice::store::test {
namespace {

namespace fs = std::filesystem;

constexpr Time kLong = 3600LL * 1000000;
constexpr int kWhole = 0, kRefused = 1, kWrong = 2;  // exit codes

/// A folder with an agent and judged flows; `packed`: as `git gc` leaves the repository.
struct Filled {
  explicit Filled(bool packed = false) {
    {
      DataFolder data(folder.path());
      Store store = data.open_store();
      store.create_agent("ada", Role::kAgent, 1000);
      judge_another(store, "first");
      judge_another(store, "second");
      data.sync_lineage();
    }
    if (packed) git("gc --quiet");
  }
  void git(const std::string& command) const { output_of("git --git-dir=" + folder.file("lineage.git") + " " + command); }
  static SubmissionId judge_another(Store& store, const std::string& name, std::vector<SubmissionId> parents = {}) {
    const SubmissionId id = store.submit("ada", draft(name, std::move(parents))).id;
    store.complete(store.claim("w", kLong).value(), passed());
    return id;
  }
  bool is_replaced() const { return fs::exists(folder.file("lineage.git.damaged.1")); }

  Folder folder;
};

/// Nothing but a refusal that tells why counts as one. `work` returns what it found to be wrong; "" if nothing is.
int outcome_of(const std::function<std::string()>& work) {
  try {
    const std::string found = work();
    if (found.empty()) return kWhole;
    std::fprintf(stderr, "%s\n", found.c_str());
    return kWrong;
  } catch (const StoreError& error) {
    if (error.kind() == ErrorKind::kUnwritable && !error.hint().empty()) return kRefused;
    std::fprintf(stderr, "%s\n", error.what());
    return kWrong;
  }
}

/// Leaves this process room for `count` descriptors more.
void leave_descriptors(int count) {
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  const auto most = static_cast<rlim_t>(next) + static_cast<rlim_t>(count);
  const rlimit limit{most, most};
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// With ever more descriptors `work` is refused, then does all; it never finds anything wrong.
void expect_refused_or_whole(const Filled& filled, const std::function<std::string(int descriptors)>& work) {
  constexpr int kEnough = 30;
  int refused = 0;
  for (int count = 0; count <= kEnough; ++count) {
    const int code = in_process([&] { return outcome_of([&] { return work(count); }); });
    EXPECT_TRUE(code == kRefused || code == kWhole) << code << " with " << count;
    EXPECT_FALSE(filled.is_replaced()) << count;
    if (code == kRefused) ++refused;
    if (count == kEnough) {
      EXPECT_EQ(code, kWhole);
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(refused, 0);
}

std::string first_of(const std::vector<std::string>& lines) { return lines.empty() ? std::string() : lines.front(); }

TEST(ScarceMachine, LackOfDescriptorsIsNoDamage) {
  for (const bool packed : {false, true}) {
    const Filled filled(packed);
    expect_refused_or_whole(filled, [&](int descriptors) {
      leave_descriptors(descriptors);
      return first_of(DataFolder(filled.folder.path()).notices());
    });
    expect_refused_or_whole(filled, [&](int descriptors) {
      leave_descriptors(descriptors);
      return first_of(fsck(filled.folder.path()).problems);
    });
  }
}

TEST(ScarceMachine, LackOfDescriptorsWhileAServerRunsIsNoDamage) {
  const Filled filled;
  expect_refused_or_whole(filled, [&](int descriptors) {
    DataFolder data(filled.folder.path());
    Store store = data.open_store();
    Filled::judge_another(store, fmt::format("with {}", descriptors));
    leave_descriptors(descriptors);
    return data.sync_lineage();
  });
}

/// A folder in use, with a pack that cannot be read for a moment when its lineage is brought up to date next.
struct Doubted {
  Doubted() {
    const SubmissionId parent = Filled::judge_another(store, "parent");
    data.sync_lineage();
    filled.git("gc --quiet");
    Filled::judge_another(store, "child", {parent});
    refuses_indices = true;
  }

  Filled filled;
  DataFolder data{filled.folder.path()};
  Store store = data.open_store();
};

TEST(ScarceMachine, LackOfDescriptorsForAMomentIsNoDamage) {
  Doubted doubted;
  EXPECT_EQ(doubted.data.sync_lineage(), "");
  EXPECT_GT(refused_indices, 0);
  EXPECT_FALSE(doubted.filled.is_replaced());
  EXPECT_EQ(doubted.data.fsck().problems, std::vector<std::string>());
}

TEST(ScarceMachine, AVerdictWhileTheRepositoryIsDoubtedIsNoDamage) {
  Doubted doubted;
  ::sqlite3_auto_extension(reinterpret_cast<void (*)()>(watch));
  before_check = [&] { Filled::judge_another(doubted.store, "meanwhile"); };
  EXPECT_EQ(doubted.data.sync_lineage(), "");
  ::sqlite3_reset_auto_extension();
  EXPECT_FALSE(before_check) << "it was judged";
  EXPECT_FALSE(doubted.filled.is_replaced());
  EXPECT_EQ(doubted.data.sync_lineage(), "");
  EXPECT_EQ(doubted.data.fsck().problems, std::vector<std::string>());
}

TEST(ScarceMachine, FilesOfARunningGcStayWhileTheRepositoryIsDoubted) {
  Doubted doubted;
  const std::vector<std::string> files = {"packed-refs.lock", "refs/heads/eve.lock", "objects/tmp_object_1"};
  for (const std::string& file : files) std::ofstream(doubted.filled.folder.file("lineage.git/" + file)) << "half";
  EXPECT_EQ(doubted.data.sync_lineage(), "");
  for (const std::string& file : files) EXPECT_TRUE(fs::exists(doubted.filled.folder.file("lineage.git/" + file))) << file;
}

TEST(ScarceMachine, AFileThatGcTakesAwayIsNoDamage) {
  for (const bool packed : {false, true}) {
    const Filled filled(packed);
    const fs::path repository = filled.folder.file("lineage.git");
    std::vector<fs::path> files;
    for (const char* folder : {"objects", "refs"}) {
      for (const auto& entry : fs::recursive_directory_iterator(repository / folder)) {
        const bool is_needed = entry.path().extension() == ".pack";  // by its index: `git gc` takes that away first
        if (entry.is_regular_file() && !is_needed) files.push_back(entry.path());
      }
    }
    EXPECT_FALSE(files.empty());
    for (const fs::path& file : files) {
      vanishing = file.string();
      EXPECT_EQ(damaged_files(repository), std::vector<std::string>()) << file;
    }
    vanishing.clear();
  }
}

TEST(ScarceMachine, ARepositoryThatCannotBeMovedForAMomentIsMadeAnewLater) {
  const Filled filled;
  DataFolder data(filled.folder.path());
  Store store = data.open_store();
  fs::remove_all(filled.folder.file("lineage.git/objects"));
  Filled::judge_another(store, "third");
  refuses_renames = true;
  EXPECT_EQ(kind_thrown_by([&] { data.sync_lineage(); }), ErrorKind::kUnwritable);
  refuses_renames = false;
  EXPECT_NE(data.sync_lineage().find("damaged"), std::string::npos);
  EXPECT_TRUE(filled.is_replaced());
  EXPECT_EQ(data.fsck().problems, std::vector<std::string>());
}

TEST(ScarceMachine, EveryErrorOfAFailingMachineSaysWhatToDo) {
  for (const int error : {EACCES, EROFS, EMFILE, ENOMEM, ENOSPC, EIO}) EXPECT_NE(hint_of_system_error(error), "") << error;
}

TEST(ScarceMachine, AFileThatMayNotBeReadIsNoDamage) {
  const Filled filled;
  const auto open_to_all = [&] { output_of("chmod -R a+rwX " + filled.folder.path()); };
  const auto outcome_of_opening = [&] {
    return in_process([&] {
      constexpr uid_t kNobody = 65534;
      if (::geteuid() == 0 && ::setuid(kNobody) != 0) return kWrong;  // root may read anything
      return outcome_of([&]() -> std::string { return first_of(DataFolder(filled.folder.path()).notices()); });
    });
  };
  open_to_all();
  const int code = outcome_of_opening();
  if (code == kRefused) GTEST_SKIP() << "another user cannot reach " << filled.folder.path();
  ASSERT_EQ(code, kWhole);
  const auto expect_refused_without = [&](const std::string& file) {
    const fs::path path = filled.folder.file("lineage.git/" + file);
    open_to_all();  // what another user has made there, too
    const fs::perms before = fs::status(path).permissions();
    fs::permissions(path, fs::perms::none);
    EXPECT_EQ(outcome_of_opening(), kRefused) << file;
    EXPECT_FALSE(filled.is_replaced()) << file;
    fs::permissions(path, before);
    EXPECT_EQ(outcome_of_opening(), kWhole) << file;
  };
  std::string object;
  for (const auto& entry : fs::recursive_directory_iterator(filled.folder.file("lineage.git/objects"))) {
    if (entry.is_regular_file()) object = entry.path().lexically_relative(filled.folder.file("lineage.git")).string();
  }
  for (const std::string& file : {object, fs::path(object).parent_path().string(), std::string("HEAD"), std::string("config"),
                                  std::string("refs"), std::string("refs/heads/agents/ada")}) {
    expect_refused_without(file);
  }
}

TEST(ScarceMachine, LackOfMemoryToUnpackIsNoDamage) {
  const Filled filled;
  zlib_has_memory = false;
  EXPECT_EQ(kind_thrown_by([&] { damaged_objects(filled.folder.file("lineage.git")); }), ErrorKind::kUnwritable);
  zlib_has_memory = true;
  EXPECT_EQ(damaged_objects(filled.folder.file("lineage.git")), std::vector<std::string>());
}

TEST(ScarceMachine, LackOfMemoryIsNoDamageToLibgit2) {
  const Filled filled;
  const GitRepository repository = GitRepository::open(filled.folder.file("lineage.git"));
  const std::string commit = repository.ref("refs/submissions/1").value();
  zlib_has_memory = false;
  EXPECT_EQ(kind_thrown_by([&] { repository.verify_object(commit); }), ErrorKind::kUnwritable);
  zlib_has_memory = true;
  EXPECT_NO_THROW(repository.verify_object(commit));
}

TEST(ScarceMachine, LackOfMemoryIsNoFaultOfTheDatabase) {
  const Filled filled;
  const int code = in_process([&] {
    ::sqlite3_hard_heap_limit64(1);
    return outcome_of([&] { return first_of(fsck(filled.folder.path()).problems); });
  });
  EXPECT_EQ(code, kRefused);
}

}  // namespace
}  // namespace sluice::store::test
