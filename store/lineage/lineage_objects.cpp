#include "store/lineage/lineage_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "store/database/results.h"
#include "store/error.h"

namespace sluice::store {

namespace {

/// Git knows no time before 1970.
int64_t git_seconds(Time time) { return std::max<Time>(time, 0) / 1'000'000; }

std::string pretty(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

nlohmann::ordered_json json_of(const Metric& metric) {
  nlohmann::ordered_json json = {{"name", metric.name}};
  if (!metric.task.empty()) json["task"] = metric.task;
  if (metric.length != 0) json["length"] = metric.length;
  json["value"] = metric.value;
  if (metric.low) json["low"] = *metric.low;
  if (metric.high) json["high"] = *metric.high;
  if (!metric.unit.empty()) json["unit"] = metric.unit;
  return json;
}

std::string message_of(SubmissionId id, const std::string& name, const std::string& notes) {
  return fmt::format("{}\n\n{}{}Submission: {}\n", name, notes, notes.empty() ? "" : "\n\n", id);
}

struct Ancestry {
  std::vector<SubmissionId> ids;
  std::vector<std::string> commits;
};

Ancestry parents_of(Database& database, SubmissionId submission) {
  Ancestry parents;
  Query query(database,
              "SELECT p.parent, c.hash FROM parents p LEFT JOIN commits c ON c.submission = p.parent WHERE p.submission = ? "
              "ORDER BY p.position",
              submission);
  while (query.step()) {
    if (query.is_null(1))
      throw StoreError(ErrorKind::kCorrupted, fmt::format("a parent of submission {} has no commit", submission));
    parents.ids.push_back(query.integer(0));
    parents.commits.push_back(query.text(1));
  }
  return parents;
}

}  // namespace

std::string ref_of_submission(SubmissionId submission) { return fmt::format("refs/submissions/{}", submission); }
std::string ref_of_agent(const std::string& name) { return "refs/heads/agents/" + name; }

std::string write_submission(GitRepository& repository, Database& database, SubmissionId submission) {
  Query query(database,
              "SELECT a.name, s.name, s.notes, s.script, s.settings, lower(hex(s.content_hash)), s.created FROM submissions s "
              "JOIN agents a ON a.id = s.agent WHERE s.id = ?",
              submission);
  if (!query.step()) throw StoreError(ErrorKind::kCorrupted, fmt::format("submission {} or its agent is missing", submission));
  const std::string agent = query.text(0), name = query.text(1), notes = query.text(2);
  const Ancestry parents = parents_of(database, submission);
  const nlohmann::ordered_json about = {{"id", submission},
                                        {"agent", agent},
                                        {"name", name},
                                        {"notes", notes},
                                        {"parents", parents.ids},
                                        {"content_hash", query.text(5)},
                                        {"created", query.integer(6)}};
  const nlohmann::ordered_json settings = nlohmann::ordered_json::parse(query.text(4));
  const std::string tree = repository.write_tree({{"flow.lua", repository.write_blob(query.text(3))},
                                                  {"settings.json", repository.write_blob(pretty(settings))},
                                                  {"submission.json", repository.write_blob(pretty(about))}});
  return repository.write_commit({tree, parents.commits, agent, agent + "@agents.sluice", git_seconds(query.integer(6)),
                                  message_of(submission, name, notes)});
}

std::string text_of_note(Database& database, EvaluationId evaluation) {
  Query query(database, "SELECT verdict, attempt, finished, message FROM evaluations WHERE id = ?", evaluation);
  if (!query.step()) throw StoreError(ErrorKind::kCorrupted, fmt::format("evaluation {} is missing", evaluation));
  nlohmann::ordered_json note = {{"status", query.text(0)}, {"attempt", query.integer(1)}, {"finished", query.integer(2)}};
  if (!query.text(3).empty()) note["message"] = query.text(3);
  note["metrics"] = nlohmann::ordered_json::array();
  for (const Metric& metric : read_metrics(database, evaluation)) note["metrics"].push_back(json_of(metric));
  return pretty(note);
}

std::string write_notes(GitRepository& repository, const std::string& root, const Notes& notes) {
  using Entries = std::map<std::string, TreeEntry>;
  const auto entries_of = [&](const std::string& tree) {
    Entries entries;
    for (const TreeEntry& entry : repository.entries_of_tree(tree)) entries[entry.name] = entry;
    return entries;
  };
  const auto write = [&](const Entries& entries) {
    std::vector<TreeEntry> list;
    for (const auto& [name, entry] : entries) list.push_back(entry);
    return repository.write_tree(list);
  };
  std::map<std::string, Entries> changed;
  Entries folders = root.empty() ? Entries() : entries_of(root);
  for (const auto& [commit, text] : notes) {
    const std::string folder = commit.substr(0, 2), file = commit.substr(2);
    if (!changed.contains(folder) && folders.contains(folder)) changed[folder] = entries_of(folders[folder].hash);
    changed[folder][file] = {file, repository.write_blob(text)};
  }
  for (const auto& [folder, entries] : changed) folders[folder] = {folder, write(entries), true};
  return write(folders);
}

std::string commit_notes(GitRepository& repository, Database& database, const std::string& tree) {
  Query query(database, "SELECT coalesce(MAX(e.finished), 0) FROM commits c JOIN evaluations e ON e.id = c.noted");
  query.step();
  return repository.write_commit(
      {tree, {}, "sluice", "sluice@agents.sluice", git_seconds(query.integer(0)), "Metrics of submissions\n"});
}

}  // namespace sluice::store
