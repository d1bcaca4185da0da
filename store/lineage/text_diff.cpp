#include "store/lineage/text_diff.h"

#include <fmt/format.h>
#include <git2.h>

#include <algorithm>
#include <memory>

#include "store/error.h"
#include "store/lineage/git.h"

namespace sluice::store {

namespace {

struct FreePatch {
  void operator()(git_patch* patch) const { git_patch_free(patch); }
};
using Patch = std::unique_ptr<git_patch, FreePatch>;

/// A buffer of libgit2's.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { git_buf_dispose(&buffer_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  git_buf* get() { return &buffer_; }
  std::string text() const { return buffer_.ptr == nullptr ? std::string() : std::string(buffer_.ptr, buffer_.size); }

 private:
  git_buf buffer_ = GIT_BUF_INIT;
};

void check(int code) {
  if (code >= 0) return;
  const git_error* error = git_error_last();
  throw StoreError(ErrorKind::kInternal, fmt::format("Git cannot compare: {}", error != nullptr ? error->message : "no reason"));
}

std::string without_line_break(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Patch patch_of(const std::string& from, const std::string& to, const std::string& file, int context) {
  git_diff_options options = GIT_DIFF_OPTIONS_INIT;
  options.context_lines = static_cast<uint32_t>(context);
  // As `git diff` does by default; a script is text, whatever bytes it holds.
  options.flags = GIT_DIFF_INDENT_HEURISTIC | GIT_DIFF_FORCE_TEXT;
  git_patch* made = nullptr;
  check(git_patch_from_buffers(&made, from.data(), from.size(), file.c_str(), to.data(), to.size(), file.c_str(), &options));
  return Patch(made);
}

DiffLine line_of(const git_diff_line& line) {
  DiffLine made;
  if (line.origin == GIT_DIFF_LINE_ADDITION) made.kind = DiffLine::Kind::kAdded;
  if (line.origin == GIT_DIFF_LINE_DELETION) made.kind = DiffLine::Kind::kRemoved;
  made.old_line = std::max(0, line.old_lineno);
  made.new_line = std::max(0, line.new_lineno);
  made.text = without_line_break({line.content, line.content_len});
  return made;
}

/// Remarks such as "no newline at end of file" are lines of neither text.
bool is_line_of_a_text(const git_diff_line& line) {
  return line.origin == GIT_DIFF_LINE_CONTEXT || line.origin == GIT_DIFF_LINE_ADDITION || line.origin == GIT_DIFF_LINE_DELETION;
}

DiffHunk hunk_of(git_patch* patch, size_t index) {
  const git_diff_hunk* found = nullptr;
  size_t lines = 0;
  check(git_patch_get_hunk(&found, &lines, patch, index));
  DiffHunk hunk{without_line_break({found->header, found->header_len}), {}};
  for (size_t i = 0; i < lines; ++i) {
    const git_diff_line* line = nullptr;
    check(git_patch_get_line_in_hunk(&line, patch, index, i));
    if (is_line_of_a_text(*line)) hunk.lines.push_back(line_of(*line));
  }
  return hunk;
}

}  // namespace

TextDiff diff_texts(const std::string& from, const std::string& to, const std::string& file, int context) {
  start_libgit2();
  const Patch patch = patch_of(from, to, file, context);
  TextDiff diff;
  for (size_t i = 0; i < git_patch_num_hunks(patch.get()); ++i) diff.hunks.push_back(hunk_of(patch.get(), i));
  Buffer unified;
  check(git_patch_to_buf(unified.get(), patch.get()));
  diff.unified = unified.text();
  return diff;
}

}  // namespace sluice::store
