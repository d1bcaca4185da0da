#pragma once

#include <cstdint>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice::oracle {

/// When a node is evaluated.
enum class Span : uint8_t {
  kOnce,    // it has no page axis
  kPage,    // page by page
  kRow,     // it reduces, normalises or convolves over pages: its operand is there for all of them
  kEffect,  // selections and saves, after everything else
};

/// An order in which the reference evaluates the index stage, or the after stage, so that few values exist for all pages at a
/// time. A row-wide node ends a phase; within one, nodes run `once`, then `pages` for one page after the other, then `rows`.
/// Sources with a page axis are read again in every phase that needs them; the fields that are read are computed once, before.
struct Schedule {
  struct Phase {
    std::vector<NodeId> once;
    std::vector<NodeId> pages;  // sources among them
    std::vector<NodeId> rows;
    std::vector<NodeId> last_read;  // values of all pages that nobody needs after this phase
  };

  /// Nodes that `roots` need.
  Schedule(const FlowGraph& graph, const std::vector<NodeId>& roots);

  std::vector<Span> spans;   // by node
  std::vector<bool> live;    // by node
  std::vector<bool> stored;  // by node: its values of all pages are kept until they have been read
  std::vector<Phase> phases;
};

/// What the evaluation of `roots` needs for each page of a row.
struct Cost {
  int64_t work = 0;     // element operations
  int64_t numbers = 0;  // that are kept for every page, fields and states included
};
Cost cost_a_page(const FlowGraph& graph, const std::vector<NodeId>& roots);

/// What the result and the next step depend on: the selection and all saves.
std::vector<NodeId> roots_of(const FlowGraph& graph);
/// Those of them that are of one stage.
std::vector<NodeId> roots_of(const FlowGraph& graph, Stage stage);

}  // namespace sluice::oracle
