#include "scripting/base/printable_text.h"

#include <gtest/gtest.h>

#include "scripting/base/error.h"

namespace sluice {
namespace {

TEST(PrintableText, ShowsByNumberWhatNobodySees) {
  EXPECT_EQ(printable("a\u202eb"), "a\\u{202e}b");
  for (const char* unseen :
       {"\u00ad", "\u034f", "\u061c",     "\u070f",     "\u180e",     "\u200b",     "\u200c",    "\u200d", "\u200e", "\u200f",
        "\u2028", "\u2029", "\u202a",     "\u202b",     "\u202c",     "\u202d",     "\u2060",    "\u2061", "\u2062", "\u2063",
        "\u2064", "\u2066", "\u2067",     "\u2068",     "\u2069",     "\u206a",     "\u206f",    "\u3164", "\ufe00", "\ufe0f",
        "\ufeff", "\ufff9", "\U0001d173", "\U000e0001", "\U000e0020", "\U000e007f", "\U000e0100"}) {
    EXPECT_TRUE(printable(unseen).starts_with("\\u{")) << printable(unseen);
    EXPECT_TRUE(printable(unseen).ends_with("}")) << printable(unseen);
  }
}

TEST(PrintableText, ShowsControlsAndBytesThatAreNoTextByNumber) {
  EXPECT_EQ(printable("\x1b[2J\x07\x7f\r\xc2\x9b"), "\\x1b[2J\\x07\\x7f\\x0d\\x9b");
  EXPECT_EQ(printable("a\xff\x9b\xe2\x80"), "a\\xff\\x9b\\xe2\\x80");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a surrogate pair";
  EXPECT_EQ(printable(std::string_view("\0x", 2)), "\\x00x");
}

TEST(PrintableText, LeavesTextOfAllLanguagesAlone) {
  for (const char* text :
       {"", "plain\n\ttext", "naïve – 97.5 %", "Привет", "日本語", "שלום", "مرحبا", "e\u0301", "🙂", "\ufffd"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(PrintableText, MessagesDoNotEndAtANul) {
  const std::string said("a\0b\0", 4);
  EXPECT_EQ(without_nul(said), "a\\0b\\0");
  EXPECT_STREQ(InputError(said).what(), "a\\0b\\0");
  EXPECT_STREQ(FlowError({"f", 1}, said).what(), "f:1: a\\0b\\0");
}

}  // namespace
}  // namespace sluice
