#include "kernels/cuda/codegen/kernels.h"

#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/embedded.h"
#include "kernels/cuda/codegen/kernel_writer.h"
#include "scripting/graph/selections.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int64_t kMostSharedNumbers = 12 * 1024;  // of a block, so that several fit a multiprocessor
constexpr int kMostTilePages = 512;
constexpr int kTileThreads = KernelScope::kTileThreads;
constexpr int kTileBlocks = 3;  // on a multiprocessor, whatever registers that costs
constexpr int kWholeRowThreads = 1024;
constexpr int kRefreshThreads = 128;

/// The kernel that is hold_row by blocks of so many threads, so many of which share a multiprocessor.
std::string row_entry(const RowKernel& kernel, const char* threads, const char* blocks) {
  Writer writer;
  writer.write("");
  writer.open("extern \"C\" __global__ void __launch_bounds__({}, {}) {}(const __grid_constant__ FlowArguments a)", threads,
              blocks, kernel.name);
  writer.line("hold_row<{}>(a);", threads);
  writer.close();
  return writer.text();
}

}  // namespace

GeneratedKernel KernelWriter::described(const std::string& name, int64_t numbers, int threads) {
  GeneratedKernel kernel;
  kernel.name = name;
  kernel.threads = threads;
  kernel.memory_bytes = numbers * static_cast<int64_t>(sizeof(float));
  kernel.global_memory = numbers > 4 * kMostSharedNumbers;
  return kernel;
}

void KernelWriter::open_kernel(const GeneratedKernel& kernel, int blocks) {
  writer_.write("");
  writer_.open("extern \"C\" __global__ void __launch_bounds__({}, {}) {}(const __grid_constant__ FlowArguments a)",
               kernel.threads, blocks, kernel.name);
}

void KernelWriter::declare_memory(const GeneratedKernel& kernel) {
  if (kernel.memory_bytes == 0) return;
  if (kernel.global_memory) {
    writer_.line("float* const memory = a.scratch + blockIdx.x * {}LL;", kernel.memory_bytes / sizeof(float));
  } else {
    writer_.write("extern __shared__ __align__(16) float memory[];");
  }
  if (fixed_numbers_ > 0) writer_.write("float* const fixed = memory;");
  if (tile_numbers_ > 0) writer_.line("float* const tile = memory + {};", fixed_numbers_);
}

std::vector<NodeId> KernelWriter::place_cache() {
  std::vector<NodeId> order;
  for (const NodeId id : layout_.plan.cache) {
    if (!kept(id)) continue;
    slot(id) = {Kind::kTile, tile_numbers_};
    tile_numbers_ += elements_per_page(node(id).shape);
    order.push_back(id);
  }
  return order;
}

void KernelWriter::write_fields(const std::vector<NodeId>& order) {
  for (const NodeId id : order) compute(id, false);
  for (size_t i = 0; i < graph_.fields.size(); ++i) {
    const Field& field = graph_.fields[i];
    writer_.line("// %{} field ({})", field.node, place_in_script(field.where));
    open_elements(elements_per_page(field.shape), false);
    const Index index = split(writer_, field.shape, "r");
    Values values(scope_, writer_);
    writer_.line("store<{}>(block + {}, r, {});", type_name(field.type), layout_.plan.layout.field_offsets[i],
                 values.read(field.node, index));
    writer_.close();
  }
}

GeneratedKernel KernelWriter::refresh() {
  const std::vector<NodeId> order = place_cache();
  GeneratedKernel kernel = described("refresh", tile_numbers_, kRefreshThreads);
  open_kernel(kernel, 1);
  // In this order: whatever starts now may use all but the fields that this kernel writes.
  writer_.write("wait_for_earlier_kernels();");
  writer_.write("let_next_kernel_start();");
  declare_memory(kernel);
  writer_.open("for (int task = blockIdx.x; task < a.touched * a.kv_heads; task += gridDim.x)");
  writer_.write("const int page = task / a.kv_heads;");
  writer_.write("const int head = task % a.kv_heads;");
  writer_.line(
      "const int tokens = a.touched_tokens != nullptr ? a.touched_tokens[page] : page == a.touched - 1 ? a.last_tokens : {};",
      graph_.geometry.page);
  writer_.write("uint8_t* const block = a.pages + a.touched_pages[page] * a.page_stride + head * a.block_bytes;");
  write_fields(order);
  writer_.write("__syncthreads();");
  writer_.close();
  writer_.close();
  return kernel;
}

