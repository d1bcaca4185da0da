#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "agents/server/event_stream.h"
#include "store/store.h"

namespace sluice {

/// The events of a store as a stream that never ends: those after a number first, then the new ones. Reads from the database, so
/// a slow client costs nothing but its own connection.
class StoreEvents final : public BodyStream {
 public:
  StoreEvents(const std::string& database, int64_t after) : store_(database), last_(after) {}

  std::optional<std::string> next(std::chrono::milliseconds wait) override;
  std::string heartbeat() const override { return ": still here\n\n"; }
  bool endless() const override { return true; }

 private:
  std::string waiting_events();

  store::Store store_;
  int64_t last_;
};

}  // namespace sluice
