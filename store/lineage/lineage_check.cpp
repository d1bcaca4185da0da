// The repository against the database: every commit is made again in memory and must have the hash that both say.

#include <fmt/format.h>

#include <functional>
#include <set>
#include <utility>

#include "store/error.h"
#include "store/lineage/lineage.h"
#include "store/lineage/lineage_objects.h"

namespace sluice::store {

namespace {

class Comparison {
 public:
  Comparison(const GitRepository& repository, Database& database)
      : repository_(repository), database_(database), again_(GitRepository::in_memory()) {}

  std::vector<std::string> run() {
    check_commits();
    check_agents();
    check_notes();
    check_no_more_refs();
    return std::move(found_);
  }

 private:
  void check_commits() {
    Query query(database_, "SELECT submission, hash, noted FROM commits ORDER BY submission");
    while (query.step()) {
      const SubmissionId submission = query.integer(0);
      const std::string recorded = query.text(1);
      guarded(fmt::format("submission {}", submission), [&] {
        const std::string expected = write_submission(again_, database_, submission);
        if (expected != recorded) {
          found_.push_back(fmt::format("submission {}: its commit should be {}, recorded is {}", submission, expected, recorded));
        }
        expect_ref(ref_of_submission(submission), expected);
        verify_files(expected);
      });
      if (query.is_null(2)) continue;
      guarded(fmt::format("the note of submission {}", submission),
              [&] { notes_[recorded] = text_of_note(database_, query.integer(2)); });
    }
  }

  void check_agents() {
    Query query(database_,
                "SELECT a.name, c.hash, MAX(s.id) FROM commits c JOIN submissions s ON s.id = c.submission "
                "JOIN agents a ON a.id = s.agent GROUP BY a.id");
    while (query.step()) expect_ref(ref_of_agent(query.text(0)), query.text(1));
  }

  void check_notes() {
    if (notes_.empty()) return;
    guarded("notes", [&] {
      const std::string commit = commit_notes(again_, database_, write_notes(again_, "", notes_));
      expect_ref(kNotesRef, commit);
      verify_files(commit);
    });
  }

  void check_no_more_refs() {
    guarded("refs", [&] {
      for (const std::string& name : repository_.refs()) {
        if (!expected_refs_.contains(name)) found_.push_back(fmt::format("{} is not known to the database", name));
      }
    });
  }

  void expect_ref(const std::string& name, const std::string& hash) {
    expected_refs_.insert(name);
    guarded(name, [&] {
      const auto target = repository_.ref(name);
      if (target != hash) found_.push_back(fmt::format("{} is {}, and should be {}", name, target.value_or("missing"), hash));
    });
  }

  void verify_files(const std::string& commit) {
    repository_.verify_object(commit);
    verify_tree(repository_.tree_of_commit(commit), 0);
  }

  /// Trees here are at most two deep.
  void verify_tree(const std::string& tree, int depth) {
    repository_.verify_object(tree);
    for (const TreeEntry& entry : repository_.entries_of_tree(tree)) {
      if (entry.is_folder && depth == 0) {
        verify_tree(entry.hash, depth + 1);
      } else {
        repository_.verify_object(entry.hash);
      }
    }
  }

  /// A damaged object is a finding, and the rest is looked at all the same.
  void guarded(const std::string& what, const std::function<void()>& look) {
    try {
      look();
    } catch (const StoreError& error) {
      if (error.kind() != ErrorKind::kCorrupted) throw;
      found_.push_back(fmt::format("{}: {}", what, error.what()));
    }
  }

  const GitRepository& repository_;
  Database& database_;
  GitRepository again_;
  Notes notes_;
  std::set<std::string> expected_refs_;
  std::vector<std::string> found_;
};

/// What is finished or judged and not in the repository yet.
std::vector<std::string> missing(Database& database) {
  std::vector<std::string> found;
  Query commits(
      database,
      "SELECT COUNT(*) FROM submissions WHERE first_finished IS NOT NULL AND id NOT IN (SELECT submission FROM commits)");
  commits.step();
  if (commits.integer(0) > 0) found.push_back(fmt::format("{} finished submissions have no commit yet", commits.integer(0)));
  Query notes(database,
              "SELECT COUNT(*) FROM commits c JOIN submissions s ON s.id = c.submission "
              "WHERE s.judged IS NOT NULL AND s.judged IS NOT c.noted");
  notes.step();
  if (notes.integer(0) > 0) found.push_back(fmt::format("{} verdicts have no note yet", notes.integer(0)));
  return found;
}

}  // namespace

std::vector<std::string> Lineage::damage() {
  const Transaction transaction(database_, Transaction::Kind::kRead);
  return Comparison(*repository_, database_).run();
}

std::vector<std::string> Lineage::check() {
  const Transaction transaction(database_, Transaction::Kind::kRead);
  std::vector<std::string> found = Comparison(*repository_, database_).run();
  for (std::string& each : missing(database_)) found.push_back(std::move(each));
  return found;
}

}  // namespace sluice::store
