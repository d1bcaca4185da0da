#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sluice::store {

/// Microseconds since 1970 in UTC.
using Time = int64_t;
using SubmissionId = int64_t;
using EvaluationId = int64_t;

enum class Status : uint8_t {
  kQueued,
  kRunning,
  kPassed,
  kRejectedStatic,
  kIncorrectNumerical,
  kBelowThreshold,
  kTimeout,
  kRuntimeError,
  kCancelled,
};
/// "queued", "running", "passed", "rejected_static", ...
const char* name_of(Status status);
/// Throws StoreError (kInvalid) if there is no such status.
Status status_of(const std::string& name);
/// Neither queued nor running.
bool is_final(Status status);

enum class Role : uint8_t { kAgent, kAdmin };

struct Agent {
  int64_t id = 0;
  std::string name;
  Role role = Role::kAgent;
  int64_t quota = 0;  // new submissions, trials with seeds and confirmations, in any 24 hours
  Time created = 0;
};

/// An agent and its token, which is nowhere to be found later.
struct NewAgent {
  Agent agent;
  std::string token;
};

struct Quota {
  int64_t limit = 0;
  int64_t used = 0;  // new submissions, trials with seeds and confirmations, in the last 24 hours
};

/// What an agent hands in.
struct Draft {
  std::string name;
  std::string notes;
  std::string script;
  std::string settings = "{}";  // a JSON object; "model", "device" and "suite" can be filtered by
  std::vector<SubmissionId> parents;
  int64_t priority = 0;         // higher goes first
  std::string idempotency_key;  // empty: none
};

struct Submitted {
  SubmissionId id = 0;
  bool is_new = false;  // false: the same script with the same settings was there, or the idempotency key was
};

struct Submission {
  SubmissionId id = 0;
  std::string agent;
  std::string name;
  std::string notes;
  std::string script;
  std::string settings;      // JSON, keys sorted
  std::string content_hash;  // of script and settings, in hexadecimal digits
  Status status = Status::kQueued;
  int64_t priority = 0;
  Time created = 0;
  Time updated = 0;
  std::vector<SubmissionId> parents;
  std::optional<EvaluationId> judged;  // the last evaluation with a verdict
};

/// What somebody judges with. Empty: with anything.
struct Equipment {
  std::string model;         // as settings name it
  std::string model_digest;  // of settings that have one; of the others their model is compared
  std::string device;
};

/// How what passed is judged once more (Store::ask_finals).
struct FinalRun {
  Equipment first;       // what it passed on
  std::string settings;  // of finals: a JSON object
  std::string metric;    // the flows with more of it go first
  std::string suite;     // by which flows may pass without it: the server's own may ask nothing, another such sorts nothing out
};

/// What there is to know for a worker of a confirmation that it judges.
struct ConfirmationJob {
  int64_t id = 0;      // its row
  std::string seed;    // of its questions, in hexadecimal digits
  int64_t tries = 0;   // as in Confirmation
  int64_t factor = 0;  // so many times the samples of the suite
};

/// The right to judge a submission, or a trial or the confirmation of it, until it expires.
struct Lease {
  SubmissionId submission = 0;
  EvaluationId evaluation = 0;
  int64_t attempt = 0;  // from 1
  std::string worker;
  Time expiry = 0;
  // Neither trial nor confirmation: the submission itself is judged, as all are.
  std::optional<int64_t> trial = {};  // its row
  std::optional<int64_t> seed = {};   // of the trial
  std::optional<ConfirmationJob> confirmation = {};
};

/// What becomes of a submission that turns out to be a flow (Store::share_verdict).
enum class Sharing : uint8_t {
  kNone,     // it is to be judged
  kShared,   // another one is the same, and was judged: the verdict is its own, too
  kAwaited,  // another one is the same, and is being judged: it is back in the queue until then
};

enum class StageStatus : uint8_t { kPassed, kFailed, kSkipped };

struct StageResult {
  std::string stage;
  StageStatus status = StageStatus::kPassed;
  double seconds = 0;
  std::string message;
  std::string details = "{}";  // JSON
};

struct Metric {
  std::string name;
  std::string task;    // empty: of the whole evaluation
  int64_t length = 0;  // tokens, 0: of all lengths
  double value = 0;
  std::optional<double> low;
  std::optional<double> high;
  std::string unit;
};

