#include <algorithm>
#include <map>

#include "kernels/cuda/codegen/block_memory.h"
#include "kernels/cuda/codegen/index_writer.h"
#include "kernels/cuda/codegen/kernel_writers.h"
#include "kernels/cuda/codegen/lanes.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/verify.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kMostTilePages = 512;
constexpr int kTileThreads = KernelScope::kTileThreads;
constexpr int kTileBlocks = 3;  // on a multiprocessor, whatever registers that costs

/// Page-local steps by blocks that take tiles of a row's pages.
class PiecesWriter final : public IndexWriter {
 public:
  PiecesWriter(const FlowLayout& layout, Writer& writer) : IndexWriter(layout, writer, kBlock) {}

  GeneratedKernel write(const Launch& launch, const std::string& name);

 private:
  /// Finds the reductions of a launch that lanes share, of those that all pages have; returns the bytes of the ring that they
  /// take turns to use.
  int64_t find_lane_reductions(const Launch& launch);
  /// The loop over pieces of rows, with the first tile of each.
  void open_pieces();
  /// `ids`, the places in the pool of the pages of a tile; `attended`, the places of those that were attended to, and `places`,
  /// that of each page.
  void read_ids();
  void find_masses(const Launch& launch);
  /// Whether a node reduces what was given to a page, so that it is 0 where the page was not attended to.
  bool reduces_masses(NodeId id) const;
  /// Such a node: of the pages that were attended to.
  void compute_of_masses(NodeId id);
  /// Copies of the next tile begin early where only one reduction makes any.
  void begin_only_reduction();
  void compute_tile(const Launch& launch);
  /// A step of pages that leave a tail: of those of the tile that have left, and that no save has had.
  void compute_leaving(const PlanStep& step);

  std::map<NodeId, LaneReduction> lane_reductions_;
  bool reads_mass_ = false;
  bool reads_places_ = false;  // masses of pages whether these were attended to or not
};

int64_t PiecesWriter::find_lane_reductions(const Launch& launch) {
  int64_t ring_bytes = 0;
  for (const PlanStep* step : launch.steps) {
    if (step->is_of_leaving_pages) continue;
    for (const NodeId id : step->nodes) {
      if (!has_axis(node(id).shape, Axis::kPage)) continue;
      std::optional<LaneReduction> lanes = find_lane_reduction(scope_, id);
      if (!lanes) continue;
      ring_bytes = std::max(ring_bytes, lanes->ring_bytes());
      lane_reductions_.emplace(id, std::move(*lanes));
    }
  }
  return ring_bytes;
}

void PiecesWriter::open_pieces() {
  writer_.write("const int chunks = (a.most_pages + a.chunk - 1) / a.chunk;");
  writer_.open("for (long long work = blockIdx.x; work < static_cast<long long>(a.row_count) * chunks; work += gridDim.x)");
  declare_row("static_cast<int>(work / chunks)");
  writer_.write("const int begin = static_cast<int>(work % chunks) * a.chunk;");
  writer_.write("if (begin >= row.pages) continue;");
  writer_.write("const int end = min(begin + a.chunk, row.pages);");
  writer_.write("int first = begin;");
  writer_.line("int count = min({}, end - first);", scope_.tile_pages);
  read_ids();
}

void PiecesWriter::read_ids() {
  writer_.line("for (int i = threadIdx.x; i < count; i += blockDim.x) ids[i] = row.{}[first + i];",
               layout_.plan.has_field_pages() ? "field_ids" : "ids");
  if (reads_mass_) {
    writer_.line("attended = find_attended(row, first, count, {});", reads_places_ ? "places" : "nullptr");
  } else {
    writer_.write("__syncthreads();");
  }
}

bool PiecesWriter::reduces_masses(NodeId id) const {
  return is_reduction(node(id).op) && node(node(id).inputs[0]).op == Op::kMass &&
         scope_.slots[static_cast<size_t>(id)].kind == KernelSlot::Kind::kTile;
}

void PiecesWriter::find_masses(const Launch& launch) {
  const auto is_mass = [&](NodeId id) { return node(id).op == Op::kMass; };
  const auto reads = [&](NodeId id) { return std::any_of(node(id).inputs.begin(), node(id).inputs.end(), is_mass); };
  for (const PlanStep* step : launch.steps) {
    for (const NodeId id : step->nodes) {
      reads_mass_ = reads_mass_ || is_mass(id);
      const bool skips = reduces_masses(id) && !step->is_of_leaving_pages;
      reads_places_ = reads_places_ || (reads(id) && !skips) || (is_mass(id) && stored(id));
    }
  }
  reads_places_ = reads_places_ || std::any_of(launch.saves.begin(), launch.saves.end(), reads);
  reads_mass_ = reads_mass_ || reads_places_;
}

void PiecesWriter::compute_of_masses(NodeId id) {
  const Shape& shape = node(id).shape;
  const int64_t numbers = elements_per_page(shape);
  comment(id);
  const auto open = [&] {
    Index index = split(writer_, shape, "r");
    at(index, Axis::kPage) = "p";
    return index;
  };
  open_elements(numbers, true);
  Index index = open();
  writer_.line("{} = 0;", *place_of(scope_, id, index));
  writer_.close();
  writer_.write(crew_.barrier);
  writer_.open("for (int e = threadIdx.x; e < (attended.end - attended.first) * {}; e += blockDim.x)", numbers);
  writer_.line("const int place = attended.first + e / {};", numbers);
  writer_.line("const int r = e % {};", numbers);
  writer_.write("const int p = row.mass_page(place);");
  index = open();
  scope_.knows_place = true;
  reduce(id, index, *place_of(scope_, id, index));
  scope_.knows_place = false;
  writer_.close();
  writer_.write(crew_.barrier);
}

