// A folder of version 4, whose schema is schema_4.sql: with a study whose trials have seeds, and leases of a server that ended.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "store/database/sqlite.h"
#include "store/folder/data_folder.h"
#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

constexpr Time kHour = 3600LL * 1000000;

constexpr const char* kRows = R"sql(
  PRAGMA user_version = 4;
  INSERT INTO agents (id, name, role, token_salt, token_hash, quota, served, created)
    VALUES (1, 'ada', 'agent', zeroblob(32), zeroblob(32), 100, 0, 1700000000000000);
  INSERT INTO submissions (id, agent, name, status, priority, content_hash, created, updated, notes, settings, script) VALUES
    (1, 1, 'one', 'passed', 0, x'01', 1700000000000001, 1700000000000003, '', '{"model":"mini","suite":"quick"}', 'return 1'),
    (2, 1, 'two', 'running', 0, x'02', 1700000000000004, 1700000000000004, '', '{"model":"mini","suite":"quick"}', 'return 2'),
    (3, 1, 'three', 'queued', 0, x'03', 1700000000000005, 1700000000000005, '', '{"model":"mini","suite":"quick"}', 'return 3');
  INSERT INTO studies (id, agent, name, goal, settings, state, created)
    VALUES (1, 1, 'study', '', '{"model":"mini","suite":"quick"}', 'open', 1700000000000006);
  INSERT INTO trials (id, study, number, agent, submission, parameters, seed, state, told, created, started) VALUES
    (1, 1, 0, 1, 1, '{}', 7, 'running', 0, 1700000000000006, 1700000000000007),
    (2, 1, 1, 1, 1, '{}', 8, 'waiting', 0, 1700000000000006, NULL);
  INSERT INTO evaluations (id, submission, trial, attempt, worker, started, finished, outcome, verdict) VALUES
    (1, 1, NULL, 1, 'w', 1700000000000002, 1700000000000003, 'judged', 'passed'),
    (2, 2, NULL, 1, 'w', 1700000000000007, NULL, NULL, NULL),
    (3, 1, 1, 1, 'w', 1700000000000007, NULL, NULL, NULL);
  UPDATE submissions SET judged = 1, first_finished = 1700000000000003 WHERE id = 1;
  INSERT INTO metrics (evaluation, name, task, length, value, low, high, unit)
    VALUES (1, 'score', '', 0, 0.5, 0.4, 0.6, ''), (1, 'speedup', '', 0, 1.5, 1.4, 1.6, 'x dense');
  INSERT INTO queue (id, submission, trial, agent, priority, available, tries, evaluation, lease_owner, lease_expiry) VALUES
    (1, 2, NULL, 1, 0, 0, 0, 2, 'w', 1700000000000009),
    (2, 3, NULL, 1, 0, 0, 1, NULL, NULL, NULL),
    (3, 1, 1, 1, 0, 0, 0, 3, 'w', 1700000000000009),
    (4, 1, 2, 1, 0, 0, 0, NULL, NULL, NULL);
)sql";

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class SchemaFour : public ::testing::Test {
 protected:
  SchemaFour() {
    Database old(database(), Database::Mode::kCreate, 1000);
    old.execute(text_of(SLUICE_SOURCE_DIR "/tests/store/schema_4.sql").c_str());
    old.execute(kRows);
  }

  std::string database() const { return folder_.file("sluice.db"); }

  /// The rows of what was changed, by the columns that version 4 had.
  static std::string rows_of(const std::string& path) {
    Database database(path, Database::Mode::kReadOnly, 1000);
    std::string rows;
    for (const char* sql :
         {"SELECT id || submission || coalesce(trial, '-') || attempt || worker || started || coalesce(finished, '-') || "
          "coalesce(outcome, '-') || coalesce(verdict, '-') || message || hint || seed FROM evaluations ORDER BY id",
          "SELECT id || submission || coalesce(trial, '-') || agent || priority || available || tries || "
          "coalesce(evaluation, '-') || coalesce(lease_owner, '-') || coalesce(lease_expiry, '-') FROM queue ORDER BY id"}) {
      Query query(database, sql);
      while (query.step()) rows += query.text(0) + "\n";
    }
    return rows;
  }

  /// What made all tables and indices, without comments and blanks.
  static std::string made_by(const std::string& path) {
    Database database(path, Database::Mode::kReadOnly, 1000);
    std::string statements;
    Query query(database, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name");
    while (query.step()) statements += query.text(0) + "\n";
    return std::regex_replace(std::regex_replace(statements, std::regex("--[^\n]*"), ""), std::regex("[\\s\"]+"), "");
  }

  Folder folder_;
  Clock clock_{std::make_shared<Time>(1700000000000010)};
};

TEST_F(SchemaFour, KeepsItsRows) {
  const std::string before = rows_of(database());
  DataFolder data(folder_.path());
  ASSERT_EQ(data.notices().size(), 1U);
  EXPECT_EQ(rows_of(folder_.file("sluice.db.version4")), before);
  EXPECT_EQ(rows_of(database()), before);
  EXPECT_EQ(data.fsck().problems, std::vector<std::string>());
}

TEST_F(SchemaFour, HasTheTablesOfANewFolder) {
  { const DataFolder data(folder_.path()); }
  const Folder fresh;
  { const DataFolder data(fresh.path()); }
  EXPECT_EQ(made_by(database()), made_by(fresh.file("sluice.db")));
}

TEST_F(SchemaFour, IsWorkedOnAndItsVerdictsMayBeConfirmed) {
  DataFolder data(folder_.path());
  Store store = data.open_store(clock_.options());
  EXPECT_FALSE(store.confirmation(1));
  EXPECT_EQ(store.release_leases(), (std::vector<SubmissionId>{1, 2}));
  EXPECT_EQ(store.ask_confirmation("ada", 1).confirmation.tries, 1);
  int confirmations = 0;
  while (const auto lease = store.claim("w", kHour)) {
    confirmations += lease->confirmation ? 1 : 0;
    store.complete(*lease, passed());
  }
  EXPECT_EQ(confirmations, 1);
  EXPECT_EQ(store.confirmation(1)->state, ConfirmationState::kDone);
  EXPECT_EQ(store.trial(1, 0)->state, TrialState::kComplete);
  EXPECT_EQ(store.get(3)->status, Status::kPassed);
  EXPECT_EQ(data.sync_lineage(), "");
  EXPECT_EQ(data.fsck().problems, std::vector<std::string>());
}

}  // namespace
}  // namespace sluice::store::test
