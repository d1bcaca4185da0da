#pragma once

#include <utility>
#include <vector>

#include "kernels/cuda/codegen/fields_writer.h"
#include "kernels/cuda/codegen/row_tiles.h"

namespace sluice::cuda::codegen {

/// Writes what kernels that hold rows share beside their tiles: a block's part of a row, the newest page's fields, and selection.
class HeldRowWriter : public RowTilesWriter {
 protected:
  HeldRowWriter(const FlowLayout& layout, Writer& writer, const Crew& crew);
  ~HeldRowWriter() = default;

  /// Where a block of so many warps has what it needs whatever the length of its row; returns its bytes.
  int64_t place_fixed_memory(int warps);
  /// What the block has of the row. `shared`: whether several blocks may have it. Each has a multiple of `step` pages of it.
  void declare_share(const char* shared, int step);
  void declare_newest();
  void write_prefetch();
  /// `is_scored`: the newest page may have a tile that waits for its fields.
  void write_refresh(bool is_scored);
  /// The first and the last pages that are kept whatever their scores.
  std::pair<int, int> kept_pages() const;
  void begin_selection();
  /// `most` pages at either end: what all rows fetch is to stay in L2 until then.
  void fetch_kept_pages(int most = 2);
  void select_from_row(const char* share);

  const std::vector<NodeId> selected_;  // the leaves of the flow's selection
  FieldsWriter fields_;                 // in memory by the name of `field_values`
};

}  // namespace sluice::cuda::codegen