void PiecesWriter::begin_only_reduction() {
  if (lane_reductions_.size() == 1) lane_reductions_.begin()->second.begin_tile(writer_);
}

void PiecesWriter::compute_tile(const Launch& launch) {
  for (const PlanStep* step : launch.steps) {
    if (step->is_of_leaving_pages) {
      compute_leaving(*step);
      continue;
    }
    for (const NodeId id : layout_.computed_by(*step)) {
      const auto lanes = lane_reductions_.find(id);
      if (lane_reductions_.size() > 1 && lanes != lane_reductions_.end()) lanes->second.begin_tile(writer_);
      if (lanes != lane_reductions_.end()) {
        comment(id);
        lanes->second.write(writer_);
        writer_.write(crew_.barrier);
      } else if (reduces_masses(id)) {
        compute_of_masses(id);
      } else {
        compute(id, true);
      }
    }
  }
}

void PiecesWriter::compute_leaving(const PlanStep& step) {
  writer_.write("// Pages that leave a tail.");
  writer_.open("");
  writer_.write("const int tile_begin = first;");
  writer_.write("const int* const tile_ids = ids;");
  if (reads_places_) writer_.write("const int* const tile_places = places;");
  writer_.write("int saved = count;");
  int last = GraphLimits::kPages;
  for (const NodeId id : graph_.saves) {
    const auto is_read = [&](NodeId output) { return output == node(id).inputs[0]; };
    if (node(id).attributes.last == 0 || std::none_of(step.outputs.begin(), step.outputs.end(), is_read)) continue;
    last = std::min(last, node(id).attributes.last);
    writer_.line("saved = min(saved, count_saved({} + first, count));", saved_pages(id));
  }
  writer_.line("const int end_leaving = min(first + count, row.behind_tail({}, {}));", last, graph_.geometry.page);
  writer_.open("if (first + saved < end_leaving)");
  writer_.write("const int first = tile_begin + saved;");
  writer_.write("const int count = end_leaving - first;");
  writer_.write("const int* const ids = tile_ids + saved;");
  if (reads_places_) writer_.write("const int* const places = tile_places + saved;");
  scope_.tile_first = "tile_begin";
  for (const NodeId id : layout_.computed_by(step)) compute(id, true);
  scope_.tile_first = "first";
  writer_.close();
  writer_.close();
}

GeneratedKernel PiecesWriter::write(const Launch& launch, const std::string& name) {
  scope_.in_tile = true;
  const std::vector<NodeId> all = nodes_of(launch);
  place_fixed(all);
  place_in_tile(all);
  while (scope_.tile_pages < kMostTilePages && fixed_numbers_ + 2 * scope_.tile_pages * tile_numbers_ <= kMostSharedNumbers) {
    scope_.tile_pages *= 2;
  }
  const int64_t numbers = (fixed_numbers_ + scope_.tile_pages * tile_numbers_ + 3) / 4 * 4;
  // Rings follow, one for all reductions, where there is room for them.
  const int64_t ring_bytes = numbers > kMostSharedNumbers ? 0 : find_lane_reductions(launch);
  GeneratedKernel kernel = described(name, numbers + ring_bytes / 4, kTileThreads);
  open_kernel(writer_, kernel, kTileBlocks);
  writer_.write("let_next_kernel_start();");
  declare_memory(writer_, kernel, fixed_numbers_, tile_numbers_);
  if (ring_bytes > 0) writer_.line("const uint32_t ring = shared_address(memory + {});", numbers);
  writer_.line("__shared__ int ids[{}];", scope_.tile_pages);
  find_masses(launch);
  if (reads_mass_) {
    writer_.write("AttendedPlaces attended;");
    if (reads_places_) writer_.line("__shared__ int places[{}];", scope_.tile_pages);
    writer_.write("wait_for_earlier_kernels();");  // which have made the list of pages
  }
  open_pieces();
  // Page tables are those of the pass, which no kernel writes. Behind a refresh of this layer only the last page is not ready.
  const bool begins = !layout_.launches.empty() && &launch == &layout_.launches.front();
  writer_.write(begins ? "if (!a.behind_refresh || end == row.pages) wait_for_earlier_kernels();"
                       : "wait_for_earlier_kernels();");
  begin_only_reduction();
  write_fixed();
  if (!launch.plans.empty()) {
    writer_.open("if (begin == 0)");
    for (const NodeId id : launch.plans) plan_selection(id);
    writer_.close();
  }
  writer_.open("while (true)");
  compute_tile(launch);
  if (!launch.saves.empty()) {
    write_saves(launch.saves);
    writer_.write(crew_.barrier);
  }
  writer_.line("first += {};", scope_.tile_pages);
  writer_.write("if (first >= end) break;");
  writer_.line("count = min({}, end - first);", scope_.tile_pages);
  read_ids();
  begin_only_reduction();
  writer_.close();
  writer_.close();
  writer_.close();
  return kernel;
}

}  // namespace

GeneratedKernel write_pieces_kernel(const FlowLayout& layout, const Launch& launch, const std::string& name, Writer& writer) {
  return PiecesWriter(layout, writer).write(launch, name);
}

}  // namespace sluice::cuda::codegen
