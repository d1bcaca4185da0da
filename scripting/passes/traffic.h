#pragma once

#include "scripting/graph/plan.h"

namespace sluice {

/// Bytes that one row (request x KV head) must move in one decode step of one layer.
struct Traffic {
  double fields = 0;     // cached fields, keys and values that the stage reads
  double buffers = 0;    // row buffers between steps, and masses, written and read; in cache or on chip, not counted in `total`
  double state = 0;      // states read and written
  double attention = 0;  // keys and values of the selected pages, and of the fields that stand for others
  double total() const { return fields + state + attention; }
};

/// Traffic of one step of a plan with `pages` pages a row.
Traffic traffic_of_step(const Plan& plan, const PlanStep& step, double pages);

/// Bytes that refreshing the fields of one page reads and writes.
double refresh_bytes(const Plan& plan);

/// Most pages that the flow attends to, of `pages`: those that it selects, and `beside` that have tokens beside them.
double selected_pages(const FlowGraph& graph, double pages, double beside);

/// Bytes of what is attended to in fields (AttentionSource), where `selected` of `pages` pages are opened.
double summary_bytes(const FlowGraph& graph, double pages, double selected);

}  // namespace sluice
