#include "store/lineage/text_diff.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/store/folder.h"

namespace sluice::store::test {
namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// From the first hunk on: the lines before name files.
std::string hunks_of(const std::string& unified) {
  const size_t begin = unified.find("@@ ");
  return begin == std::string::npos ? std::string() : unified.substr(begin);
}

/// What the program git says.
std::string judged(const Folder& folder, const std::string& from, const std::string& to, const std::string& options = {}) {
  write(folder.file("from"), from);
  write(folder.file("to"), to);
  return hunks_of(output_of("git -c core.pager=cat diff --no-color --no-ext-diff --no-index --text " + options + " " +
                            folder.file("from") + " " + folder.file("to") + " || true") +
                  "\n");
}

std::string random_text(std::mt19937& random) {
  std::string text;
  const int lines = static_cast<int>(random() % 40);
  for (int i = 0; i < lines; ++i) text += std::string(random() % 3, ' ') + static_cast<char>('a' + random() % 6) + "\n";
  if (random() % 4 == 0) text += "no break at the end";
  return text;
}

TEST(TextDiff, SaysWhatGitSays) {
  const Folder folder;
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    const std::string from = random_text(random);
    const std::string to = random_text(random);
    EXPECT_EQ(hunks_of(diff_texts(from, to, "flow.lua").unified), judged(folder, from, to)) << from << "----\n" << to;
  }
}

TEST(TextDiff, ShowsTheWholeTextIfWanted) {
  const Folder folder;
  std::string from;
  for (int i = 0; i < 100; ++i) from += std::to_string(i) + "\n";
  std::string to = from;
  to.replace(to.find("50\n"), 3, "fifty\n");
  EXPECT_EQ(diff_texts(from, to, "f").hunks.at(0).lines.size(), 8U);
  const TextDiff whole = diff_texts(from, to, "f", kWholeContext);
  EXPECT_EQ(whole.hunks.at(0).lines.size(), 101U);
  EXPECT_EQ(hunks_of(whole.unified), judged(folder, from, to, "-U1000000"));
}

TEST(TextDiff, LinesAndUnifiedTextAgree) {
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    const std::string from = random_text(random);
    const std::string to = random_text(random);
    std::string rebuilt_from;
    std::string rebuilt_to;
    int old_line = 0;
    int new_line = 0;
    for (const DiffHunk& hunk : diff_texts(from, to, "f", kWholeContext).hunks) {
      for (const DiffLine& line : hunk.lines) {
        if (line.kind != DiffLine::Kind::kAdded) {
          rebuilt_from += line.text + "\n";
          EXPECT_EQ(line.old_line, ++old_line);
        }
        if (line.kind != DiffLine::Kind::kRemoved) {
          rebuilt_to += line.text + "\n";
          EXPECT_EQ(line.new_line, ++new_line);
        }
      }
    }
    if (from == to) continue;
    const auto whole_lines = [](const std::string& text) { return text.empty() || text.ends_with('\n') ? text : text + "\n"; };
    EXPECT_EQ(rebuilt_from, whole_lines(from));
    EXPECT_EQ(rebuilt_to, whole_lines(to));
  }
}

TEST(TextDiff, TakesAnyBytes) {
  const std::string binary("a\0b\xff\n", 5);
  const TextDiff diff = diff_texts("", binary, "flow.lua");
  ASSERT_EQ(diff.hunks.size(), 1U);
  EXPECT_EQ(diff.hunks[0].lines.at(0).text, binary.substr(0, 4));
  EXPECT_TRUE(diff_texts(binary, binary, "flow.lua").hunks.empty());
  EXPECT_TRUE(diff_texts("", "", "flow.lua").unified.empty());
  EXPECT_EQ(diff_texts("a\r\nb", "a\nb", "flow.lua").hunks.size(), 1U) << "every byte counts";
}

}  // namespace
}  // namespace sluice::store::test
