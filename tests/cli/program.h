#pragma once

#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace sluice::test {

struct Ran {
  int exit_code = -1;
  std::string out;
  std::string err;
  double seconds = 0;
};

/// Runs the built program with `arguments` in an empty directory of its own.
Ran run_sluice(const std::vector<std::string>& arguments);

/// Runs a line of bash in an empty directory of its own; "$SLUICE" is the built program.
Ran run_shell(const std::string& line);

/// A directory of this test, empty at first.
class Folder {
 public:
  std::string path(const std::string& name) const { return directory_.file(name); }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& content) const;
  /// A copy of the mini model's directory: links to its files.
  std::string link_mini_model(const std::string& name) const;

 private:
  testing::TemporaryDirectory directory_;
};

std::string read_file(const std::string& path);

}  // namespace sluice::test
