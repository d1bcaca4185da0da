#pragma once

#include <map>
#include <string>

#include "store/database/sqlite.h"
#include "store/lineage/git.h"
#include "store/records.h"

namespace sluice::store {

constexpr const char* kNotesRef = "refs/notes/metrics";
std::string ref_of_submission(SubmissionId submission);
std::string ref_of_agent(const std::string& name);

/// Writes the objects of a submission, whose parents have commits in the table `commits`. The hash of its commit.
std::string write_submission(GitRepository& repository, Database& database, SubmissionId submission);

/// What the note of an evaluation says: JSON, for people to read.
std::string text_of_note(Database& database, EvaluationId evaluation);

/// Notes by the commit that they are about. Git keeps them as files named by the commit's hash, its first two digits a folder.
using Notes = std::map<std::string, std::string>;
/// Writes the tree `root` (empty: none) with notes added or replaced. The hash of the new tree.
std::string write_notes(GitRepository& repository, const std::string& root, const Notes& notes);
/// The commit of the tree of notes: without parents, at the time of the last verdict that a note holds.
std::string commit_notes(GitRepository& repository, Database& database, const std::string& tree);

}  // namespace sluice::store
