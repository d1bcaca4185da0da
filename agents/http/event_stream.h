#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "agents/http/http_message.h"

namespace sluice {

/// One server-sent event.
struct ServerEvent {
  std::string data;  // may have several lines
  std::string name;  // empty: "message"
  std::string id;    // empty: none; what a client sends back as Last-Event-ID after a break
};

/// The event as it is written to the stream. Line breaks in name and id are left out: they would begin other fields.
std::string event_text(const ServerEvent& event);

/// Where a client wants to go on after a break: the number in Last-Event-ID; nothing if it sent none, or no number.
std::optional<uint64_t> last_event_id(const HttpRequest& request);

/// Events on their way from producer threads to the one thread that sends them to a client. Bounded: producers never wait. A
/// client that is too slow for its events is cut off, and comes back with Last-Event-ID.
class EventQueue {
 public:
  explicit EventQueue(size_t capacity = 256) : capacity_(capacity) {}

  /// False if nobody listens any more; the producer should forget the queue then.
  bool push(ServerEvent event);
  /// No more events: the stream ends after those that are there.
  void close();

 private:
  friend class EventStream;
  std::optional<std::string> pop(std::chrono::milliseconds wait);

  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ServerEvent> events_;
  bool closed_ = false;
};

/// A text/event-stream of what is pushed to a queue, until that is closed.
class EventStream final : public BodyStream {
 public:
  explicit EventStream(std::shared_ptr<EventQueue> queue) : queue_(std::move(queue)) {}
  ~EventStream() override { queue_->close(); }

  std::optional<std::string> next(std::chrono::milliseconds wait) override { return queue_->pop(wait); }
  std::string heartbeat() const override { return ": still here\n\n"; }
  bool endless() const override { return true; }

 private:
  std::shared_ptr<EventQueue> queue_;
};

/// The answer that carries `stream`, which must write events.
HttpResponse event_response(std::shared_ptr<BodyStream> stream);

}  // namespace sluice
