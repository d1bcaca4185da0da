#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sluice::test {

/// A program on a terminal of its own.
class Terminal {
 public:
  /// `command`: the program and its arguments. `variables` are added to the environment; there are no colours.
  explicit Terminal(std::vector<std::string> command, const std::map<std::string, std::string>& variables = {});
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) const;
  /// Reads until `text` has been printed since the last call; false if it is not within `most`.
  bool shows(const std::string& text, std::chrono::seconds most = std::chrono::minutes(2));
  /// What has been read since then.
  const std::string& rest() const { return seen_; }
  /// Its exit code; none if it has not ended within two minutes. A key that ends it is typed once a second until then: one that
  /// comes before a line editor has made the terminal its own is lost.
  std::optional<int> exit_code(const std::string& key = {});

 private:
  int terminal_ = -1;
  pid_t process_ = 0;
  std::string seen_;
};

/// Tests on a pseudo-terminal, where the machine has any.
class TerminalTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

}  // namespace sluice::test
