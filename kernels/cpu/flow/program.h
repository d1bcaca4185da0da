#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cpu/flow/fusion.h"
#include "kernels/cpu/flow/kernels.h"
#include "scripting/graph/plan.h"

namespace sluice::cpu::flows {

/// Where the value of a node lives while a flow runs.
enum class Place : uint8_t {
  kNone,   // it has no value (selections, saves), or no step stores it
  kFixed,  // one tensor without page axis
  kTile,   // the pages of the current tile only
  kRow,    // every page of the row
  kState,  // every page, in the request's state
  kMass,   // every page, where attention left what it gave
};

/// Numbers of floats. A paged value holds `per_page` for each page, page after page.
struct Slot {
  Place place = Place::kNone;
  int64_t offset = 0;    // kFixed: of the area; kTile: times the pages of a tile; kRow: times the most pages; kState: its index
  int64_t per_page = 0;  // 0 without page axis
};

/// One node with its shapes resolved to loops; everything that does not depend on the row or tile.
struct Instruction {
  NodeId node = kNoNode;
  Op op = Op::kConstant;
  bool paged = false;       // the result, or what it reduces, has the page axis
  bool along_page = false;  // works along the page axis: needs whole rows
  bool ragged = false;      // works along tokens that the last page may not have
  LoopNest nest;            // elementwise, kron, transpose, contract: the loops over the result
  AxisView view;            // operators along one axis: the extents of one page
  int64_t a_step = 0;       // contract: strides along the contracted axis
  int64_t b_step = 0;
  int64_t elements = 0;          // of the result, a page at a time
  int index = -1;                // of the field, or of the state
  std::optional<Fusion> fusion;  // a reduction that computes its operand on the way
};

/// Instructions that run together on a tile of pages, or once.
struct ProgramStep {
  StepKind kind = StepKind::kPages;
  std::vector<Instruction> once;   // results without page axis
  std::vector<Instruction> pages;  // a tile at a time
  int tile_pages = 1;
  bool is_of_leaving_pages = false;  // only pages that leave a tail in this step are wanted (PlanStep)
  std::vector<NodeId> effects;       // selections or saves, in order
};

/// A plan lowered for the CPU.
struct Program {
  std::vector<Slot> slots;         // by node
  std::vector<Instruction> cache;  // one page; all values are fixed
  std::vector<ProgramStep> index;
  std::vector<ProgramStep> after;  // which leaves rows and fixed values of `index` as they are
  std::vector<NodeId> saves;       // of both, in an order in which none changes what a later one reads
  int64_t fixed_floats = 0;
  int64_t tile_floats = 0;
  int64_t row_floats = 0;  // for each page
};

/// Lowers `plan`. Throws InternalError if the plan does not hang together.
Program lower(const Plan& plan);

}  // namespace sluice::cpu::flows
