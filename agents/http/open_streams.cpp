#include "agents/http/open_streams.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace sluice {

class OpenStreams::Counted final : public BodyStream {
 public:
  Counted(OpenStreams& all, std::shared_ptr<Place> place, std::shared_ptr<BodyStream> stream)
      : all_(all), place_(std::move(place)), stream_(std::move(stream)) {}
  ~Counted() override { all_.remove(place_); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  std::optional<std::string> next(std::chrono::milliseconds wait) override {
    return place_->given_up ? std::nullopt : stream_->next(wait);
  }
  std::string heartbeat() const override { return stream_->heartbeat(); }
  bool endless() const override { return true; }

 private:
  OpenStreams& all_;
  std::shared_ptr<Place> place_;
  std::shared_ptr<BodyStream> stream_;
};

std::shared_ptr<BodyStream> OpenStreams::add(std::shared_ptr<BodyStream> stream, const std::string& network) {
  auto place = std::make_shared<Place>();
  place->held = {network, std::chrono::steady_clock::now()};
  {
    const std::lock_guard lock(mutex_);
    places_.push_back(place);
    if (places_.size() > most_) give_up_one(network);
  }
  return std::make_shared<Counted>(*this, std::move(place), std::move(stream));
}

void OpenStreams::give_up_one(const std::string& newcomer) {
  std::vector<HeldPlace> held;
  for (const auto& place : places_) held.push_back(place->held);
  const auto given_up = std::next(places_.begin(), static_cast<std::ptrdiff_t>(place_to_give_up(held, newcomer).value()));
  (*given_up)->given_up = true;
  places_.erase(given_up);
}

void OpenStreams::remove(const std::shared_ptr<Place>& place) {
  const std::lock_guard lock(mutex_);
  places_.remove(place);
}

}  // namespace sluice
