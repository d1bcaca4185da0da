// A folder of version 3, as the program of that time left it: schema_3.sql, schema_3_folder.sql (its rows) and
// schema_3_folder.txt (what its store told, by reading_of).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "store/database/sqlite.h"
#include "store/folder/data_folder.h"
#include "tests/store/folder.h"
#include "tests/store/reading.h"

namespace sluice::store::test {
namespace {

constexpr Time kHour = 3600LL * 1000000;
constexpr const char* kTokenOfBob = "sluice_2_ec476134a0454c380adcda48144816df401c4b029af308f11b257d36f908bc46";

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class SchemaThree : public ::testing::Test {
 protected:
  SchemaThree() {
    Database old(database(), Database::Mode::kCreate, 1000);
    for (const char* file : {"schema_3.sql", "schema_3_folder.sql"}) {
      old.execute(text_of(fmt::format("{}/tests/store/{}", SLUICE_SOURCE_DIR, file)).c_str());
    }
    for (const char* table : {"agents", "submissions", "parents", "evaluations", "stage_results", "metrics", "artifacts", "queue",
                              "resubmissions", "events", "idempotency_keys", "commits", "sqlite_sequence"}) {
      std::string values;
      Query columns(old, fmt::format("SELECT name FROM pragma_table_xinfo('{}')", table));
      while (columns.step()) values += fmt::format("{}quote({})", values.empty() ? "" : " || ',' || ", columns.text(0));
      tables_.push_back(fmt::format("SELECT {} FROM {} ORDER BY 1", values, table));
    }
  }

  std::string database() const { return folder_.file("sluice.db"); }

  /// All rows of the tables and columns that version 3 had.
  std::string rows_of(const std::string& path) const {
    Database database(path, Database::Mode::kReadOnly, 1000);
    std::string rows;
    for (const std::string& table : tables_) {
      Query query(database, table);
      while (query.step()) rows += query.text(0) + "\n";
      rows += "\n";
    }
    return rows;
  }

  /// The statements that made some tables and their indices, without comments and blanks.
  static std::string made_by(const std::string& path) {
    Database database(path, Database::Mode::kReadOnly, 1000);
    std::string statements;
    Query query(database,
                "SELECT sql FROM sqlite_schema WHERE tbl_name IN ('studies', 'trials', 'told_values', 'trial_requests', "
                "'evaluations', 'queue') AND sql IS NOT NULL ORDER BY name");
    while (query.step()) statements += query.text(0) + "\n";
    return std::regex_replace(std::regex_replace(statements, std::regex("--[^\n]*"), ""), std::regex("[\\s\"]+"), "");
  }

  Folder folder_;
  std::vector<std::string> tables_;                        // what reads each of them
  Clock clock_{std::make_shared<Time>(1700002925740723)};  // when it was left
};

TEST_F(SchemaThree, ReadsAsItDidBefore) {
  const std::string before = rows_of(database());
  DataFolder data(folder_.path());
  ASSERT_EQ(data.notices().size(), 1U) << "it is brought up to date, and its repository, which was not kept, is no damage";
  EXPECT_NE(data.notices()[0].find("sluice.db.version3"), std::string::npos);
  EXPECT_EQ(rows_of(folder_.file("sluice.db.version3")), before);
  EXPECT_EQ(rows_of(database()), before) << "the hashes of commits, too, to which the repository was made anew";
  Store store = data.open_store(clock_.options());
  EXPECT_EQ(reading_of(store), text_of(SLUICE_SOURCE_DIR "/tests/store/schema_3_folder.txt"));
  EXPECT_EQ(store.agent_of_token(kTokenOfBob)->name, "bob");
  EXPECT_TRUE(store.studies({}).studies.empty());
  const FsckReport report = data.fsck();
  EXPECT_EQ(report.problems, std::vector<std::string>());
  EXPECT_EQ(report.submissions, 100);
  EXPECT_EQ(report.commits, 93);
}

TEST_F(SchemaThree, HasTheTablesOfANewFolder) {
  { const DataFolder data(folder_.path()); }
  const Folder fresh;
  { const DataFolder data(fresh.path()); }
  EXPECT_EQ(made_by(database()), made_by(fresh.file("sluice.db")));
  EXPECT_NE(made_by(database()).find("trials_of_submission"), std::string::npos);
}

TEST_F(SchemaThree, IsWorkedOnAsBefore) {
  DataFolder data(folder_.path());
  Store store = data.open_store(clock_.options());
  EXPECT_EQ(store.release_leases().size(), 2U) << "of the server that ended";
  Draft same;
  same.name = "the same as 100";
  same.script = store.get(100)->script;
  same.settings = store.get(100)->settings;
  EXPECT_EQ(store.submit("ada", same).id, 100);
  const Draft made = draft("a child", {100, 27});
  const SubmissionId child = store.submit("ada", made).id;
  EXPECT_EQ(child, 101);
  EXPECT_EQ(store.ancestors(100).total, 13);
  EXPECT_EQ(store.ancestors(child).total, 16) << "both parents, the 13 of the one, and of the other one that is not among them";
  while (const auto lease = store.claim("w", kHour)) store.complete(*lease, passed());
  EXPECT_EQ(store.get(child)->status, Status::kPassed);
  EXPECT_EQ(data.sync_lineage(), "");
  EXPECT_EQ(data.fsck().problems, std::vector<std::string>());
  const std::string git = "git --git-dir=" + folder_.file("lineage.git");
  EXPECT_EQ(output_of(git + " rev-parse refs/submissions/101^1 refs/submissions/101^2"),
            output_of(git + " rev-parse refs/submissions/100 refs/submissions/27"));
  output_of(git + " fsck --strict");
}

TEST_F(SchemaThree, GivesNoLeaseAnew) {
  Database(database(), Database::Mode::kReadWrite, 1000)
      .execute("UPDATE sqlite_sequence SET seq = 200 WHERE name = 'evaluations'");  // the last ones were given back
  DataFolder data(folder_.path());
  Store store = data.open_store(clock_.options());
  EXPECT_EQ(store.claim("w", kHour)->evaluation, 201);
}

TEST_F(SchemaThree, TakesStudiesOfWhatItHas) {
  DataFolder data(folder_.path());
  Store store = data.open_store(clock_.options());
  const StudyId study = store.create_study("bob", {"again", "", store.get(27)->settings}).id;
  store.add_trials("bob", study, {{.submission = 27}, {.submission = 27}});
  const Trial trial = store.trial(study, 1).value();
  EXPECT_EQ(trial.state, TrialState::kComplete);
  EXPECT_EQ(trial.evaluation, store.get(27)->judged);
  EXPECT_EQ(data.fsck().problems, std::vector<std::string>());
}

TEST_F(SchemaThree, IsCheckedOnceItIsUpToDate) {
  EXPECT_EQ(kind_thrown_by([&] { fsck(folder_.path()); }), ErrorKind::kInvalid) << "which brings nothing up to date";
  EXPECT_EQ(Database(database(), Database::Mode::kReadOnly, 1000).version(), 3);
  { const DataFolder data(folder_.path()); }
  EXPECT_EQ(fsck(folder_.path()).problems, std::vector<std::string>());
  std::filesystem::remove_all(folder_.file("lineage.git"));
  EXPECT_EQ(fsck(folder_.path()).problems, std::vector<std::string>{"lineage.git: missing"});
  { const DataFolder data(folder_.path()); }
  EXPECT_EQ(fsck(folder_.path()).problems, std::vector<std::string>()) << "it was made anew to the same commits";
  Database(database(), Database::Mode::kReadWrite, 1000)
      .execute("UPDATE commits SET hash = (SELECT hash FROM commits WHERE submission = 1) WHERE submission = 2");
  EXPECT_FALSE(fsck(folder_.path()).clean());
}

}  // namespace
}  // namespace sluice::store::test
