#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

/// How the rows of many sequences lie in one storage: the vTensor layouts of Vortex (appendix, sections 8 and 9). Operators
/// map over sequences and never mix them. Three kinds, each a special case of the next:
///  - batch: every sequence has the same number of rows; sequence i starts at row i * rows;
///  - ragged: sequence i owns the rows indptr[i] ... indptr[i + 1];
///  - paged: sequence i owns the pages indices[indptr[i]] ... indices[indptr[i + 1]], oldest first, of which the last may be
///    partly filled; pages may be shared between sequences.
/// Sequences can be appended without allocation once `reserve` made room, so that a decode step can describe itself.
class Layout {
 public:
  enum class Kind : uint8_t { kBatch, kRagged, kPaged };

  static Layout batch(int sequences, int rows);
  /// Without sequences yet.
  static Layout ragged();
  /// Without sequences yet; `page` rows a page.
  static Layout paged(int page);

  Kind kind() const { return kind_; }
  int sequences() const { return static_cast<int>(lengths_.size()); }
  /// Rows of one sequence.
  int rows(int sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  /// Row of the storage that holds row `row` of `sequence`.
  int64_t storage_row(int sequence, int row) const;

  /// [sequences + 1] offsets: of rows (batch, ragged) or of entries of `indices` (paged).
  std::span<const int32_t> indptr() const { return indptr_; }
  /// Pages of all sequences, one after the other; empty unless paged.
  std::span<const int32_t> indices() const { return indices_; }
  /// [sequences] rows.
  std::span<const int32_t> lengths() const { return lengths_; }

  /// The same rows as a paged layout with one row a page. Paged layouts are returned as they are.
  Layout to_paged() const;

  void reserve(int sequences, int indices);
  void clear();
  /// Appends a sequence of `rows` rows to a ragged layout.
  void append(int rows);
  /// Appends a sequence to a paged layout. Throws InternalError unless `pages` are just enough for `rows`.
  void append(std::span<const int32_t> pages, int rows);

 private:
  Layout(Kind kind, int page);

  Kind kind_;
  int page_;
  std::vector<int32_t> indptr_;
  std::vector<int32_t> indices_;
  std::vector<int32_t> lengths_;
};

/// Pages that `rows` rows take.
constexpr int pages_for(int rows, int page) { return (rows + page - 1) / page; }

}  // namespace sluice
