#include "agents/harness/draft_members.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "agents/http/http_problem.h"

namespace sluice {

void refuse_others(const JsonObject& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw HttpProblem(422, fmt::format("{}: unknown member {}", object.where(), excerpt(key)))
          .with("hint", fmt::format("known are {}", fmt::join(known, ", ")));
    }
  }
}

}  // namespace sluice
