#include "store/records.h"

#include <array>

#include "store/error.h"
#include "store/studies.h"

namespace sluice::store {

namespace {

constexpr std::array kStatusNames = {"queued",          "running", "passed",        "rejected_static", "incorrect_numerical",
                                     "below_threshold", "timeout", "runtime_error", "cancelled"};
constexpr std::array kConfirmationStateNames = {"queued", "running", "done", "failed"};
constexpr std::array kStudyStateNames = {"open", "closed"};
constexpr std::array kTrialStateNames = {"waiting", "running", "complete", "failed", "pruned"};

}  // namespace

const char* name_of(Status status) { return kStatusNames.at(static_cast<size_t>(status)); }

Status status_of(const std::string& name) {
  for (size_t i = 0; i < kStatusNames.size(); ++i) {
    if (name == kStatusNames.at(i)) return static_cast<Status>(i);
  }
  throw StoreError(ErrorKind::kInvalid, "there is no status \"" + name + "\"", "queued, running, passed, rejected_static, ...");
}

bool is_final(Status status) { return status != Status::kQueued && status != Status::kRunning; }

const char* name_of(ConfirmationState state) { return kConfirmationStateNames.at(static_cast<size_t>(state)); }

ConfirmationState confirmation_state_of(const std::string& name) {
  for (size_t i = 0; i < kConfirmationStateNames.size(); ++i) {
    if (name == kConfirmationStateNames.at(i)) return static_cast<ConfirmationState>(i);
  }
  throw StoreError(ErrorKind::kInvalid, "there is no state of a confirmation \"" + name + "\"",
                   "queued, running, done or failed");
}

bool is_final(ConfirmationState state) { return state == ConfirmationState::kDone || state == ConfirmationState::kFailed; }

const char* name_of(StudyState state) { return kStudyStateNames.at(static_cast<size_t>(state)); }

StudyState study_state_of(const std::string& name) {
  for (size_t i = 0; i < kStudyStateNames.size(); ++i) {
    if (name == kStudyStateNames.at(i)) return static_cast<StudyState>(i);
  }
  throw StoreError(ErrorKind::kInvalid, "there is no state of a study \"" + name + "\"", "open or closed");
}

const char* name_of(TrialState state) { return kTrialStateNames.at(static_cast<size_t>(state)); }

TrialState trial_state_of(const std::string& name) {
  for (size_t i = 0; i < kTrialStateNames.size(); ++i) {
    if (name == kTrialStateNames.at(i)) return static_cast<TrialState>(i);
  }
  throw StoreError(ErrorKind::kInvalid, "there is no state of a trial \"" + name + "\"",
                   "waiting, running, complete, failed or pruned");
}

TrialState trial_state_of(Status status) {
  switch (status) {
    case Status::kQueued:
      return TrialState::kWaiting;
    case Status::kRunning:
      return TrialState::kRunning;
    case Status::kPassed:
      return TrialState::kComplete;
    case Status::kBelowThreshold:
      return TrialState::kPruned;
    default:
      return TrialState::kFailed;
  }
}

bool is_final(TrialState state) { return state != TrialState::kWaiting && state != TrialState::kRunning; }

}  // namespace sluice::store
