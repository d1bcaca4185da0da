#include <algorithm>

#include "store/database/sqlite.h"
#include "store/folder/text_checks.h"
#include "store/store.h"

namespace sluice::store {

namespace {

constexpr int kMostEvents = 1000;

}  // namespace

int64_t Store::append(const std::string& kind, std::optional<SubmissionId> submission, const std::string& data) {
  Query(*database_, "INSERT INTO events (time, submission, kind, data) VALUES (?, ?, ?, ?)", options_.clock(), submission, kind,
        data)
      .run();
  return database_->last_id();
}

int64_t Store::append_event(const std::string& kind, std::optional<SubmissionId> submission, const std::string& data) {
  const std::string canonical = canonical_object("event's data", data);
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  const int64_t sequence = append(kind, submission, canonical);
  transaction.commit();
  return sequence;
}

int64_t Store::append_event(const std::string& kind, const Lease& lease, const std::string& data) {
  const std::string canonical = canonical_object("event's data", data);
  if (lease.trial) {
    check_lease(lease);
    return last_event();
  }
  Transaction transaction(*database_, Transaction::Kind::kWrite);
  check_lease(lease);
  const int64_t sequence = append(kind, lease.submission, canonical);
  transaction.commit();
  return sequence;
}

std::vector<Event> Store::events_after(int64_t sequence, int limit) {
  std::vector<Event> events;
  Query query(*database_,
              "SELECT sequence, time, submission, kind, data FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?", sequence,
              std::clamp(limit, 1, kMostEvents));
  while (query.step()) {
    events.push_back({query.integer(0), query.integer(1), query.optional_integer(2), query.text(3), query.text(4)});
  }
  return events;
}

int64_t Store::last_event() {
  Query query(*database_, "SELECT coalesce(MAX(sequence), 0) FROM events");
  query.step();
  return query.integer(0);
}

}  // namespace sluice::store
