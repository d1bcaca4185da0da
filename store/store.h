#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/records.h"
#include "store/studies.h"

namespace sluice::store {

class Database;
struct Job;

/// The clock of the machine.
Time now();

struct StoreOptions {
  int busy_timeout_ms = 10000;
  int tries = 3;                      // attempts that may fail before the submission ends as runtime_error
  std::function<Time()> clock = now;  // tests bring their own
};

/// All that is known of agents, submissions and evaluations: one connection to the database of a data folder. It belongs to one
/// thread at a time; each thread and each process opens its own on the same file. Every operation is one transaction: it happens
/// as a whole or, when StoreError is thrown, not at all.
class Store {
 public:
  /// The schema must be the current one (migrations.h, which data_folder.h sees to).
  explicit Store(const std::string& path, StoreOptions options = {});
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;

  // Agents (agents.cpp)

  /// Names are safe as Git refs: lower-case letters, digits, - and _, not starting with a sign. Throws kConflict if it is taken.
  NewAgent create_agent(const std::string& name, Role role, int64_t quota);
  std::optional<Agent> find_agent(const std::string& name);
  /// Whose token it is. Takes the same time however much of it is right.
  std::optional<Agent> agent_of_token(const std::string& token);
  /// A new token; the old one is of no use from now on. Throws kNotFound.
  std::string replace_token(const std::string& name);
  void set_quota(const std::string& name, int64_t quota);
  Quota quota_of(const std::string& name);
  /// All of them, by name.
  std::vector<AgentSummary> agents();

  // Submissions (submissions.cpp)

  /// Puts a flow in the queue. The same script with the same settings, whoever brings it, is the same submission; one that ended
  /// without a verdict (runtime_error, or cancelled if its owner or an administrator brings it) is judged after all, which counts
  /// as a new one. Throws kInvalid, kNotFound
  /// (agent, parent), kQuota, kConflict (the idempotency key came with something else).
  Submitted submit(const std::string& agent, const Draft& draft);
  std::optional<Submission> get(SubmissionId id);
  std::optional<SubmissionSummary> summary(SubmissionId id);
  /// Its status alone, for those that wait for its end.
  std::optional<Status> find_status(SubmissionId id);
  /// Newest first. `cursor` is empty or a page's `next`; what is added meanwhile moves nothing. Throws kInvalid.
  Page list(const Filter& filter, const std::string& cursor = {}, int limit = 50);
  /// All attempts to judge it, the first one first, without the bytes of artifacts. Those of its trials with seeds and of its
  /// confirmations are not among them, here and below.
  std::vector<Evaluation> evaluations(SubmissionId submission);
  std::optional<Evaluation> last_evaluation(SubmissionId submission);
  /// All of the last verdict, those of single tasks, too.
  std::vector<Metric> metrics(SubmissionId submission);
  /// Of the last verdict.
  std::optional<Artifact> artifact(SubmissionId submission, const std::string& name);
  /// `model_digest` of the settings of submissions whose settings name that `model`, each once; those that say none are left out.
  std::vector<std::string> model_digests(const std::string& model);
  /// Whether anything has been judged.
  bool has_verdicts();
  /// False if it was final already.
  bool cancel(SubmissionId submission);
  /// Judges a finished submission once more. A confirmation of the last verdict stays with that; one that has not ended fails.
  /// So are those that share its verdict, once it has another. Throws kNotFound, kConflict if it is queued or running, or shares
  /// the verdict of another one.
  void judge_again(SubmissionId submission, int64_t priority = 0);

  // Confirmations (confirmations.cpp): each verdict `passed` has one at most

  /// Has a submission judged once more by questions that nobody knows yet, for `agent`, whose quota it counts in, but for that of
  /// a final that the server made: with a confirmation of its flow it is confirmed once for nothing. Asked for again, it is the
  /// one that there is; one that the server has asked for and that waits takes its place in the queue among what agents ask for,
  /// and one that failed is judged by new questions, which both count in the quota, too. Throws kNotFound (agent, submission),
  /// kConflict (it has not passed, or is not judged yet), kQuota.
  AskedConfirmation ask_confirmation(const std::string& agent, SubmissionId submission);
  /// The same by itself, behind all that agents ask for and in no quota: of a submission that passed, has no confirmation and is
  /// on the front of its model, device and suite (pareto_front). Of an agent one such waits at a time for these: the one with
  /// more of the metric, or as much and more speed. False if nothing was asked for.
  bool confirm_if_on_front(SubmissionId submission, const std::string& metric, const std::string& speed);
  /// Of its last verdict.
  std::optional<Confirmation> confirmation(SubmissionId submission);
  /// What ended that, or else the last attempt at it.
  std::optional<Evaluation> confirmation_evaluation(SubmissionId submission);

  // Finals (finals.cpp, finals_comparison.cpp)

