#include "kernels/cuda/codegen/own_rows_writer.h"

#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/attended_tiles.h"
#include "kernels/cuda/primitives/round_up.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kAttenderWarps = kAttenderThreads / 32;
// For fields at most: pieces of 256 bytes come slower than K and V, and more of them under way help. With block_topk at 128
// channels five stages were faster than three or four (14 layers of Qwen3-1.7B, 64 rows: 1922 µs instead of 1930 to 1935).
constexpr int64_t kFieldBytes = 24 << 10;

}  // namespace

// In the order of `place_memory`.
int64_t AttendingKernel::shared_bytes(int64_t pages, int64_t rows, int64_t room) const {
  constexpr int64_t kNumber = 4;
  const int64_t each = row_bytes + page_bytes * pages + room * kNumber;
  return fixed_bytes + std::max<int64_t>(0, kMergingBytes - rows * row_bytes) + (pages + pages / 32) * kNumber + rows * each;
}

AttendingKernel OwnRowsWriter::place_memory() {
  AttendingKernel kernel{.name = "attend_rows"};
  const int64_t field_numbers = fields_.numbers();
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  writer_.write("extern __shared__ __align__(128) uint8_t memory[];");
  writer_.line("uint8_t* const tiles = memory + ({0} - shared_address(memory) % {0}) % {0};", kSwizzleBytes);
  writer_.line("float* const row_memory = reinterpret_cast<float*>(tiles + {});", kAttenderWarps * ring_shape().bytes);
  writer_.write("auto& selection = *reinterpret_cast<SelectionMemory<kSelectorThreads, Selectors>*>(row_memory);");
  writer_.line("float* const query_memory = row_memory + {};", kSelectorBytes / kFloat);
  writer_.write("auto& parts = *reinterpret_cast<decode::WarpParts<Tile>*>(query_memory);");
  writer_.write("float* const merge = query_memory + sizeof(parts) / sizeof(float);");
  writer_.write("constexpr int kMergeRows = Tile::kMergeRows / 2;");
  writer_.write("static_assert(sizeof(selection) <= kSelectorBytes);");
  writer_.write("static_assert(sizeof(parts) + kWarps * kMergeRows * Tile::kMergeStride * sizeof(float) <= kMergingBytes);");
  writer_.write("OwnRows rows(a, t);");
  writer_.write("const int own_rows = rows.count;");
  kernel.row_bytes = query_numbers() * kFloat;
  writer_.line("float* const constants = query_memory + max({}, own_rows * {});", kMergingBytes / kFloat, query_numbers());
  int64_t bytes = round_up<int64_t>(layout_.fixed_numbers * kFloat, 16);
  writer_.line("float* const tile_memory = constants + {};", bytes / kFloat);
  bytes += kAttenderWarps * tile_numbers_ * scope_.tile_pages * kFloat;
  writer_.line("float* const field_values = constants + {};", bytes / kFloat);
  bytes = round_up<int64_t>(bytes + field_numbers * kFloat, 16);
  writer_.line("float* const score_memory = constants + {};", bytes / kFloat);
  kernel.page_bytes = layout_.row_numbers * kFloat;
  writer_.line("const int row_numbers = {} * a.held_pages;", layout_.row_numbers);
  writer_.write("uint32_t* const bits = reinterpret_cast<uint32_t*>(score_memory + own_rows * row_numbers);");
  writer_.write("rows.ids = reinterpret_cast<int*>(bits + a.held_pages / 32);");
  writer_.write("rows.lists = rows.ids + a.held_pages;");
  writer_.write("__shared__ int row_tokens[kMostOwnRows];");
  writer_.write("rows.tokens = row_tokens;");
  kernel.fixed_bytes = kSwizzleBytes + kAttenderWarps * ring_shape().bytes + kSelectorBytes + bytes;
  return kernel;
}

int64_t OwnRowsWriter::query_numbers() const {
  int64_t numbers = fixed_numbers_ + round_up<int64_t>(static_cast<int64_t>(products_.size()), 4);
  for (const Product& product : products_) numbers += product.query_bytes(compact_queries_) / static_cast<int64_t>(sizeof(float));
  return numbers;
}

void OwnRowsWriter::declare_own_row() {
  writer_.line("const Row row(a, rows.sequence, rows.head + own, rows.length, rows.token_ids(), rows.field_ids(), {}, {}, {});",
               graph_.geometry.page, graph_.geometry.group, graph_.geometry.head_dim);
}

void OwnRowsWriter::place_own_row() {
  declare_own_row();
  writer_.write("constexpr int first = 0;");
  writer_.write("const int count = rows.pages;");
  writer_.write("const int scored = rows.scored();");
  writer_.line("float* const fixed = query_memory + own * {};", query_numbers());
  int64_t at = fixed_numbers_;
  for (const Product& product : products_) {
    writer_.line("uint2* const query_{} = reinterpret_cast<uint2*>(fixed + {});", product.node, at);
    at += product.query_bytes(compact_queries_) / static_cast<int64_t>(sizeof(float));
  }
  writer_.line("int* const query_parts = reinterpret_cast<int*>(fixed + {});", at);
  writer_.write("float* const held = score_memory + own * row_numbers;");
}

OwnRowsWriter::RingShape OwnRowsWriter::ring_shape() const {
  RingShape ring;
  for (const CopiedRun& run : runs_) ring.stage_bytes += bytes_in_stage(run);
  ring.stages = std::min<int64_t>(kMostStages, kFieldBytes / ring.stage_bytes);
  ring.bytes = round_up(std::max(kValueBytes, ring.stages * ring.stage_bytes), kSwizzleBytes);
  return ring;
}

}  // namespace sluice::cuda::codegen
