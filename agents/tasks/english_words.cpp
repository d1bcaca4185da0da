#include "agents/tasks/english_words.h"

#include <fmt/format.h>

#include <functional>
#include <unordered_set>

namespace sluice::english {
namespace {

std::vector<std::string> collect(int count, const std::function<std::string()>& make) {
  std::unordered_set<std::string> seen;
  std::vector<std::string> result;
  while (static_cast<int>(result.size()) < count) {
    std::string next = make();
    if (seen.insert(next).second) result.push_back(std::move(next));
  }
  return result;
}

const std::vector<std::string>& verbs() {
  static const std::vector<std::string> words = {"stood near",     "leaned against", "belonged to", "was kept beside",
                                                 "looked like",    "came before",    "followed",    "rested on",
                                                 "was painted as", "faced",          "hid behind",  "replaced"};
  return words;
}

const std::vector<std::string>& endings() {
  static const std::vector<std::string> words = {"all summer",      "in the morning", "for many years", "until the rain came",
                                                 "after lunch",     "without a word", "as usual",       "once again",
                                                 "before the trip", "on a quiet day"};
  return words;
}

}  // namespace

const std::vector<std::string>& nouns() {
  static const std::vector<std::string> words = {
      "anchor", "apple",   "arrow",    "badge",   "bakery",  "balloon", "banner",  "barn",    "basket",  "beach",    "bell",
      "bench",  "bicycle", "blanket",  "boat",    "book",    "bottle",  "branch",  "bread",   "bridge",  "brush",    "bucket",
      "button", "cabin",   "cable",    "camera",  "candle",  "canoe",   "canyon",  "carpet",  "castle",  "chair",    "cherry",
      "circle", "cliff",   "clock",    "cloud",   "coat",    "coin",    "compass", "copper",  "cottage", "cotton",   "cradle",
      "crane",  "crown",   "curtain",  "desert",  "desk",    "diamond", "door",    "dragon",  "drum",    "eagle",    "engine",
      "falcon", "farm",    "feather",  "fence",   "field",   "finger",  "flag",    "flute",   "forest",  "fountain", "fox",
      "garden", "garlic",  "gate",     "glacier", "glove",   "guitar",  "hammer",  "harbor",  "hat",     "hill",     "honey",
      "horse",  "hotel",   "island",   "jacket",  "jar",     "jewel",   "kettle",  "kitchen", "kite",    "ladder",   "lake",
      "lamp",   "lantern", "lemon",    "letter",  "library", "lion",    "lock",    "map",     "marble",  "market",   "meadow",
      "mirror", "moon",    "mountain", "museum",  "needle",  "nest",    "oak",     "ocean",   "olive",   "onion",    "orchard",
      "owl",    "palace",  "paper",    "parrot",  "pearl",   "pencil",  "piano",   "pillow",  "planet",  "plate",    "pocket",
      "pond",   "potato",  "puzzle",   "rabbit",  "radio",   "raven",   "ribbon",  "river",   "robot",   "rocket",   "rope",
      "saddle", "salmon",  "school",   "shadow",  "shell",   "silver",  "spoon",   "statue",  "stone",   "table",    "temple",
      "tiger",  "tower",   "train",    "valley",  "violin",  "wagon",   "wheel",   "whistle", "window",  "winter",   "yarn"};
  return words;
}

const std::vector<std::string>& adjectives() {
  static const std::vector<std::string> words = {
      "amber",   "ancient", "bitter", "blue",    "brave",   "bright",  "broad",  "calm",   "careful", "clever",  "cold",
      "crimson", "curious", "dark",   "deep",    "distant", "dry",     "eager",  "early",  "empty",   "faded",   "fair",
      "fierce",  "gentle",  "golden", "grand",   "gray",    "green",   "happy",  "heavy",  "hidden",  "hollow",  "humble",
      "idle",    "jolly",   "kind",   "late",    "light",   "little",  "lonely", "loud",   "lucky",   "mellow",  "misty",
      "modest",  "narrow",  "noble",  "old",     "pale",    "patient", "plain",  "proud",  "quick",   "quiet",   "rare",
      "rough",   "royal",   "rusty",  "shallow", "sharp",   "silent",  "simple", "smooth", "steady",  "strange", "sunny",
      "sweet",   "tall",    "tender", "tiny",    "warm",    "wild"};
  return words;
}

const std::vector<std::string>& properties() {
  static const std::vector<std::string> words = {
      "age",         "altitude",  "area",     "budget",    "capacity",   "circumference", "cost",   "debt",
      "density",     "depth",     "diameter", "distance",  "duration",   "elevation",     "fee",    "fleet size",
      "floor count", "footprint", "growth",   "height",    "income",     "inventory",     "length", "load",
      "mileage",     "output",    "payroll",  "perimeter", "population", "price",         "profit", "radius",
      "range",       "rent",      "salary",   "speed",     "stock",      "volume",        "weight", "width"};
  return words;
}

std::vector<std::string> hyphenated_names(Rng& rng, int count) {
  return collect(count, [&] { return rng.pick(adjectives()) + "-" + rng.pick(nouns()); });
}

std::vector<std::string> capital_names(Rng& rng, int count) {
  constexpr std::string_view kConsonants = "BCDFGHJKLMNPQRSTVWXZ";
  return collect(count, [&] {
    std::string name;
    for (int i = 0; i < 5; ++i) name += kConsonants[rng.below(kConsonants.size())];
    return name;
  });
}

std::vector<std::string> numbers(Rng& rng, int count, int digits) {
  return collect(count, [&] {
    std::string number(1, static_cast<char>('1' + rng.below(9)));
    for (int i = 1; i < digits; ++i) number += static_cast<char>('0' + rng.below(10));
    return number;
  });
}

std::string hay(Rng& rng) {
  return fmt::format("The {} {} {} the {} {} {}.", rng.pick(adjectives()), rng.pick(nouns()), rng.pick(verbs()),
                     rng.pick(adjectives()), rng.pick(nouns()), rng.pick(endings()));
}

}  // namespace sluice::english
