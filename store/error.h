#pragma once

#include <stdexcept>
#include <string>

namespace sluice::store {

/// What went wrong, for callers that answer differently (an HTTP status, an exit code).
enum class ErrorKind {
  kInvalid,     // a value that can never be right: a name, settings, a cursor
  kNotFound,    // no such agent, submission or parent
  kConflict,    // a lease that was lost, a name or an idempotency key that is taken
  kQuota,       // the agent has used up its quota
  kBusy,        // another connection wrote for longer than the busy timeout
  kTooLong,     // a search that was ended by its time limit
  kLocked,      // another process holds the data folder
  kFull,        // the disk is full
  kUnwritable,  // a folder or a file that cannot be read or written
  kCorrupted,   // database or repository are damaged
  kTooNew,      // written by a later version of Sluice
  kInternal,    // our bug
};

/// Every error of the store. It has a type of its own because store/ includes nothing else of ours; callers translate it.
class StoreError : public std::runtime_error {
 public:
  StoreError(ErrorKind kind, const std::string& message, std::string hint = {})
      : std::runtime_error(message), kind_(kind), hint_(std::move(hint)) {}

  ErrorKind kind() const { return kind_; }
  /// What to try, empty if there is nothing to say.
  const std::string& hint() const { return hint_; }

 private:
  ErrorKind kind_;
  std::string hint_;
};

}  // namespace sluice::store
