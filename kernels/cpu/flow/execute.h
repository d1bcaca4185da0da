#pragma once

#include <cstddef>

#include "kernels/cpu/flow/flow.h"
#include "kernels/cpu/flow/program.h"
#include "kernels/cpu/flow/scratch.h"

namespace sluice::cpu::flows {

/// What instructions work on: pages [first, first + count) of a row, or one page in the cache stage.
struct Tile {
  const FlowRow* row = nullptr;     // null in the cache stage
  const std::byte* page = nullptr;  // the page, in the cache stage
  int first = 0;
  int count = 1;
  int pages = 1;       // of the whole row
  int tokens = 0;      // in the last page of the row (or in the page)
  int tile_first = 0;  // first page held by tile buffers
  int tile_pages = 1;  // room of tile buffers
};

/// Runs one instruction for a tile.
void execute(const Plan& plan, const Program& program, const Instruction& instruction, const Tile& tile, Scratch& scratch);

/// Where the value of `node` lies for page `page` of a tile.
float* value_of(const FlowGraph& graph, const Program& program, NodeId node, int page, const Tile& tile, Scratch& scratch);

}  // namespace sluice::cpu::flows
