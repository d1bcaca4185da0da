#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice {

/// Bytes of one page of one KV head (docs/DESIGN.md, section 5). K and V are [token, dim] row-major; a field is row-major in its
/// shape. Every part starts at a multiple of 64 bytes. Cached fields lie behind K and V, or in pages of their own.
struct PageLayout {
  int page = 16;  // tokens
  int head_dim = 64;
  DataType kv = DataType::kBF16;
  bool has_tokens = true;  // K and V; else fields alone
  size_t key_offset = 0;
  size_t value_offset = 0;
  std::vector<size_t> field_offsets;  // by index in FlowGraph::fields; empty where they lie elsewhere
  size_t bytes = 0;                   // of the whole, a multiple of 64
};

/// How the nodes of a fused stage run.
enum class StepKind : uint8_t {
  kQuery,   // once per row (request x KV head): nodes without page axis that need no page
  kPages,   // page-local: a tile of pages at a time, all nodes fused, nothing but `outputs` leaves the tile
  kRow,     // one row-wide node: reduction, softmax, normalize or convolution over the page axis
  kSelect,  // a selection
  kSave,    // state written back
};

/// One fused step. Steps run in order; a node belongs to exactly one step, except constants.
struct PlanStep {
  StepKind kind = StepKind::kPages;
  std::vector<NodeId> nodes;    // in order
  std::vector<NodeId> outputs;  // those of `nodes` that later steps read (a row buffer each)
  /// Of kPages: nothing but saves with a tail reads `outputs`. Only pages that leave the tail in this step are wanted.
  bool is_of_leaving_pages = false;
};

/// Where the keys or the values of a source lie in a page.
struct PagePart {
  int field = -1;   // its index in FlowGraph::fields
  int state = -1;   // its index in FlowGraph::states; neither: K or V of the cache
  int entries = 0;  // a page; 0: the tokens that the page holds

  bool operator==(const PagePart&) const = default;
};

/// A source of attention as a device takes it (AttentionSource), but for the tokens beside it, which the batch of a pass tells.
struct AttendedSource {
  NodeId selection = kNoNode;  // a select step gives its pages
  PagePart keys;
  PagePart values;
  NodeId bias = kNoNode;    // an output of an earlier step, or none
  NodeId logits = kNoNode;  // the same: [page, head] products of the query and the keys, not scaled
  bool others = false;
  bool shares = false;
  int group_pages = 1;
  NodeId opened = kNoNode;  // a select step gives its pages, or none

  /// Whether it is the tokens of its pages.
  bool is_plain() const { return keys == PagePart{} && values == PagePart{} && bias == kNoNode && !others && !shares; }
};

/// The last step: one softmax over the entries of all sources.
struct AttendStep {
  std::vector<AttendedSource> sources;  // empty: the layer is dense

  /// Whether it attends to the tokens of one selection's pages, or of all: devices take no more so far.
  bool is_plain() const { return sources.empty() || (sources.size() == 1 && sources.front().is_plain()); }
  /// Of a plain step; kNoNode: all pages.
  NodeId selection() const { return sources.empty() ? kNoNode : sources.front().selection; }
};

/// What a device compiles: an optimised graph, its memory layout and its fused steps.
struct Plan {
  FlowGraph graph;                         // after passes, verified
  PageLayout layout;                       // of the pages with K and V
  std::optional<PageLayout> field_layout;  // of the pages with the fields, where these have pages of their own
  std::vector<NodeId> cache;               // cache-stage nodes in order; fused into one refresh per page
  std::vector<PlanStep> index;             // index-stage steps in order
  AttendStep attend;
  std::vector<PlanStep> after;  // after-stage steps in order; none: there is no such stage
  int program = 0;              // of a flow that has several: which this is
  std::vector<Plan> variants;   // of the graph's variants, whose programs are 1, 2 ...; `graph` has them no more

  bool has_field_pages() const { return field_layout.has_value(); }
  /// Of the pages that have the fields.
  const PageLayout& fields() const { return field_layout ? *field_layout : layout; }
  /// Whether its layers keep other tokens than those of other flows, or other fields in one layer than in another.
  bool has_own_cache() const { return graph.has_own_cache() || !variants.empty(); }
  /// All programs: this one, then the variants.
  std::vector<const Plan*> programs() const;
  /// That of a layer, of `count`; null: it attends densely.
  const Plan* program_of(int layer, int count) const;
  /// Whether prompts of the flow may have K and V that were computed where their text stood before.
  bool takes_copies() const { return !has_own_cache() && prompt_rows_wanted() == 0; }
  /// Whether tokens leave some layer.
  bool evicts() const;
  /// Whether rows of prompts see what a pattern shows them, in some layer.
  bool bounds_prompts() const;
  /// The most that a program wants (FlowGraph::prompt_rows_wanted).
  int prompt_rows_wanted() const;
};

/// The layout of pages without a flow (fields empty) or with its fields.
PageLayout page_layout(const Geometry& geometry, const std::vector<Field>& fields);
/// The layout of pages that have the fields alone.
PageLayout field_page_layout(const Geometry& geometry, const std::vector<Field>& fields);
/// The same plan with its cached fields, if it has any, in pages of their own. Its pages with K and V are then those of every
/// other such flow with the same geometry, and of dense attention.
Plan with_field_pages(Plan plan);

/// Name, time and effect of one pass, for `sluice plan`.
struct PassReport {
  std::string name;
  bool enabled = true;
  double microseconds = 0;
  int nodes_before = 0;
  int nodes_after = 0;
};

struct CompileOptions {
  std::vector<std::string> disabled_passes;
};

struct Compilation {
  Plan plan;
  std::vector<PassReport> passes;
};

/// Runs the list of passes in scripting/passes/pipeline.cpp, each followed by `verify`, then fuses.
/// Throws FlowError if `graph` is refused, or its steps would keep too many numbers for every page (GraphLimits).
Compilation compile(FlowGraph graph, const CompileOptions& options = {});

}  // namespace sluice
