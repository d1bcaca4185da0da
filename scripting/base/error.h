#pragma once

#include <stdexcept>
#include <string>

namespace sluice {

/// Where something was written by the user: a file (or chunk name) and a 1-based line; line 0 means "the file as a whole".
struct SourceLocation {
  std::string file;
  int line = 0;

  bool operator==(const SourceLocation&) const = default;
};

/// The user's input is at fault: a file, an option, a prompt. `what()` says what and where; `hint()` what to try.
/// The command line exits with 1.
class InputError : public std::runtime_error {
 public:
  explicit InputError(const std::string& message, std::string hint = {});
  const std::string& hint() const { return hint_; }

 private:
  std::string hint_;
};

/// A flow script is at fault. `what()` is the whole diagnostic, "file:line: message".
class FlowError : public InputError {
 public:
  FlowError(SourceLocation where, const std::string& message, std::string hint = {});
  const SourceLocation& where() const { return where_; }
  /// The message without its location, for structured output.
  const std::string& message() const { return message_; }

 private:
  SourceLocation where_;
  std::string message_;
};

/// Sluice is at fault: an invariant of ours does not hold. The command line exits with 2.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace sluice
