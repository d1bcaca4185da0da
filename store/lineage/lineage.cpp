#include "store/lineage/lineage.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "store/database/migrations.h"
#include "store/error.h"
#include "store/folder/files.h"
#include "store/lineage/lineage_objects.h"

namespace sluice::store {

namespace {

namespace fs = std::filesystem;

/// Commits or notes in one transaction: writers wait for that long.
constexpr int kBatch = 64;

void remove_locks(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::path& path : entries_of(folder)) {
    if (path.extension() == ".lock") {
      fs::remove(path, ignored);
    } else if (fs::symlink_status(path, ignored).type() == fs::file_type::directory) {
      remove_locks(path);
    }
  }
}

/// Finished submissions and their ancestors without a commit, parents first.
std::vector<SubmissionId> missing_commits(Database& database) {
  Query query(database,
              "WITH RECURSIVE member (id) AS ("
              "SELECT id FROM submissions WHERE first_finished IS NOT NULL AND id NOT IN (SELECT submission FROM commits) "
              "UNION SELECT p.parent FROM parents p JOIN member m ON p.submission = m.id) "
              "SELECT id FROM member WHERE id NOT IN (SELECT submission FROM commits) ORDER BY id");
  std::vector<SubmissionId> ids;
  while (query.step()) ids.push_back(query.integer(0));
  return ids;
}

struct Note {
  SubmissionId submission = 0;
  std::string commit;
  EvaluationId evaluation = 0;
};

std::vector<Note> missing_notes(Database& database) {
  Query query(database,
              "SELECT c.submission, c.hash, s.judged FROM commits c JOIN submissions s ON s.id = c.submission "
              "WHERE s.judged IS NOT NULL AND s.judged IS NOT c.noted ORDER BY c.submission");
  std::vector<Note> notes;
  while (query.step()) notes.push_back({query.integer(0), query.text(1), query.integer(2)});
  return notes;
}

struct AgentTip {
  std::string agent;
  std::string commit;
};

std::vector<AgentTip> agent_tips(Database& database) {
  Query query(database,
              "SELECT a.name, c.hash FROM (SELECT s.agent AS agent, MAX(s.id) AS id FROM commits d "
              "JOIN submissions s ON s.id = d.submission GROUP BY s.agent) t "
              "JOIN agents a ON a.id = t.agent JOIN commits c ON c.submission = t.id ORDER BY a.name");
  std::vector<AgentTip> tips;
  while (query.step()) tips.push_back({query.text(0), query.text(1)});
  return tips;
}

}  // namespace

void remove_leftovers(const fs::path& repository) {
  std::error_code ignored;
  for (const char* name : {"packed-refs.lock", "config.lock"}) fs::remove(repository / name, ignored);
  remove_locks(repository / "refs");
  for (const fs::path& path : entries_of(repository / "objects")) {
    if (path.filename().string().starts_with("tmp_object")) fs::remove(path, ignored);
  }
}

Lineage::Lineage(std::string repository, const std::string& database, int busy_timeout_ms)
    : path_(std::move(repository)), database_(database, Database::Mode::kReadWrite, busy_timeout_ms) {
  require_current(database_);
  if (!is_there(path_)) {
    create();
    return;
  }
  // libgit2 keeps packs open, and takes one that it cannot open for missing.
  constexpr size_t kOthers = 16;  // objects, refs and folders, on the way
  require_descriptors(entries_of(fs::path(path_) / "objects" / "pack").size() + kOthers);
  repository_.emplace(GitRepository::open(path_));
}

void Lineage::create() {
  const std::string unfinished = path_ + ".new";
  remove_all(unfinished);
  static_cast<void>(GitRepository::create(unfinished));
  Transaction transaction(database_, Transaction::Kind::kWrite);
  database_.execute("DELETE FROM commits");
  transaction.commit();
  rename(unfinished, path_);
  repository_.emplace(GitRepository::open(path_));
}

size_t Lineage::sync() {
  size_t written = 0;
  while (const size_t commits = sync_commits()) written += commits;
  while (const size_t notes = sync_notes()) written += notes;
  return written;
}

size_t Lineage::sync_commits() {
  Transaction transaction(database_, Transaction::Kind::kWrite);
  std::vector<SubmissionId> missing = missing_commits(database_);
  if (missing.empty()) return 0;
  if (missing.size() > kBatch) missing.resize(kBatch);
  for (const SubmissionId submission : missing) {
    const std::string commit = write_submission(*repository_, database_, submission);
    repository_->set_ref(ref_of_submission(submission), commit);
    Query(database_, "INSERT INTO commits (submission, hash) VALUES (?, ?)", submission, commit).run();
  }
  set_agent_refs();
  transaction.commit();
  return missing.size();
}

void Lineage::set_agent_refs() {
  for (const AgentTip& tip : agent_tips(database_)) {
    if (repository_->ref(ref_of_agent(tip.agent)) != tip.commit) repository_->set_ref(ref_of_agent(tip.agent), tip.commit);
  }
}

size_t Lineage::sync_notes() {
  Transaction transaction(database_, Transaction::Kind::kWrite);
  std::vector<Note> missing = missing_notes(database_);
  if (missing.empty()) return 0;
  if (missing.size() > kBatch) missing.resize(kBatch);
  Notes notes;
  for (const Note& note : missing) {
    notes[note.commit] = text_of_note(database_, note.evaluation);
    Query(database_, "UPDATE commits SET noted = ? WHERE submission = ?", note.evaluation, note.submission).run();
  }
  const auto head = repository_->ref(kNotesRef);
  const std::string tree = write_notes(*repository_, head ? repository_->tree_of_commit(*head) : "", notes);
  repository_->set_ref(kNotesRef, commit_notes(*repository_, database_, tree));
  transaction.commit();
  return missing.size();
}

void Lineage::rebuild() {
  repository_.reset();
  remove_all(path_);
  create();
  sync();
}

std::optional<std::string> Lineage::commit_of(SubmissionId submission) {
  Query query(database_, "SELECT hash FROM commits WHERE submission = ?", submission);
  if (!query.step()) return std::nullopt;
  return query.text(0);
}

}  // namespace sluice::store
