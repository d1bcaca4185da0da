#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::store {

/// One line of a difference. Lines count from 1; 0: the text has no such line.
struct DiffLine {
  enum class Kind : uint8_t { kContext, kAdded, kRemoved };
  Kind kind = Kind::kContext;
  int old_line = 0;
  int new_line = 0;
  std::string text;  // without its line break
};

struct DiffHunk {
  std::string header;  // "@@ -1,3 +1,4 @@", and the heading that it stands under
  std::vector<DiffLine> lines;
};

struct TextDiff {
  std::vector<DiffHunk> hunks;  // empty: both texts are the same
  std::string unified;          // as `git diff` writes it
};

/// Lines around a change that `git diff` shows.
constexpr int kUsualContext = 3;
/// Context that takes in all of a text.
constexpr int kWholeContext = 1 << 30;

/// What changed from one text to another, as Git sees it, which also decides what is called a line. `file` is the name in
/// `unified`. Throws StoreError (kInternal) if Git cannot.
TextDiff diff_texts(const std::string& from, const std::string& to, const std::string& file, int context = kUsualContext);

}  // namespace sluice::store