  /// Has submissions that passed by `run.first` judged once more with the settings of the run: each by the submission with the
  /// same script and these settings, which is made where nobody has handed it in. It has the agent, name, notes and parents of
  /// the first, is in no quota, and waits behind all that agents ask for. Those with more of the metric go first, and few wait at
  /// a time: to be asked again whenever something has ended. What has such a final already is left alone, so is what shares the
  /// verdict of another one. The finals of those that it was done for.
  std::vector<SubmissionId> ask_finals(const FinalRun& run);
  /// What both models say of the flows that have a final, by a metric of which more is better; of each list at most `limit`.
  FinalsComparison compare_finals(const std::string& metric, const Filter& filter = {}, int limit = 20);

  // Studies (studies.cpp) and their trials (trials.cpp, trial_lists.cpp). An agent makes in any 24 hours at most as many studies,
  // and at most as many trials, as new submissions; an administrator any number.

  /// Throws kInvalid, kNotFound (agent), kQuota, kConflict (another study of this agent has the name).
  CreatedStudy create_study(const std::string& agent, const StudyDraft& draft);
  std::optional<Study> study(StudyId id);
  /// `cursor` is empty or a page's `next`. Throws kInvalid.
  StudyPage studies(const StudyFilter& filter, const std::string& cursor = {}, int limit = 50);
  /// Throws kNotFound.
  void set_study_state(StudyId id, StudyState state);
  /// Adds trials, all or none, in this order. Each follows its submission until that has a verdict, or until it is told
  /// otherwise; one whose submission has ended takes that at once. The same key adds nothing again. `may_be_added` is a check of
  /// the caller's, which throws: what is there already is not asked for again. Throws what `submit` throws, kNotFound (study,
  /// submission), kConflict (closed; the key came with something else; a seed for what its owner cancelled, unless the agent is
  /// that or an administrator), kInvalid (a submission with other settings; more than the whole quota of a day).
  AddedTrials add_trials(const std::string& agent, StudyId study, const std::vector<TrialDraft>& drafts,
                         const std::string& idempotency_key = {}, const std::function<void()>& may_be_added = {});
  std::optional<Trial> trial(StudyId study, int64_t number);
  /// What ended a trial; of one with a seed the last attempt to judge it, however it ended.
  std::optional<Evaluation> trial_evaluation(StudyId study, int64_t number);
  /// Of that.
  std::optional<Artifact> trial_artifact(StudyId study, int64_t number, const std::string& name);
  /// `cursor` is empty or a page's `next`. Throws kInvalid.
  TrialPage trials(StudyId study, const TrialFilter& filter, const std::string& cursor = {}, int limit = 50);
  BestTrials best_trials(StudyId study, const Objective& objective);
  /// Ends a trial. Its submission is judged all the same; a trial with a seed no more. False if it was told the same before.
  /// Throws kInvalid, kNotFound, kConflict if it has ended otherwise.
  bool tell(StudyId study, int64_t number, const Told& told);

  // The queue (claims.cpp, queue.cpp)

  /// Takes the next job, a submission, a trial with a seed or a confirmation, for `duration` microseconds: highest priority, then
  /// the agent with the fewest jobs running, then who was served longest ago, then submissions before all else, then the oldest.
  /// Empty if nothing waits that `equipment` is for.
  std::optional<Lease> claim(const std::string& worker, Time duration, const Equipment& equipment = {});
  /// False where the settings of a submission ask for another model or device.
  bool is_suited(SubmissionId submission, const Equipment& equipment);
  /// How many wait for another model or device than any of those.
  int64_t count_waiting_for_others(const std::vector<Equipment>& equipments);
  /// Throws kConflict if the lease was lost (expired and taken away, or cancelled): the worker must stop. Writes nothing.
  void check_lease(const Lease& lease);
  /// Throws as `check_lease`.
  Lease renew(const Lease& lease, Time duration);
  /// Of a script whose flow is known by now: `fingerprint` are bytes that only the same flow has. Where another submission with
  /// the same fingerprint and settings (but for "seconds") has a verdict, that ends this one, which keeps its own `artifacts`;
  /// where another is being judged, this one goes back to the queue until it has ended. What ended by an error or for lack of
  /// time is shared by nobody. Throws kConflict if the lease was lost, kInvalid if it is not of a submission itself.
  Sharing share_verdict(const Lease& lease, const std::string& fingerprint, const std::vector<Artifact>& artifacts);
  /// The end of a submission. Throws kConflict if the lease was lost; then nothing is written.
  void complete(const Lease& lease, const Verdict& verdict);
  /// Gives a lease back as if it had never been claimed: the attempt counts for nothing. It waits `delay` microseconds (at most a
  /// minute), so that others go first. Throws kConflict if the lease was lost.
  void release(const Lease& lease, Time delay = 0);
  /// The attempt came to nothing. It waits `delay` microseconds (at most a minute) for the next, or ends as runtime_error after
  /// the last one; then `artifacts` are kept, too.
  Status fail(const Lease& lease, const std::string& reason, Time delay = 0, const std::vector<Artifact>& artifacts = {});
  /// Takes expired leases away, as `fail` would, but none of workers that the caller knows to be alive, whatever the clock says.
  /// The submissions concerned.
  std::vector<SubmissionId> expire_leases(const std::function<bool(const std::string& worker)>& is_alive = {});
  /// Takes all leases away: for who knows that nobody holds one, such as a server that has just got the data folder. The attempts
  /// ended with the server before, through no fault of the submissions: they do not count as tries, up to the tenth. The
  /// submissions concerned.
  std::vector<SubmissionId> release_leases();

