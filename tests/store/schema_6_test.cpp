// A folder of version 6, whose schema is schema_6.sql: with verdicts of before there were finals.

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
  PRAGMA user_version = 6;
  INSERT INTO agents (id, name, role, token_salt, token_hash, quota, served, created)
    VALUES (1, 'ada', 'agent', zeroblob(32), zeroblob(32), 100, 0, 1700000000000000);
  INSERT INTO submissions (id, agent, name, status, priority, content_hash, created, updated, notes, settings, script) VALUES
    (1, 1, 'one', 'passed', 0, x'01', 1700000000000001, 1700000000000003, '', '{"model":"mini","suite":"quick"}', 'return 1'),
    (2, 1, 'two', 'queued', 0, x'02', 1700000000000004, 1700000000000004, '', '{"model":"mini","suite":"quick"}', 'return 2');
  INSERT INTO parents (submission, position, parent) VALUES (2, 0, 1);
  INSERT INTO evaluations (id, submission, attempt, worker, started, finished, outcome, verdict) VALUES
    (1, 1, 1, 'w', 1700000000000002, 1700000000000003, 'judged', 'passed');
  UPDATE submissions SET judged = 1, first_finished = 1700000000000003 WHERE id = 1;
  INSERT INTO metrics (evaluation, name, task, length, value, low, high, unit)
    VALUES (1, 'score', '', 0, 0.5, 0.4, 0.6, ''), (1, 'speedup', '', 0, 1.5, 1.4, 1.6, 'x dense');
  INSERT INTO queue (id, submission, agent, priority, available) VALUES (1, 2, 1, 0, 0);
)sql";

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class SchemaSix : public ::testing::Test {
 protected:
  SchemaSix() {
    Database old(database(), Database::Mode::kCreate, 1000);
    old.execute(text_of(SLUICE_SOURCE_DIR "/tests/store/schema_6.sql").c_str());
    old.execute(kRows);
  }

  std::string database() const { return folder_.file("sluice.db"); }

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

TEST_F(SchemaSix, HasTheTablesOfANewFolder) {
  { const DataFolder data(folder_.path()); }
  const Folder fresh;
  { const DataFolder data(fresh.path()); }
  EXPECT_EQ(made_by(database()), made_by(fresh.file("sluice.db")));
}

TEST_F(SchemaSix, WhatPassedThereGetsItsFinal) {
  DataFolder data(folder_.path());
  ASSERT_EQ(data.notices().size(), 1U) << "that the old database was kept";
  Store store = data.open_store(clock_.options());
  EXPECT_EQ(store.list({}).total, 2);
  EXPECT_EQ(store.quota_of("ada").used, 2) << "all of them were handed in";
  const std::vector<SubmissionId> finals =
      store.ask_finals({{.model = "mini", .model_digest = {}, .device = {}}, R"({"model":"real","suite":"real"})", "score"});
  EXPECT_EQ(finals, std::vector<SubmissionId>{3});
  while (const auto lease = store.claim("w", kHour)) store.complete(*lease, passed());
  EXPECT_TRUE(store.summary(1)->final->passed());
  EXPECT_EQ(data.sync_lineage(), "");
  EXPECT_EQ(data.fsck().problems, std::vector<std::string>());
}

}  // namespace
}  // namespace sluice::store::test
