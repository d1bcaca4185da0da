#pragma once

#include <map>
#include <string>

namespace sluice::test {

/// Values of a page in Prometheus's text format by name and labels as written: `a{b="c"}`. Throws std::runtime_error for lines
/// that are none, values without a type, names that are typed twice and histograms whose buckets fall or lack +Inf.
std::map<std::string, double> parse_prometheus(const std::string& text);

}  // namespace sluice::test