int64_t KernelWriter::find_lane_reductions(const std::vector<NodeId>& ids) {
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

/// The loop over pieces of rows, with the first tile of each.
void KernelWriter::open_pieces() {
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

void KernelWriter::read_ids() {
  writer_.write("for (int i = threadIdx.x; i < count; i += blockDim.x) ids[i] = row.ids[first + i];");
  writer_.write("__syncthreads();");
}

void KernelWriter::begin_only_reduction() {
  if (lane_reductions_.size() == 1) lane_reductions_.begin()->second.begin_tile(writer_);
}

void KernelWriter::compute_tile(const Launch& launch) {
  for (const NodeId id : layout_.computed_by(launch)) {
    const auto lanes = lane_reductions_.find(id);
    if (lane_reductions_.size() > 1 && lanes != lane_reductions_.end()) lanes->second.begin_tile(writer_);
    compute(id, true);
  }
}

GeneratedKernel KernelWriter::tiles(const Launch& launch, int number) {
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
  GeneratedKernel kernel = described(fmt::format("index_{}", number), numbers + ring_bytes / 4, kTileThreads);
  open_kernel(kernel, kTileBlocks);
  writer_.write("let_next_kernel_start();");
  declare_memory(kernel);
  if (ring_bytes > 0) writer_.line("const uint32_t ring = shared_address(memory + {});", numbers);
  writer_.line("__shared__ int ids[{}];", scope_.tile_pages);
  open_pieces();
  // Page tables are those of the pass, which no kernel writes. Behind a refresh of this layer only the last page is not ready.
  writer_.write(number == 0 ? "if (!a.behind_refresh || end == row.pages) wait_for_earlier_kernels();"
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

GeneratedKernel KernelWriter::rows(const Launch& launch, int number) {
  place_fixed(nodes_of(launch));
  GeneratedKernel kernel = described(fmt::format("index_{}", number), fixed_numbers_, kWholeRowThreads);
  kernel.by_row = true;
  open_kernel(kernel, 1);
  writer_.write("let_next_kernel_start();");
  writer_.write("wait_for_earlier_kernels();");
  declare_memory(kernel);
  writer_.open("for (int index = blockIdx.x; index < a.row_count; index += gridDim.x)");
  declare_row("index");
  writer_.write("const int first = 0;");
  writer_.write("const int count = row.pages;");
  write_fixed();
  compute_rows(launch);
  for (const NodeId id : launch.plans) plan_selection(id);
  if (launch.saves) {
    writer_.write("__syncthreads();");
    write_saves();
  }
  writer_.write("__syncthreads();");
  writer_.close();
  writer_.close();
  return kernel;
}

GeneratedSource generate(const FlowLayout& layout) {
  GeneratedSource source;
  Writer writer;
  if (!layout.plan.graph.fields.empty()) source.refresh = KernelWriter(layout, Stage::kCache, writer).refresh();
  for (const Launch& launch : layout.launches) {
    const auto number = static_cast<int>(source.index.size());
    KernelWriter kernel(layout, Stage::kIndex, writer);
    source.index.push_back(launch.by_row ? kernel.rows(launch, number) : kernel.tiles(launch, number));
  }
  source.why_not_whole_rows = why_not_whole_rows(layout);
  Writer row;
  if (source.why_not_whole_rows.empty()) {
    source.row = KernelWriter(layout, Stage::kIndex, row).whole_row(leaf_selections(layout.plan.graph));
    if (source.row.most_pages() == 0) {
      source.why_not_whole_rows =
          fmt::format("{} pages of a row, {} B each, do not fit a block's shared memory beside {:.1f} kB", kHeldStep,
                      source.row.page_bytes, static_cast<double>(source.row.shared_bytes(0, 1, kRowThreads)) / 1e3);
      source.row = {};
    }
  }
  const bool holds_rows = !source.row.name.empty();
  const auto text = [&](const std::string& shared, const std::string& kernels) {
    source.own_bytes = std::max(source.own_bytes, kernels.size());
    return std::string(kArgumentsText) + kPreludeText + shared + "\nnamespace sluice::cuda {\n" + kernels +
           "\n}  // namespace sluice::cuda\n";
  };
  source.text = text(holds_rows ? kRowText : "",
                     writer.text() + (holds_rows ? row.text() + row_entry(source.row, "kRowThreads", "kLargeRowBlocks") : ""));
  if (!holds_rows) return source;
  source.small_row_text = text(kRowText, row.text() + row_entry(source.row, "kSmallRowThreads", "kSmallRowBlocks"));
  source.why_not_attending = why_not_attending(layout);
  if (!source.why_not_attending.empty()) return source;
  Writer attending;
  source.attending = KernelWriter(layout, Stage::kIndex, attending).attending(leaf_selections(layout.plan.graph));
  if (source.attending.name.empty()) {
    source.why_not_attending = "it reads no channels of pages";
  } else {
    source.attending_text = text(std::string(kRowText) + kTypesText + kAttendingText, attending.text());
  }
  Writer cluster;
  source.cluster_attending = KernelWriter(layout, Stage::kIndex, cluster).cluster_attending(leaf_selections(layout.plan.graph));
  if (!source.cluster_attending.name.empty()) {
    source.cluster_attending_text =
        text(std::string(kRowText) + kTypesText + kAttendingText + kClusterAttendingText, cluster.text());
  }
  return source;
}

}  // namespace sluice::cuda::codegen
