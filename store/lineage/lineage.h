#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/database/sqlite.h"
#include "store/lineage/git.h"
#include "store/records.h"

namespace sluice::store {

/// Takes away locks of refs and half-written objects, which a process that was killed leaves in a repository. A running `git gc`
/// has such files, too: only for whoever opens the data folder, not while it is in use.
void remove_leftovers(const std::filesystem::path& repository);

/// The bare Git repository in which people see what the database knows. Each finished submission, and each of its ancestors, is
/// a commit (flow.lua, settings.json, submission.json) whose parents are its parents' commits, by its agent at its time.
///
///   refs/submissions/ID     the commit of a submission
///   refs/heads/agents/NAME  the agent's latest one
///   refs/notes/metrics      notes with the last verdict and its metrics
///
/// Hashes are functions of the database alone, so that the repository can be made anew at any time. One object at a time writes:
/// the owner of the data folder has it. Throws StoreError: kCorrupted if the repository is damaged.
class Lineage {
 public:
  /// Opens the repository, or makes an empty one. `database` is the path of the store's.
  Lineage(std::string repository, const std::string& database, int busy_timeout_ms = 10000);

  /// Adds what is missing. How many commits and notes were written.
  size_t sync();
  /// Removes the repository and makes it anew.
  void rebuild();
  /// What the repository has otherwise than the database has recorded, in words; empty if nothing is. What `sync` is yet to write
  /// is no damage.
  std::vector<std::string> damage();
  /// The same, and what is yet to be written.
  std::vector<std::string> check();
  /// The commit of a submission, if it has one.
  std::optional<std::string> commit_of(SubmissionId submission);

 private:
  void create();
  size_t sync_commits();
  size_t sync_notes();
  void set_agent_refs();

  std::string path_;
  Database database_;
  std::optional<GitRepository> repository_;
};

}  // namespace sluice::store