  // Events (events.cpp). The operations above append "submitted", "running", "retried", "cancelled" and "finished",
  // "confirmation" with its state, and "final" of what has got one.

  int64_t append_event(const std::string& kind, std::optional<SubmissionId> submission, const std::string& data);
  /// Of a submission that is being judged; of a trial nothing is appended. Throws kConflict if the lease was lost: nothing
  /// follows its end.
  int64_t append_event(const std::string& kind, const Lease& lease, const std::string& data);
  /// What came after `sequence`, oldest first.
  std::vector<Event> events_after(int64_t sequence, int limit);
  int64_t last_event();

  // Comparisons (comparisons.cpp), each of the last verdicts of submissions that passed, or have the filter's status. Leaderboard
  // and front take what was confirmed in the place of what was judged, and leave out what its confirmation refutes (standings.h).

  /// The best first. Ranks are shared where intervals do not tell entries apart (ranks.h).
  std::vector<Ranked> leaderboard(const Ranking& ranking);
  /// How many there would be of the leaderboard without a limit.
  int64_t count_ranked(const Ranking& ranking);
  /// How many there would be of the history without a limit.
  int64_t count_measured(const Ranking& ranking);
  /// Submissions that no other beats both in a metric of which more is better and in speed, the best in the metric first.
  std::vector<FrontPoint> pareto_front(const std::string& metric, const std::string& speed, const Filter& filter = {});
  /// By the time of the verdict; of more than the limit the newest, after `skip` newer ones.
  std::vector<HistoryPoint> history(const Ranking& ranking);
  /// Without `submission` itself: at most `limit`, after the `skip` nearest. What is handed in meanwhile may push one onto the
  /// next page, so that it is there twice; none is missed that was there before.
  Relatives ancestors(SubmissionId submission, int64_t skip = 0, int64_t limit = Limits::kRelatives);
  Relatives descendants(SubmissionId submission, int64_t skip = 0, int64_t limit = Limits::kRelatives);
  /// All that is related in any way, with `submission`.
  Relatives family(SubmissionId submission, int64_t skip = 0, int64_t limit = Limits::kRelatives);

 private:
  int64_t append(const std::string& kind, std::optional<SubmissionId> submission, const std::string& data);
  Agent required_agent(const std::string& name);
  /// `submit` inside a transaction; of a checked draft. `spent` as in `require_quota`.
  Submitted take(const Agent& agent, const Draft& checked, int64_t spent = 0);
  /// Throws kQuota unless the agent may still have something judged; kInvalid if what it `spent` of its quota in the same request
  /// is all of it, which no time mends.
  void require_quota(const Agent& agent, int64_t spent = 0);
  /// Throws kQuota unless the agent may still make `count` of what `table` has; kInvalid if a day is never enough for them.
  void require_room(const Agent& agent, const char* table, int64_t count);
  SubmissionId make_final(SubmissionId first, const std::string& settings);
  void enqueue(SubmissionId submission, int64_t priority);
  void requeue(SubmissionId submission, int64_t priority);
  void enqueue_trial(int64_t trial);
  void enqueue_confirmation(int64_t confirmation, int64_t priority);
  /// Draws other questions for a confirmation and puts it in the queue.
  void begin_confirmation(int64_t confirmation, int64_t agent, bool is_automatic);
  /// A submission that is judged again needs no confirmation of the verdict before.
  void end_confirmation(SubmissionId submission);
  /// Takes away the job that `condition` names by `id`, and ends the attempt at it, if one runs: that is returned.
  std::optional<EvaluationId> dequeue(const std::string& condition, int64_t id, const std::string& why);
  /// Of an attempt that counts for nothing.
  void put_back(const Job& job, EvaluationId evaluation, Time delay);
  /// Once a submission has ended: who shared its verdict before, or waits for it as the same flow, is looked at again.
  void wake_same(SubmissionId submission);
  void set_running(const Job& job, Time time, int64_t attempt);
  void close_evaluation(EvaluationId evaluation, const std::string& outcome, const Verdict& verdict, bool final);
  void finish(const Job& job, EvaluationId evaluation, Status status);
  Status retry_or_end(const Job& job, EvaluationId evaluation, const std::string& outcome, const std::string& reason, Time delay,
                      const std::vector<Artifact>& artifacts = {});
  void back_to_queue(const Job& job, const std::string& outcome, Time delay, bool counts);
  Relatives related(const std::string& recursion, SubmissionId submission, bool with_itself, int64_t skip, int64_t most);

  StoreOptions options_;
  std::unique_ptr<Database> database_;
};

}  // namespace sluice::store
