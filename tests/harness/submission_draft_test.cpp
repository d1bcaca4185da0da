#include "agents/harness/submission_draft.h"

#include <gtest/gtest.h>

#include "agents/http/http_problem.h"

namespace sluice {
namespace {

TEST(CompleteSettings, RefusesTextsOfAModelThatKnowsNone) {
  ServedSettings served;
  served.is_mini = true;
  EXPECT_THROW(complete_settings(R"({"suite": "real"})", served), HttpProblem);
  EXPECT_NO_THROW(complete_settings(R"({"suite": "full"})", served));
  served.is_mini = false;
  EXPECT_NO_THROW(complete_settings(R"({"suite": "real"})", served));
}

}  // namespace
}  // namespace sluice
