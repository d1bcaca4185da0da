#pragma once

#include "scripting/graph/graph.h"

namespace sluice {

/// Refuses every graph that a device could not run: trusts nothing in it, neither ids, shapes, attributes nor names.
/// Throws FlowError with the location of the offending node.
void verify(const FlowGraph& graph);

/// The same for the graph of a script that is not finished: it may have a selection or none, and what attention reads of a state
/// may not be saved yet. Throws FlowError.
void verify_unfinished(const FlowGraph& graph);

/// The same for the graph of a plan, whose steps may each read again what a script reads once (passes/fuse.cpp). To read a source
/// costs no more than what is computed from it there, which the script was granted: such readings do not count as work. So a plan
/// does at most five times the work that its script may ask for, `where` having four operands. Throws FlowError.
void verify_planned(const FlowGraph& graph);

/// Refuses a graph that names layers which a model of `layers` layers does not have, or one layer in two ways that disagree, for
/// the index stage or for patterns; and one that reads what attention gave where none of them runs it. Throws FlowError.
void verify_layers(const FlowGraph& graph, int layers);

/// Refuses patterns, of layers or beside a selection, under which no query sees any key, and budgets that the pattern which evict
/// keeps exceeds. Throws FlowError.
void verify_readers(const FlowGraph& graph);

/// Element operations of one node for one page: the larger of what it gives and what it reads, times the taps of a convolution.
int64_t work_of(const FlowGraph& graph, const Node& node);

/// Most nodes, fields, states, elements and work that a graph may have.
struct GraphLimits {
  static constexpr int kSources = 4;                // of attention
  static constexpr int kVariants = 15;              // beside a flow's first program; each has a group of the cache
  static constexpr int kPatterns = 15;              // of layers; each has a group of the cache, and so may have those without one
  static constexpr int64_t kPatternCost = 1 << 19;  // of a row of 2^17 tokens (Pattern::row_cost)
  static constexpr int kNodes = 4096;
  static constexpr int kLayers = 4096;  // of any model
  static constexpr int kFields = 64;
  static constexpr int kStates = 64;
  static constexpr int64_t kElements = 65536;  // of one node, the page axis not counted
  static constexpr int64_t kRowElements =
      4096;  // the same for the input of a row-wide operator and for states: kept for every page
  /// All states together; and all that a plan's steps leave to later steps, a page.
  static constexpr int64_t kKeptElements = 4 * kRowElements;
  static constexpr int64_t kWork = 1 << 22;  // element operations a page, all nodes of a script together
  static constexpr int kHeadDim = 1024;
  static constexpr int kGroup = 64;
  static constexpr int kPages = 1 << 24;     // bound of k, first, last and max of selections
  static constexpr int kTokens = 1 << 30;    // bound of budget, first, recent and chunk of an eviction
  static constexpr int kMassRows = 1 << 30;  // bound of the rows of a prompt that are counted one by one
  static constexpr int kKernel = 129;        // taps of conv1d
  static constexpr int kNameLength = 64;
};

}  // namespace sluice
