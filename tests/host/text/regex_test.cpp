#include "host/text/regex.h"

#include <gtest/gtest.h>

#include "scripting/base/error.h"

namespace sluice {
namespace {

using Ranges = std::vector<std::pair<size_t, size_t>>;

TEST(Regex, MatchesWholeCharacters) { EXPECT_EQ(Regex(".", "x").matches("a\u00e9"), (Ranges{{0, 1}, {1, 3}})); }

TEST(Regex, RefusesSingleBytes) {
  // \C would match half of a character, and the text after it would be read from within one.
  for (const char* pattern : {"\\C", "(?s).{39}\\C", "a|\\C+"}) EXPECT_THROW(Regex(pattern, "x"), InputError) << pattern;
}

}  // namespace
}  // namespace sluice
