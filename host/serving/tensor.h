#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

/// How the rows of many sequences lie in one storage: the vTensor layouts of Vortex (appendix, sections 8 and 9).
///  - ragged: sequence i owns the rows indptr[i] ... indptr[i + 1]; a batch, as in a decode step, is one row each;
///  - paged: sequence i owns the pages indices[indptr[i]] ... indices[indptr[i + 1]], oldest first, of which the last may be
///    partly filled; pages may be shared between sequences.
/// Sequences can be appended without allocation once `reserve` made room, so that a decode step can describe itself.
class Layout {
 public:
  /// Without sequences yet.
  static Layout ragged() { return Layout(0); }
  /// Without sequences yet; `page` rows a page.
  static Layout paged(int page) { return Layout(page); }

  /// [sequences + 1] offsets: of rows (ragged) or of entries of `indices` (paged).
  std::span<const int32_t> indptr() const { return indptr_; }
  /// Pages of all sequences, one after the other; empty unless paged.
  std::span<const int32_t> indices() const { return indices_; }
  /// [sequences] rows.
  std::span<const int32_t> lengths() const { return lengths_; }

  void reserve(int sequences, int indices);
  void clear();
  /// Appends a sequence of `rows` rows to a ragged layout.
  void append(int rows);
  /// Appends a sequence to a paged layout. Throws InternalError unless `pages` are just enough for `rows`.
  void append(std::span<const int32_t> pages, int rows);

 private:
  explicit Layout(int page) : page_(page), indptr_{0} {}

  int page_;  // 0: ragged
  std::vector<int32_t> indptr_;
  std::vector<int32_t> indices_;
  std::vector<int32_t> lengths_;
};

/// Pages that `rows` rows take.
constexpr int pages_for(int rows, int page) { return (rows + page - 1) / page; }

}  // namespace sluice
