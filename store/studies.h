#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/records.h"

// Experiments: a study has trials, each a flow with parameters, of which many may be the same flow. The words are Optuna's.

namespace sluice::store {

using StudyId = int64_t;

enum class StudyState : uint8_t {
  kOpen,
  kClosed,  // takes no more trials; those that it has go on
};
/// "open", "closed".
const char* name_of(StudyState state);
/// Throws StoreError (kInvalid) if there is no such state.
StudyState study_state_of(const std::string& name);

enum class TrialState : uint8_t {
  kWaiting,   // its submission, or itself if it has a seed, is in the queue
  kRunning,   // that is being judged
  kComplete,  // it has values to be compared
  kFailed,
  kPruned,  // ended early since it would not have been among the best; what it has of values is of the part before that
};
/// "waiting", "running", "complete", "failed", "pruned".
const char* name_of(TrialState state);
/// Throws StoreError (kInvalid) if there is no such state.
TrialState trial_state_of(const std::string& name);
/// How trials of a submission stand: kPassed is kComplete, and kBelowThreshold kPruned, for then later stages were not asked.
TrialState trial_state_of(Status status);
/// Neither waiting nor running.
bool is_final(TrialState state);

struct StudyDraft {
  std::string name;  // of which an agent has one
  std::string goal;
  std::string settings = "{}";  // a JSON object, of the submissions of all its trials
};

struct CreatedStudy {
  StudyId id = 0;
  bool is_new = false;  // false: the agent has a study of this name, goal and settings
};

struct Study {
  StudyId id = 0;
  std::string agent;
  std::string name;
  std::string goal;
  std::string settings;  // JSON, keys sorted
  StudyState state = StudyState::kOpen;
  Time created = 0;
  std::map<TrialState, int64_t> trials;  // how many are in each state that any is in
};

/// An empty member filters nothing.
struct StudyFilter {
  std::string agent = {};
  std::optional<StudyState> state = {};
};

struct StudyPage {
  std::vector<Study> studies;    // newest first
  std::string next;              // cursor of the next page, empty after the last
  std::optional<int64_t> total;  // how many the filter lets through, on the first page
};

/// A trial to be added, of one of both.
struct TrialDraft {
  std::optional<SubmissionId> submission = {};  // one that has the settings of the study
  std::optional<Draft> flow = {};               // handed in with the settings of the study and without a key
  std::string parameters = "{}";                // a JSON object: the point of the grid
  std::optional<int64_t> seed = {};             // 0 or more: it is judged by itself with questions of this seed
};

struct AddedTrials {
  int64_t first = 0;  // number of the first
  int64_t count = 0;
  bool is_new = false;       // false: the idempotency key was there
  bool has_new_job = false;  // whether anything came into the queue
};

struct Trial {
  StudyId study = 0;
  int64_t number = 0;  // in its study, from 0
  std::string agent;   // who added it
  SubmissionId submission = 0;
  std::string parameters;  // JSON, keys sorted
  std::optional<int64_t> seed;
  TrialState state = TrialState::kWaiting;
  bool is_told = false;                    // ended by its agent
  std::optional<EvaluationId> evaluation;  // that ended it; none if nothing was judged before the end
  std::optional<Status> status;            // of that evaluation
  std::string message;                     // and why
  std::string hint;                        // and what to do
  Time created = 0;
  std::optional<Time> started;  // when judging began
  std::optional<Time> finished;
  std::vector<Metric> values;  // by name: told, or the evaluation's as a whole
};

/// What an agent says of a trial of its own: of kComplete at least one value, of kFailed none.
struct Told {
  TrialState state = TrialState::kComplete;
  std::map<std::string, double> values = {};
};

/// An empty member filters nothing.
struct TrialFilter {
  std::optional<TrialState> state = {};
  std::optional<SubmissionId> submission = {};
};

struct TrialPage {
  std::vector<Trial> trials;     // by number
  std::string next;              // cursor of the next page, empty after the last
  std::optional<int64_t> total;  // how many the filter lets through, on the first page
};

/// By which value trials are compared.
struct Objective {
  std::string metric;
  bool is_maximized = true;
  int limit = 50;
  int64_t skip = 0;  // trials before the first one
};

struct BestTrials {
  std::vector<Trial> trials;  // complete ones with a value of the metric, the best first, then by number
  int64_t total = 0;          // of all there are
};

}  // namespace sluice::store
