#pragma once

#include <functional>
#include <string>

#include "kernels/cuda/codegen/crew.h"
#include "kernels/cuda/codegen/values.h"

namespace sluice::cuda::codegen {

/// Where the script wrote it, without anything that could end a comment.
std::string place_in_script(const SourceLocation& where);

/// Writes statements that compute nodes of a flow, by the names that its kernel has for what they read. What every writer of a
/// kernel begins with.
class NodeWriter {
 public:
  NodeWriter(const NodeWriter&) = delete;
  NodeWriter& operator=(const NodeWriter&) = delete;

 protected:
  NodeWriter(const FlowLayout& layout, Stage stage, Writer& writer, const Crew& crew);
  ~NodeWriter() = default;

  const Node& node(NodeId id) const { return layout_.node(id); }
  bool kept(NodeId id) const { return layout_.kept[static_cast<size_t>(id)]; }
  bool stored(NodeId id) const { return layout_.slots[static_cast<size_t>(id)].stored; }
  KernelSlot& slot(NodeId id) { return scope_.slots[static_cast<size_t>(id)]; }

  void comment(NodeId id);
  /// A loop of the crew over `per` elements, of each page if `paged`; inside, `p` is the page and `r` the element in it.
  void open_elements(int64_t per, bool paged);
  /// Computes a node for all pages of the tile (or the page, or once) into its place.
  void compute(NodeId id, bool paged);
  /// The same without the barrier behind it.
  void compute_unpublished(NodeId id, bool paged);
  /// `only`: a condition on the place, or all.
  void compute_elements(NodeId id, bool paged, const std::string& only = "");
  /// Statements that compute an element of a reduction.
  void reduce(NodeId id, const Index& index, const std::string& target);
  /// `taps`, the kernel of a convolution; returns how many there are.
  int declare_taps(const Node& convolution);

  const FlowLayout& layout_;
  const FlowGraph& graph_;
  Writer& writer_;
  KernelScope scope_;
  Crew crew_;
  bool by_own_pages_ = false;  // each thread has all elements of its pages, those that loops over pages give it
  int unrolled_ = 8;           // entries of a reduction
  int64_t tile_numbers_ = 0;   // a page

 private:
  void compute_lines(NodeId id, bool paged);
  void convolve(NodeId id, const Index& index, const std::string& target);
  /// Combines the entries `j` of the tokens that a page holds in `sum`. `entry` writes what computes one and returns it; `add` is
  /// the statement that adds such a text to the sum.
  void reduce_tokens(const std::function<std::string()>& entry, const std::function<std::string(const std::string&)>& add);
};

}  // namespace sluice::cuda::codegen
