#include "kernels/cuda/codegen/block_memory.h"
#include "kernels/cuda/codegen/fields_writer.h"
#include "kernels/cuda/codegen/kernel_writers.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kRefreshThreads = 128;

}  // namespace

GeneratedKernel write_refresh_kernel(const FlowLayout& layout, Writer& writer) {
  FieldsWriter fields(layout, writer, kBlock);
  GeneratedKernel kernel = described("refresh", fields.numbers(), kRefreshThreads);
  open_kernel(writer, kernel, 1);
  // In this order: whatever starts now may use all but the fields that this kernel writes.
  writer.write("wait_for_earlier_kernels();");
  writer.write("let_next_kernel_start();");
  declare_memory(writer, kernel, 0, fields.numbers());
  writer.open("for (int task = blockIdx.x; task < a.touched * a.kv_heads; task += gridDim.x)");
  writer.write("const int page = task / a.kv_heads;");
  writer.write("const int head = task % a.kv_heads;");
  writer.write("const int at = a.touched_by_head != 0 ? task : page;");
  writer.write("if (a.touched_pages[at] < 0) continue;");
  writer.line(
      "const int tokens = a.touched_tokens != nullptr ? a.touched_tokens[at] : page == a.touched - 1 ? a.last_tokens : {};",
      layout.plan.graph.geometry.page);
  writer.write("uint8_t* const block = a.pages + a.touched_pages[at] * a.page_stride + head * a.block_bytes;");
  if (layout.plan.has_field_pages()) {
    writer.write("uint8_t* const field_block =");
    writer.write("    a.fields + a.touched_fields[at] * a.field_page_stride + head * a.field_block_bytes;");
  }
  fields.write();
  writer.write("__syncthreads();");
  writer.close();
  writer.close();
  return kernel;
}

}  // namespace sluice::cuda::codegen
