#include "agents/harness/store_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "agents/harness/documents.h"

namespace sluice {
namespace {

constexpr int kTogether = 100;

}  // namespace

StoreEvents::StoreEvents(const std::string& database, StoreWatch& watch, int64_t after)
    : store_(database), watch_(watch), last_(std::min(after, store_.last_event())) {}

std::string StoreEvents::waiting_events() {
  std::string text;
  for (const store::Event& event : store_.events_after(last_, kTogether)) {
    text += event_text({.data = document_of(event).dump(), .name = event.kind, .id = std::to_string(event.sequence)});
    last_ = event.sequence;
  }
  return text;
}

std::optional<std::string> StoreEvents::next(std::chrono::milliseconds wait) {
  if (!std::exchange(begun_, true)) return fmt::format("id: {}\n\n", last_);
  const auto deadline = StoreWatch::Clock::now() + wait;
  while (true) {
    const uint64_t version = seen_ ? watch_.wait(*seen_, deadline) : watch_.version();
    if (seen_ == version) return std::string();
    std::string text = waiting_events();
    if (!text.empty()) return text;  // there may be more
    seen_ = version;
  }
}

}  // namespace sluice
