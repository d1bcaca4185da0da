#include "agents/mcp/text_page.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sluice::mcp::test {
namespace {

std::string lines(int count) {
  std::string text;
  for (int i = 1; i <= count; ++i) text += fmt::format("line {}\n", i);
  return text;
}

/// All pages of a text, one after the other; their number is checked.
std::string together(const std::string& text, size_t most, int pages) {
  std::string all;
  int64_t line = 1;
  int count = 0;
  while (line > 0 && count < 1000) {
    const TextPage page = page_of(text, line, most);
    EXPECT_LE(page.text.size(), most);
    all += page.text;
    line = page.next_line;
    ++count;
  }
  EXPECT_EQ(count, pages);
  return all;
}

TEST(TextPage, AShortTextIsOnePage) {
  EXPECT_EQ(page_of("a\nb", 1, 100).text, "a\nb");
  EXPECT_EQ(page_of("a\nb", 1, 100).next_line, 0);
  EXPECT_EQ(page_of("", 1, 100).text, "");
}

TEST(TextPage, PagesEndWithLinesAndMakeTheWhole) {
  const std::string text = lines(9);
  EXPECT_EQ(page_of(text, 1, 20).text, "line 1\nline 2\n");
  EXPECT_EQ(page_of(text, 1, 20).next_line, 3);
  EXPECT_EQ(together(text, 20, 5), text);
  EXPECT_EQ(together(text, 14, 5), text);
  EXPECT_EQ(together(lines(1000), 500, 18), lines(1000));
}

TEST(TextPage, BeginsAtAnyLine) {
  EXPECT_EQ(page_of("a\nb\nc", 2, 100).text, "b\nc");
  EXPECT_EQ(page_of("a\nb\nc", 3, 100).text, "c");
  EXPECT_EQ(page_of("a\nb\nc", 4, 100).text, "");
  EXPECT_EQ(page_of("a\nb\n", INT64_MAX, 100).text, "");
}

TEST(TextPage, ALineThatIsTooLongIsCut) {
  const std::string text = std::string(50, 'x') + "\nnext\n";
  const TextPage page = page_of(text, 1, 20);
  EXPECT_EQ(page.text, std::string(20, 'x') + "... (30 more bytes)");
  EXPECT_EQ(page.next_line, 2);
  EXPECT_EQ(page.lines, 2);
  EXPECT_EQ(page_of(text, 2, 20).text, "next\n");
  EXPECT_EQ(page_of(std::string(50, 'x'), 1, 20).next_line, 0);
}

TEST(TextPage, CutsBetweenCharacters) {
  EXPECT_EQ(shortened("größe", 3), "gr... (5 more bytes)");
  EXPECT_EQ(shortened("größe", 4), "grö... (3 more bytes)");
  EXPECT_EQ(shortened("größe", 7), "größe");
}

TEST(TextPage, ListsLoseTheirEnd) {
  nlohmann::json list = nlohmann::json::array();
  for (int i = 0; i < 100; ++i) list.push_back("0123456789");
  const nlohmann::json whole = list;
  EXPECT_EQ(cut_list(list, 100'000), 0U);
  EXPECT_EQ(list, whole);
  EXPECT_EQ(cut_list(list, 131), 91U + 0U);
  EXPECT_EQ(list.size(), 9U);
  EXPECT_LE(list.dump().size(), 131U);
}

}  // namespace
}  // namespace sluice::mcp::test