struct Artifact {
  std::string name;
  std::string media_type;
  std::string bytes;  // at most kArtifactBytes are kept; empty in a list of evaluations, `Store::artifact` reads them
  int64_t size = 0;   // before they were capped; set by the store
};

enum class ConfirmationState : uint8_t {
  kQueued,
  kRunning,
  kDone,    // there is a verdict
  kFailed,  // it came to none: it may be asked for again
};
/// "queued", "running", "done", "failed".
const char* name_of(ConfirmationState state);
/// Throws StoreError (kInvalid) if there is no such state.
ConfirmationState confirmation_state_of(const std::string& name);
bool is_final(ConfirmationState state);

/// A submission that passed, judged once more by questions that nobody could know when it was handed in.
struct Confirmation {
  int64_t id = 0;               // its row
  SubmissionId submission = 0;  // or one that shares its verdict, if that was asked for
  EvaluationId judged = 0;      // the verdict that it confirms
  std::string agent;            // who asked for it; whose submission it is, if the server did
  bool is_automatic = false;    // the server asked for it
  ConfirmationState state = ConfirmationState::kQueued;
  int64_t tries = 0;             // which one it is, of those with the same model, device and suite: intervals are wider for that
  int64_t factor = 0;            // so many times the samples of the suite
  std::string seed;              // of its questions, in hexadecimal digits; empty until it is done
  std::optional<Status> status;  // its verdict, once it is done: kPassed, or what the submission fell to
  std::string message;
  std::string hint;
  Time created = 0;
  std::optional<Time> finished;
  std::vector<Metric> metrics;  // those of the whole evaluation, by name

  /// The flow does not pass these questions: it has no place among those that passed.
  bool is_refutation() const { return status && *status != Status::kPassed; }
};

struct AskedConfirmation {
  Confirmation confirmation;
  bool is_new = false;  // false: it was there, or was asked for before
};

/// The same flow as a submission that passed, for another model: a submission of its own.
struct Final {
  SubmissionId first = 0;       // that passed
  SubmissionId submission = 0;  // itself
  std::string settings = "{}";  // JSON
  Status status = Status::kQueued;
  std::optional<Status> confirmed = {};  // what its confirmation says, once it is done
  std::optional<Time> finished = {};     // when what it stands for was found
  std::vector<Metric> metrics = {};      // that it stands for: of whole evaluations, by name, as confirmed or else as judged

  bool passed() const { return status == Status::kPassed && confirmed.value_or(Status::kPassed) == Status::kPassed; }
};

/// A submission without what is long.
struct SubmissionSummary {
  SubmissionId id = 0;
  std::string agent;
  std::string name;
  Status status = Status::kQueued;
  Time created = 0;
  Time updated = 0;
  std::string settings = "{}";  // JSON
  std::vector<SubmissionId> parents = {};
  std::vector<Metric> metrics = {};               // of the last verdict: those of the whole evaluation, by name
  std::optional<Confirmation> confirmation = {};  // of the last verdict
  std::optional<SubmissionId> same_as = {};       // the same flow with the same settings, whose verdict this one shares
  std::optional<Final> final = {};                // if it has one
  std::optional<SubmissionId> final_of = {};      // what this one is the final of; of several the oldest
};

/// An empty member filters nothing.
struct Filter {
  std::string agent = {};
  std::optional<Status> status = {};
  std::string model = {};
  std::string device = {};
  std::string suite = {};
  std::string text = {};     // part of name, notes or script; ASCII letters in either case
  bool with_finals = false;  // those that the server made, too, which only a filter by their model shows otherwise
};

struct Page {
  std::vector<SubmissionSummary> submissions;  // newest first
  std::string next;                            // cursor of the next page, empty after the last
  /// How many the filter lets through, on the first page; not of a search for text that found more than a page: it stops there.
  std::optional<int64_t> total;
};

/// What a worker found.
struct Verdict {
  Status status = Status::kPassed;  // a final one
  std::string message;
  std::string hint;
  std::string seed;
  std::vector<StageResult> stages;
  std::vector<Metric> metrics;
  std::vector<Artifact> artifacts;
};

