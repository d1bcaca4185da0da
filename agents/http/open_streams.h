#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "agents/http/held_place.h"
#include "agents/http/http_message.h"

namespace sluice {

/// The open streams that have no end of their own. One more than there may be ends another one (`place_to_give_up`), as if its
/// server had stopped: whoever still wants it comes back, with Last-Event-ID. Any number of threads may use it.
class OpenStreams {
 public:
  explicit OpenStreams(size_t most) : most_(most) {}

  /// `stream`, counted until it is destroyed. This must outlive it.
  std::shared_ptr<BodyStream> add(std::shared_ptr<BodyStream> stream, const std::string& network);

 private:
  struct Place {
    HeldPlace held;
    std::atomic<bool> given_up = false;
  };
  class Counted;

  void give_up_one(const std::string& newcomer);
  void remove(const std::shared_ptr<Place>& place);

  const size_t most_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Place>> places_;  // but those that were given up
};

}  // namespace sluice
