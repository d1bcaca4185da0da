// Studies: making, reading, listing, closing.

#include "store/studies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "store/database/cursor.h"
#include "store/database/filter.h"
#include "store/database/sqlite.h"
#include "store/error.h"
#include "store/folder/text_checks.h"
#include "store/store.h"

namespace sluice::store {

namespace {

/// The draft in the form in which it is kept. Throws kInvalid.
StudyDraft checked(const StudyDraft& draft) {
  check_text("name", draft.name, Limits::kName);
  check_one_line("name", draft.name);
  check_text("goal", draft.goal, Limits::kGoal);
  check_size("settings", draft.settings, Limits::kSettings);
  return {draft.name, draft.goal, canonical_object("settings", draft.settings)};
}

std::optional<StudyId> known_by_name(Database& database, const Agent& agent, const StudyDraft& draft) {
  Query query(database, "SELECT id, goal, settings FROM studies WHERE agent = ? AND name = ?", agent.id, draft.name);
  if (!query.step()) return std::nullopt;
  if (query.text(1) == draft.goal && query.text(2) == draft.settings) return query.integer(0);
  throw StoreError(ErrorKind::kConflict,
                   fmt::format("{} has a study \"{}\" with another goal or other settings", agent.name, draft.name),
                   fmt::format("it is study {}; choose another name", query.integer(0)));
}

constexpr const char* kSelectStudy =
    "SELECT s.id, a.name, s.name, s.goal, s.settings, s.state, s.created FROM studies s JOIN agents a ON a.id = s.agent";

/// Without its trials.
Study read_study(const Query& query) {
  Study study;
  study.id = query.integer(0);
  study.agent = query.text(1);
  study.name = query.text(2);
  study.goal = query.text(3);
  study.settings = query.text(4);
  study.state = study_state_of(query.text(5));
  study.created = query.integer(6);
  return study;
}

/// One query, however many studies there are.
void count_trials(Database& database, std::vector<Study>& studies) {
  std::unordered_map<StudyId, Study*> by_id;
  std::vector<StudyId> ids;
  for (Study& study : studies) {
    by_id.emplace(study.id, &study);
    ids.push_back(study.id);
  }
  Query query(database,
              "SELECT study, state, COUNT(*) FROM trials WHERE study IN (SELECT value FROM json_each(?)) GROUP BY study, state",
              fmt::format("[{}]", fmt::join(ids, ",")));
  while (query.step()) by_id.at(query.integer(0))->trials[trial_state_of(query.text(1))] = query.integer(2);
}

}  // namespace

CreatedStudy Store::create_study(const std::string& agent_name, const StudyDraft& draft) {
  const StudyDraft kept = checked(draft);
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const Agent agent = required_agent(agent_name);
  if (const auto known = known_by_name(*database_, agent, kept)) return {*known, false};
  require_room(agent, "studies", 1);
  Query(*database_, "INSERT INTO studies (agent, name, goal, settings, state, created) VALUES (?, ?, ?, ?, 'open', ?)", agent.id,
        kept.name, kept.goal, kept.settings, options_.clock())
      .run();
  const StudyId id = database_->last_id();
  transaction.commit();
  return {id, true};
}

std::optional<Study> Store::study(StudyId id) {
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  Query query(*database_, fmt::format("{} WHERE s.id = ?", kSelectStudy), id);
  if (!query.step()) return std::nullopt;
  std::vector<Study> found = {read_study(query)};
  count_trials(*database_, found);
  return std::move(found.front());
}

StudyPage Store::studies(const StudyFilter& filter, const std::string& cursor, int limit) {
  limit = std::clamp(limit, 1, Limits::kPage);
  const TimeLimit time(*database_, kMostSearch);
  const Transaction transaction(*database_, Transaction::Kind::kRead);
  const std::string where = "WHERE (?1 = '' OR a.name = ?1) AND (?2 = '' OR s.state = ?2)";
  const std::string state = filter.state ? name_of(*filter.state) : "";
  Query query(*database_, fmt::format("{} {} AND s.id < ?3 ORDER BY s.id DESC LIMIT ?4", kSelectStudy, where), filter.agent,
              state, cursor.empty() ? INT64_MAX : number_of_cursor(cursor), limit + 1);
  StudyPage page;
  while (query.step()) page.studies.push_back(read_study(query));
  if (static_cast<int>(page.studies.size()) > limit) {
    page.studies.pop_back();
    page.next = cursor_of(page.studies.back().id);
  }
  count_trials(*database_, page.studies);
  if (cursor.empty()) {
    Query count(*database_, fmt::format("SELECT COUNT(*) FROM studies s JOIN agents a ON a.id = s.agent {}", where), filter.agent,
                state);
    count.step();
    page.total = count.integer(0);
  }
  return page;
}

void Store::set_study_state(StudyId id, StudyState state) {
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  {
    Query known(*database_, "SELECT 1 FROM studies WHERE id = ?", id);
    if (!known.step()) throw StoreError(ErrorKind::kNotFound, fmt::format("there is no study {}", id));
  }
  Query(*database_, "UPDATE studies SET state = ? WHERE id = ?", name_of(state), id).run();
  transaction.commit();
}

}  // namespace sluice::store
