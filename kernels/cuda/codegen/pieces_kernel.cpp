#include <algorithm>
#include <map>

#include "kernels/cuda/codegen/block_memory.h"
#include "kernels/cuda/codegen/index_writer.h"
#include "kernels/cuda/codegen/kernel_writers.h"
#include "kernels/cuda/codegen/lanes.h"

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
  /// Finds the reductions of a launch that lanes share; returns the bytes of the ring that they take turns to use.
  int64_t find_lane_reductions(const std::vector<NodeId>& ids);
  /// The loop over pieces of rows, with the first tile of each.
  void open_pieces();
  /// `ids`, the places in the pool of the pages of a tile, and `places`, those among what was attended to.
  void read_ids();
  /// Copies of the next tile begin early where only one reduction makes any.
  void begin_only_reduction();
  void compute_tile(const Launch& launch);

  std::map<NodeId, LaneReduction> lane_reductions_;
  bool reads_mass_ = false;
};

int64_t PiecesWriter::find_lane_reductions(const std::vector<NodeId>& ids) {
  int64_t ring_bytes = 0;
  for (const NodeId id : ids) {
    if (!has_axis(node(id).shape, Axis::kPage)) continue;
    std::optional<LaneReduction> lanes = find_lane_reduction(scope_, id);
    if (!lanes) continue;
    ring_bytes = std::max(ring_bytes, lanes->ring_bytes());
    lane_reductions_.emplace(id, std::move(*lanes));
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
  if (reads_mass_) writer_.write("for (int i = threadIdx.x; i < count; i += blockDim.x) places[i] = row.mass_place(first + i);");
  writer_.write("__syncthreads();");
}

void PiecesWriter::begin_only_reduction() {
  if (lane_reductions_.size() == 1) lane_reductions_.begin()->second.begin_tile(writer_);
}

void PiecesWriter::compute_tile(const Launch& launch) {
  for (const NodeId id : layout_.computed_by(launch)) {
    const auto lanes = lane_reductions_.find(id);
    if (lane_reductions_.size() > 1 && lanes != lane_reductions_.end()) lanes->second.begin_tile(writer_);
    if (lanes != lane_reductions_.end()) {
      comment(id);
      lanes->second.write(writer_);
      writer_.write(crew_.barrier);
    } else {
      compute(id, true);
    }
  }
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
  const int64_t ring_bytes = numbers > kMostSharedNumbers ? 0 : find_lane_reductions(all);
  GeneratedKernel kernel = described(name, numbers + ring_bytes / 4, kTileThreads);
  open_kernel(writer_, kernel, kTileBlocks);
  writer_.write("let_next_kernel_start();");
  declare_memory(writer_, kernel, fixed_numbers_, tile_numbers_);
  if (ring_bytes > 0) writer_.line("const uint32_t ring = shared_address(memory + {});", numbers);
  writer_.line("__shared__ int ids[{}];", scope_.tile_pages);
  reads_mass_ = std::any_of(all.begin(), all.end(), [&](NodeId id) { return node(id).op == Op::kMass; });
  if (reads_mass_) {
    writer_.line("__shared__ int places[{}];", scope_.tile_pages);
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
  if (launch.saves) {
    write_saves();
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
