#include "store/records.h"

#include <array>

#include "store/error.h"

namespace sluice::store {

namespace {

constexpr std::array kStatusNames = {"queued",          "running", "passed",        "rejected_static", "incorrect_numerical",
                                     "below_threshold", "timeout", "runtime_error", "cancelled"};

}  // namespace

const char* name_of(Status status) { return kStatusNames.at(static_cast<size_t>(status)); }

Status status_of(const std::string& name) {
  for (size_t i = 0; i < kStatusNames.size(); ++i) {
    if (name == kStatusNames.at(i)) return static_cast<Status>(i);
  }
  throw StoreError(ErrorKind::kInvalid, "there is no status \"" + name + "\"", "queued, running, passed, rejected_static, ...");
}

bool is_final(Status status) { return status != Status::kQueued && status != Status::kRunning; }

}  // namespace sluice::store
