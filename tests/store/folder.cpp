#include "tests/store/folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <utility>

#include "store/database/invariants.h"
#include "store/database/migrations.h"
#include "store/database/sqlite.h"

namespace sluice::store::test {

StoreOptions Clock::options(int tries) const {
  StoreOptions options;
  options.tries = tries;
  options.clock = [time = time] { return *time; };
  return options;
}

namespace {

Store migrated(const std::string& path, StoreOptions options) {
  Database database(path, Database::Mode::kCreate, 1000);
  migrate(database);
  return Store(path, std::move(options));
}

}  // namespace

TestStore::TestStore(int most_tries) : tries(most_tries), store(migrated(folder.file("sluice.db"), clock.options(most_tries))) {
  store.create_agent("ada", Role::kAgent, 100000);
}

void expect_whole(const TestStore& test) {
  Database database(test.folder.file("sluice.db"), Database::Mode::kReadWrite, 1000);
  EXPECT_EQ(broken_invariants(database), std::vector<std::string>());
}

ErrorKind kind_thrown_by(const std::function<void()>& work) {
  try {
    work();
  } catch (const StoreError& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::kInternal;
}

Draft draft(const std::string& name, std::vector<SubmissionId> parents) {
  Draft made;
  made.name = name;
  made.script = fmt::format("-- {}\nreturn sluice.flow {{}}\n", name);
  made.parents = std::move(parents);
  return made;
}

Verdict passed(double accuracy, double speedup) {
  Verdict verdict;
  verdict.metrics = {{"accuracy", "", 0, accuracy, accuracy - 0.1, accuracy + 0.1, "share"},
                     {"speedup", "", 0, speedup, std::nullopt, std::nullopt, "ratio"}};
  return verdict;
}

int in_process(const std::function<int()>& work) {
  return in_processes(1, [&](int) { return work(); }).front();
}

std::vector<int> in_processes(int count, const std::function<int(int)>& work) {
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    try {
      ::_exit(work(i));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(99);
    }
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  return codes;
}

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");  // NOLINT(bugprone-command-processor): of the tests alone
  std::string output;
  std::array<char, 4096> piece{};
  while (const size_t size = std::fread(piece.data(), 1, piece.size(), pipe)) output.append(piece.data(), size);
  EXPECT_EQ(::pclose(pipe), 0) << command << "\n" << output;
  if (!output.empty() && output.back() == '\n') output.pop_back();
  return output;
}

}  // namespace sluice::store::test
