#include "agents/http/event_stream.h"

#include <algorithm>
#include <charconv>

namespace sluice {
namespace {

std::string one_line(std::string text) {
  std::erase_if(text, [](char c) { return c == '\n' || c == '\r' || c == '\0'; });
  return text;
}

}  // namespace

std::string event_text(const ServerEvent& event) {
  std::string text;
  if (!event.id.empty()) text += "id: " + one_line(event.id) + "\n";
  if (!event.name.empty()) text += "event: " + one_line(event.name) + "\n";
  std::string data = event.data;
  std::replace(data.begin(), data.end(), '\r', '\n');  // it would end a line, too
  for (size_t at = 0; at <= data.size();) {
    const size_t end = std::min(data.find('\n', at), data.size());
    text += "data: " + data.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return text + "\n";
}

std::optional<uint64_t> last_event_id(const HttpRequest& request) {
  const std::optional<std::string> text = request.header("Last-Event-ID");
  if (!text) return std::nullopt;
  uint64_t id = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), id);
  return parsed.ec == std::errc() && parsed.ptr == text->data() + text->size() ? std::optional(id) : std::nullopt;
}

bool EventQueue::push(ServerEvent event) {
  const std::lock_guard lock(mutex_);
  if (events_.size() == capacity_) {
    closed_ = true;
    events_.clear();
  }
  if (!closed_) events_.push_back(std::move(event));
  changed_.notify_one();
  return !closed_;
}

void EventQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_one();
}

std::optional<std::string> EventQueue::pop(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, wait, [&] { return closed_ || !events_.empty(); });
  if (events_.empty()) return closed_ ? std::nullopt : std::optional<std::string>("");
  std::string text;
  for (const ServerEvent& event : events_) text += event_text(event);
  events_.clear();
  return text;
}

HttpResponse event_response(std::shared_ptr<BodyStream> stream) {
  HttpResponse response;
  response.content_type = "text/event-stream";
  response.headers["Cache-Control"] = "no-store";
  response.headers["X-Accel-Buffering"] = "no";  // proxies that would wait for more
  response.stream = std::move(stream);
  return response;
}

}  // namespace sluice
