#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agents/repl/heat_map.h"
#include "scripting/graph/types.h"

namespace sluice::repl {

/// A tensor to show.
struct ShownTensor {
  std::string type = "f32";
  Shape shape;                 // with the number of pages
  std::vector<double> values;  // row-major
  std::vector<bool> exists;    // false: of a token that the newest page does not hold yet
};

/// "[page 64, head 4]  min ... mean ... max ...", and how many are NaN, infinite or not there.
std::string summary(const ShownTensor& tensor);

/// The summary, the first values and, for one value or one row of them a page, a heat map.
std::string describe(const ShownTensor& tensor, const Style& style);

/// A number with 5 significant digits; "nan", "inf" and "-inf".
std::string number_text(double value);

}  // namespace sluice::repl
