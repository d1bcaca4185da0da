#include "agents/harness/store_problem.h"

namespace sluice {
namespace {

int status_of(store::ErrorKind kind) {
  using store::ErrorKind;
  switch (kind) {
    case ErrorKind::kInvalid:
      return 422;
    case ErrorKind::kNotFound:
      return 404;
    case ErrorKind::kConflict:
      return 409;
    case ErrorKind::kQuota:
      return 429;
    case ErrorKind::kBusy:
    case ErrorKind::kLocked:
      return 503;
    case ErrorKind::kFull:
    case ErrorKind::kUnwritable:
      return 507;
    case ErrorKind::kCorrupted:
    case ErrorKind::kTooNew:
    case ErrorKind::kInternal:
      return 500;
  }
  return 500;
}

HttpProblem problem(int status, const std::string& detail, const std::string& hint) {
  HttpProblem made(status, detail);
  if (!hint.empty()) made.with("hint", hint);
  return made;
}

}  // namespace

HttpProblem problem_of(const store::StoreError& error) {
  const int status = status_of(error.kind());
  if (status == 500) throw store::StoreError(error);
  HttpProblem made = problem(status, error.what(), error.hint());
  if (status == 503) made.with_header("Retry-After", "1");
  return made;
}

HttpProblem problem_of(const InputError& error) { return problem(400, error.what(), error.hint()); }

}  // namespace sluice
