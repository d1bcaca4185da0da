#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "kernels/cuda/codegen/layout.h"
#include "kernels/cuda/codegen/writer.h"

namespace sluice::cuda::codegen {

/// Expressions for the position along each axis; the page is its position in the row.
using Index = std::array<std::string, 5>;
inline std::string& at(Index& index, Axis axis) { return index[static_cast<size_t>(axis)]; }
inline const std::string& at(const Index& index, Axis axis) { return index[static_cast<size_t>(axis)]; }

/// Where a kernel keeps a value that it computes for itself.
struct KernelSlot {
  enum class Kind : uint8_t { kNone, kFixed, kTile } kind = Kind::kNone;
  int64_t offset = 0;  // kFixed: numbers; kTile: numbers a page before it
};

/// The names that statements may use in the kernel that is being written.
///   index stage: `row` (Row), `fixed`, and in tiles also `tile`, `ids`, and the first page by the name `tile_first`
///   index stage, where the row is held: `constants`, `held` (from the page `first` on), `blocks` (RowBlocks), `share` (pages)
///   cache stage: `block`, `tokens`, `tile`
struct KernelScope {
  static constexpr int kTileThreads = 256;

  const FlowLayout* layout = nullptr;
  Stage stage = Stage::kIndex;
  std::vector<KernelSlot> slots;  // by node
  int tile_pages = 1;
  const char* tile_first = "first";
  bool in_tile = false;                     // pages lie in a tile; else anywhere in the row
  bool holds_row = false;                   // what is stored lies in shared memory ...
  std::string held_pages = "a.held_pages";  // ... which has room for so many pages
  bool reads_neighbours = false;            // also of pages that other blocks hold
  bool knows_place = false;                 // `place` is that of the page among those attended to
};

/// Text of the element of a node, as statements and an expression. Within one Values each (node, position) is computed once.
class Values {
 public:
  /// Gives the expression of a node in place of the usual one, or nothing.
  using Override = std::function<std::optional<std::string>(NodeId, const Index&)>;

  Values(const KernelScope& scope, Writer& writer, std::string prefix = "v")
      : scope_(scope), writer_(writer), prefix_(std::move(prefix)) {}
  void set_override(Override override) { override_ = std::move(override); }

  std::string read(NodeId id, const Index& index);
  /// The same, computed although the node has a place of its own. Not for what reads along an axis.
  std::string compute(NodeId id, const Index& index);

 private:
  std::string key_of(NodeId id, const Index& index) const;
  std::string source(const Node& node, const Index& index) const;
  std::string expression(NodeId id, const Index& index);
  std::string reshaped(const Node& node, const Index& index);
  std::string masked(const Node& node, const Index& index);
  std::string kronecker(const Node& node, const Index& index);

  const KernelScope& scope_;
  Writer& writer_;
  std::string prefix_;
  Override override_;
  std::map<std::string, std::string> known_;
  int count_ = 0;
};

/// The same float32 wherever the text is compiled.
std::string literal(double value);
/// "BF16", the type of the prelude that stores `type`.
std::string type_name(DataType type);
/// Position of an element within a page, row-major.
std::string linear(const Shape& shape, const Index& index);
/// Statements that set `index` along the axes of `shape` (but the page) from the row-major position `position`.
Index split(Writer& writer, const Shape& shape, const std::string& position);
/// Where the element of a node lies that the kernel or an earlier one keeps; nothing for what is computed where it is read.
std::optional<std::string> place_of(const KernelScope& scope, NodeId id, const Index& index);
/// Kernels for pieces of rows have the numbers of a tile's pages at hand, `ids`: of the pages with fields, where these are others
/// than those with K and V. Whether a part lies in the pages that these `ids` are of.
bool is_tile_part(const Plan& plan, const BlockPart& part);
/// The block of such a part, of the page `at` of the tile.
std::string tile_block(const BlockPart& part, const std::string& at);
/// The block of any part, of the page `position` of the row.
std::string row_block(const BlockPart& part, const std::string& position);
/// How many entries exist along `axis` of a value of `shape`.
std::string held(const KernelScope& scope, const Shape& shape, Axis axis, const Index& index);

}  // namespace sluice::cuda::codegen
