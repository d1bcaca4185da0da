#include "scripting/graph/layer_patterns.h"

#include <algorithm>

namespace sluice {

int LayerPatterns::place_of(int layer, int count) const {
  if (const auto exact = layers.find(layer); exact != layers.end()) return exact->second;
  if (const auto from_end = layers.find(layer - count); from_end != layers.end()) return from_end->second;
  return rest;
}

int LayerPatterns::add(const HeadPatterns& pattern) {
  const auto found = std::find(patterns.begin(), patterns.end(), pattern);
  const auto place = static_cast<int>(found - patterns.begin());
  if (found == patterns.end()) patterns.push_back(pattern);
  return place;
}

size_t LayerPatterns::count() const {
  size_t count = 0;
  for (const HeadPatterns& each : patterns) count += each.each().size();
  return count;
}

}  // namespace sluice
