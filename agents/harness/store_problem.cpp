#include "agents/harness/store_problem.h"

#include <spdlog/spdlog.h>

namespace sluice {
namespace {

int status_of(store::ErrorKind kind) {
  using store::ErrorKind;
  switch (kind) {
    case ErrorKind::kInvalid:
    case ErrorKind::kTooLong:
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

/// What is told of an error; messages that name files of the server are for its log alone.
std::string detail_of(const store::StoreError& error) {
  using store::ErrorKind;
  switch (error.kind()) {
    case ErrorKind::kTooLong:
      return "the search took too long";
    case ErrorKind::kBusy:
    case ErrorKind::kLocked:
      return "the server's store is busy; try again";
    case ErrorKind::kFull:
      return "the server's disk is full; nothing was stored";
    case ErrorKind::kUnwritable:
      return "the server cannot write to its data folder; nothing was stored";
    default:
      return error.what();
  }
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
  const std::string detail = detail_of(error);
  if (detail != error.what()) spdlog::error("{}", error.what());
  HttpProblem made = problem(status, detail, status == 507 ? "tell whoever runs it" : error.hint());
  if (status == 503) made.with_header("Retry-After", "1");
  // Places come free one by one, as the submissions of the last 24 hours grow older; the store does not tell when.
  if (error.kind() == store::ErrorKind::kQuota) made.with_header("Retry-After", "3600");
  return made;
}

HttpProblem problem_of(const InputError& error) { return problem(400, error.what(), error.hint()); }

}  // namespace sluice
