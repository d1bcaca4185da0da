#include "kernels/cuda/codegen/block_memory.h"
#include "kernels/cuda/codegen/index_writer.h"
#include "kernels/cuda/codegen/kernel_writers.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kWholeRowThreads = 1024;

/// Steps over whole rows, which lie in device memory.
class RowStepsWriter final : public IndexWriter {
 public:
  RowStepsWriter(const FlowLayout& layout, Writer& writer) : IndexWriter(layout, writer, kBlock) {}

  GeneratedKernel write(const Launch& launch, const std::string& name);
};

GeneratedKernel RowStepsWriter::write(const Launch& launch, const std::string& name) {
  place_fixed(nodes_of(launch));
  GeneratedKernel kernel = described(name, fixed_numbers_, kWholeRowThreads);
  kernel.by_row = true;
  open_kernel(writer_, kernel, 1);
  writer_.write("let_next_kernel_start();");
  writer_.write("wait_for_earlier_kernels();");
  declare_memory(writer_, kernel, fixed_numbers_, 0);
  writer_.open("for (int index = blockIdx.x; index < a.row_count; index += gridDim.x)");
  declare_row("index");
  writer_.write("const int first = 0;");
  writer_.write("const int count = row.pages;");
  write_fixed();
  compute_rows(launch);
  for (const NodeId id : launch.plans) plan_selection(id);
  if (!launch.saves.empty()) {
    writer_.write("__syncthreads();");
    write_saves(launch.saves);
  }
  writer_.write("__syncthreads();");
  writer_.close();
  writer_.close();
  return kernel;
}

}  // namespace

GeneratedKernel write_row_steps_kernel(const FlowLayout& layout, const Launch& launch, const std::string& name, Writer& writer) {
  return RowStepsWriter(layout, writer).write(launch, name);
}

}  // namespace sluice::cuda::codegen
