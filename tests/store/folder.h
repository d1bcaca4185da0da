#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/error.h"
#include "store/store.h"
#include "tests/support/temporary_directory.h"

namespace sluice::store::test {

using Folder = sluice::testing::TemporaryDirectory;

/// A clock that stands until it is told to move.
struct Clock {
  std::shared_ptr<Time> time = std::make_shared<Time>(1700000000000000);
  StoreOptions options(int tries = 3) const;
  void advance(Time by) const { *time += by; }
};

/// A database with the current schema, an agent "ada" with a quota of 100000, and a store on it.
struct TestStore {
  explicit TestStore(int most_tries = 3);

  int tries;
  Folder folder;
  Clock clock;
  Store store;
};

/// Fails the test if rows of the database contradict one another.
void expect_whole(const TestStore& test);
/// The kind of the StoreError that `work` throws; fails the test if there is none.
ErrorKind kind_thrown_by(const std::function<void()>& work);

/// A draft whose script is its own.
Draft draft(const std::string& name, std::vector<SubmissionId> parents = {});
/// A verdict with the metrics "accuracy" and "speedup".
Verdict passed(double accuracy = 0.5, double speedup = 2);

/// Runs `work` in a process of its own; its exit code, or minus the signal that ended it. An exception is exit code 99.
int in_process(const std::function<int()>& work);
/// The same of several at once: `work(i)` for i in [0, count). To be called where there are no other threads, whose locks a new
/// process would never get.
std::vector<int> in_processes(int count, const std::function<int(int)>& work);

/// Standard output of a command of the shell, without the last line break. Fails the test if the command fails.
std::string output_of(const std::string& command);

}  // namespace sluice::store::test
