#include "agents/generation/engine_places.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace sluice::test {
namespace {

using Kind = PlaceOffer::Kind;
using namespace std::chrono_literals;

/// Three places, two of a caller, one of a dear flow.
PlaceLimits four() { return place_limits(4, {}); }

EnginePlace busy(const std::string& flow, const std::vector<std::string>& callers) {
  EnginePlace place;
  place.flow = flow;
  place.busy = true;
  place.callers = callers;
  return place;
}

EnginePlace dear(EnginePlace place) {
  place.dear = true;
  return place;
}

EnginePlace idle(const std::string& flow, std::chrono::seconds since) {
  EnginePlace place;
  place.flow = flow;
  place.last_used = GenerationClock::time_point(1h) - since;
  return place;
}

void expect_offer(const PlaceOffer& offer, Kind kind, const std::string& flow) {
  EXPECT_EQ(offer.kind, kind);
  EXPECT_EQ(offer.flow, flow);
}

TEST(EnginePlaces, WhereEachFlowHasOneNobodyNeedsToLeaveOne) {
  const PlaceLimits any = place_limits(4, {});
  EXPECT_EQ(any.engines, 4);
  EXPECT_EQ(any.places, 3);
  EXPECT_EQ(any.of_caller, 2);
  EXPECT_EQ(any.dear, 1);
  const PlaceLimits two = place_limits(4, 2);
  EXPECT_EQ(two.engines, 3);
  EXPECT_EQ(two.places, 2);
  EXPECT_EQ(two.of_caller, 2);
  EXPECT_EQ(two.dear, 2);
  EXPECT_EQ(place_limits(4, 7).of_caller, 2);
  EXPECT_EQ(place_limits(4, 0).engines, 1);
  const PlaceLimits one = place_limits(1, {});
  EXPECT_EQ(one.places, 1);
  EXPECT_EQ(one.of_caller, 1);
  EXPECT_EQ(one.dear, 1);
}

TEST(EnginePlaces, AFreeOneIsTakenThenThatWhichWasIdleLongest) {
  std::vector<EnginePlace> engines{idle("a", 10s), idle("b", 20s)};
  expect_offer(offer_place(four(), "ada", false, engines), Kind::kFree, "");
  engines.push_back(idle("c", 5s));
  expect_offer(offer_place(four(), "ada", false, engines), Kind::kIdle, "b");
}

TEST(EnginePlaces, OneCallerNeverHasTheLastOne) {
  const std::vector<EnginePlace> engines{busy("a", {"ada"}), busy("b", {"ada"})};
  expect_offer(offer_place(four(), "ada", false, engines), Kind::kLaterThanOwn, "a");
  expect_offer(offer_place(four(), "bob", false, engines), Kind::kFree, "");
}

TEST(EnginePlaces, AnEngineThatOthersUseTooIsNotCounted) {
  const std::vector<EnginePlace> engines{busy("a", {"ada"}), busy("b", {"ada", "bob"})};
  expect_offer(offer_place(four(), "ada", false, engines), Kind::kFree, "");
}

TEST(EnginePlaces, DearFlowsHaveHalfOfThem) {
  const std::vector<EnginePlace> engines{dear(busy("a", {"ada"}))};
  expect_offer(offer_place(four(), "bob", true, engines), Kind::kLater, "a");
  expect_offer(offer_place(four(), "bob", false, engines), Kind::kFree, "");
  const std::vector<EnginePlace> idles{idle("b", 20s), dear(idle("a", 10s))};
  expect_offer(offer_place(four(), "bob", true, idles), Kind::kIdle, "a");
}

TEST(EnginePlaces, WhoHasNoneWaitsForOneOfACallerWhoHasSeveral) {
  const std::vector<EnginePlace> engines{busy("a", {"ada"}), busy("b", {"bob", "eve"}), busy("c", {"bob"})};
  expect_offer(offer_place(four(), "dan", false, engines), Kind::kLater, "c");
}

TEST(EnginePlaces, ALightFlowWaitsForNoDearOneWhereThereIsAnother) {
  const std::vector<EnginePlace> engines{dear(busy("a", {"ada"})), busy("b", {"bob"}), busy("c", {"eve"})};
  expect_offer(offer_place(four(), "dan", false, engines), Kind::kLater, "b");
  const std::vector<EnginePlace> alone{dear(busy("a", {"ada"}))};
  expect_offer(offer_place(place_limits(2, {}), "dan", false, alone), Kind::kLater, "a");
}

TEST(EnginePlaces, OneIsClosedForAllWhoWait) {
  std::vector<EnginePlace> engines{busy("a", {"ada"}), busy("b", {"bob"}), busy("c", {"eve"})};
  engines[2].closed = true;
  expect_offer(offer_place(four(), "dan", false, engines), Kind::kLater, "c");
  expect_offer(offer_place(four(), "joe", false, engines), Kind::kLater, "c");
}

}  // namespace
}  // namespace sluice::test