/// One attempt to judge a submission.
struct Evaluation {
  EvaluationId id = 0;
  SubmissionId submission = 0;
  int64_t attempt = 0;
  std::string worker;
  Time started = 0;
  std::optional<Time> finished;
  std::string outcome;  // "judged", "failed", "expired", "cancelled"; empty while it runs
  bool has_verdict = false;
  Verdict verdict;  // without a verdict: only the message, why the attempt failed
};

struct Event {
  int64_t sequence = 0;  // rises by time; numbers may be left out
  Time time = 0;
  std::optional<SubmissionId> submission;
  std::string kind;
  std::string data;  // JSON
};

/// One metric of all submissions that have it, for comparison.
struct Ranking {
  std::string metric = {};
  std::string task = {};
  int64_t length = 0;
  bool higher_is_better = true;
  Filter filter = {};
  int limit = 100;
  int64_t skip = 0;        // entries before the first one
  bool by_finals = false;  // what passed its final stands first, by that; what did not pass it last

  /// Of whole evaluations, not of one task or length.
  bool is_of_all() const { return task.empty() && length == 0; }
};

struct Ranked {
  SubmissionSummary submission;
  Metric metric;
  Time finished = 0;
  int64_t rank = 0;           // on a leaderboard: one more than there are better ones (ranks.h)
  bool is_confirmed = false;  // the metric is that of the confirmation
  bool by_final = false;      // the metric is that of the final
};

struct FrontPoint {
  SubmissionSummary submission;
  double value = 0;  // of the metric
  double speed = 0;
  bool is_confirmed = false;  // the value is that of the confirmation
};

/// A point of a metric's history: what was measured, and the best so far.
struct HistoryPoint {
  SubmissionId submission = 0;
  std::string agent;
  std::string name;
  Time finished = 0;
  double value = 0;
  double best = 0;
  std::string settings;
};

/// What one model says of a flow.
struct Judgement {
  std::string settings = "{}";      // JSON, without how long it may take
  Status status = Status::kQueued;  // what it stands for: that of the confirmation, once there is one
  std::optional<Metric> metric = {};
};

/// A flow that two models have judged.
struct Finalist {
  SubmissionId submission = 0;
  std::string agent;
  std::string name;
  Judgement first;
  SubmissionId final_submission = 0;
  Judgement last;  // of the final
};

/// Where two models agree on the same flows, and where they do not.
struct FinalsComparison {
  int64_t flows = 0;                                    // that have a verdict of both
  int64_t passed_both = 0;                              // of these
  std::optional<double> agreement;                      // Kendall's tau-b of the metric, of four flows or more
  std::vector<std::pair<Finalist, Finalist>> reversed;  // the one is better by the final, the other by the first model
  int64_t reversed_total = 0;
  std::vector<Finalist> divided;  // that passed on one alone
  int64_t divided_total = 0;
};

/// An agent and how it fares.
struct AgentSummary {
  std::string name;
  Role role = Role::kAgent;
  Time created = 0;
  int64_t submissions = 0;
  int64_t passed = 0;
  std::optional<double> best_score;  // of those that passed, as confirmed where they are
};

/// Some of a submission's relatives, by id: the nearest, or those that follow on them.
struct Relatives {
  std::vector<SubmissionSummary> nodes;
  int64_t total = 0;  // of all there are
  int64_t next = 0;   // where the rest begins, counted from the nearest; 0: there is none
};

/// Limits of what is stored; more is refused, except of artifacts, which are capped.
struct Limits {
  static constexpr size_t kAgentName = 39;
  static constexpr size_t kName = 200;
  static constexpr size_t kNotes = 16 << 10;
  static constexpr size_t kScript = 64 << 10;
  static constexpr size_t kSettings = 16 << 10;
  static constexpr size_t kParents = 16;
  static constexpr size_t kIdempotencyKey = 200;
  static constexpr size_t kSoughtText = 100;
  static constexpr size_t kArtifactBytes = 1 << 20;
  static constexpr size_t kGoal = 16 << 10;
  static constexpr size_t kParameters = 4 << 10;
  static constexpr size_t kTrialsAtOnce = 100;
  static constexpr size_t kToldValues = 32;
  static constexpr int kPage = 200;
  static constexpr int kRelatives = 2000;
};

}  // namespace sluice::store
