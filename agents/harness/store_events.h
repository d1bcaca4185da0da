#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "agents/harness/store_watch.h"
#include "agents/http/event_stream.h"
#include "store/store.h"

namespace sluice {

/// The events of a store as a stream that never ends: those after a number first, then the new ones. It begins with an id alone,
/// which a browser sends back if the connection breaks before there is any event. Reads from the database, so a slow client costs
/// nothing but its own connection.
class StoreEvents final : public BodyStream {
 public:
  /// `watch` is of the same database, and outlives the stream. `after` a number that the store has not reached, as of one that
  /// was restored from a backup, is after the last one that it has.
  StoreEvents(const std::string& database, StoreWatch& watch, int64_t after);

  std::optional<std::string> next(std::chrono::milliseconds wait) override;
  std::string heartbeat() const override { return ": still here\n\n"; }
  bool endless() const override { return true; }

 private:
  std::string waiting_events();

  store::Store store_;
  StoreWatch& watch_;
  bool begun_ = false;
  std::optional<uint64_t> seen_;  // version of the store that has been read to its end
  int64_t last_;                  // event that has been told
};

}  // namespace sluice
