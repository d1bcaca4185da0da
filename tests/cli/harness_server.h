#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "tests/cli/program.h"

namespace sluice::test {

/// `sluice serve --data` on a free port, with an agent "ada"; what it judges it verifies alone, which is quick. Ends with this
/// object.
class HarnessServer {
 public:
  HarnessServer();
  ~HarnessServer();
  HarnessServer(const HarnessServer&) = delete;
  HarnessServer& operator=(const HarnessServer&) = delete;

  const std::string& address() const { return variables_.at("SLUICE_SERVER"); }
  std::string data() const { return folder_.path("data"); }
  /// The environment of clients.
  const std::map<std::string, std::string>& variables() const { return variables_; }
  /// Runs a line of bash as a client; `sluice` is the program.
  Ran run(const std::string& line) const;

 private:
  Folder folder_;
  std::map<std::string, std::string> variables_;
  pid_t process_ = 0;
};

}  // namespace sluice::test
