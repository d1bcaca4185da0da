#include "agents/harness/store_events.h"

#include <algorithm>
#include <string>
#include <thread>

#include "agents/harness/documents.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kLook{100};
constexpr int kTogether = 100;

}  // namespace

std::string StoreEvents::waiting_events() {
  std::string text;
  for (const store::Event& event : store_.events_after(last_, kTogether)) {
    text += event_text({.data = document_of(event).dump(), .name = event.kind, .id = std::to_string(event.sequence)});
    last_ = event.sequence;
  }
  return text;
}

std::optional<std::string> StoreEvents::next(std::chrono::milliseconds wait) {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  while (true) {
    std::string text = waiting_events();
    const auto now = std::chrono::steady_clock::now();
    if (!text.empty() || now >= deadline) return text;
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(kLook, deadline - now));
  }
}

}  // namespace sluice
