#include "kernels/cuda/codegen/kernels.h"

#include <algorithm>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/embedded.h"
#include "kernels/cuda/codegen/kernel_writers.h"

namespace sluice::cuda::codegen {
namespace {

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

std::vector<GeneratedKernel> write_launches(const FlowLayout& layout, const std::vector<Launch>& launches, const char* stage,
                                            Writer& writer) {
  std::vector<GeneratedKernel> kernels;
  for (const Launch& launch : launches) {
    const auto& write = launch.by_row ? write_row_steps_kernel : write_pieces_kernel;
    kernels.push_back(write(layout, launch, fmt::format("{}_{}", stage, kernels.size()), writer));
  }
  return kernels;
}

}  // namespace

std::string shared_text(bool has_field_pages) {
  return std::string(kArgumentsText) +
         fmt::format("\nnamespace sluice::cuda {{\nconstexpr bool kFieldPages = {};\n}}\n", has_field_pages) + kPreludeText;
}

GeneratedSource generate(const FlowLayout& layout) {
  GeneratedSource source;
  Writer writer;
  if (!layout.plan.graph.fields.empty()) source.refresh = write_refresh_kernel(layout, writer);
  source.index = write_launches(layout, layout.launches, "index", writer);
  source.after = write_launches(layout, layout.after, "after", writer);
  source.why_not_whole_rows = why_not_whole_rows(layout);
  Writer row;
  if (source.why_not_whole_rows.empty()) {
    source.row = write_row_kernel(layout, row);
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
    return shared_text(layout.plan.has_field_pages()) + shared + "\nnamespace sluice::cuda {\n" + kernels +
           "\n}  // namespace sluice::cuda\n";
  };
  source.text = text(holds_rows ? kRowText : "",
                     writer.text() + (holds_rows ? row.text() + row_entry(source.row, "kRowThreads", "kLargeRowBlocks") : ""));
  if (!holds_rows) return source;
  source.small_row_text = text(kRowText, row.text() + row_entry(source.row, "kSmallRowThreads", "kSmallRowBlocks"));
  if (!layout.plan.attend.is_plain()) {
    source.why_not_attending = why_not_attending_under_cover(layout);
    if (!source.why_not_attending.empty()) return source;
    Writer cluster;
    source.cluster_attending = write_cluster_cover_kernel(layout, cluster);
    if (source.cluster_attending.name.empty()) {
      source.why_not_attending = "it reads no channels of pages";
      return source;
    }
    source.cluster_attending_text =
        text(std::string(kRowText) + kTypesText + kAttendingText + kClusterAttendingText + kCoverAttendingText, cluster.text());
    return source;
  }
  source.why_not_attending = why_not_attending(layout);
  if (!source.why_not_attending.empty()) return source;
  Writer attending;
  source.attending = write_attending_kernel(layout, attending);
  if (source.attending.name.empty()) {
    source.why_not_attending = "it reads no channels of pages";
  } else {
    source.attending_text = text(std::string(kRowText) + kTypesText + kAttendingText, attending.text());
  }
  Writer cluster;
  source.cluster_attending = write_cluster_attending_kernel(layout, cluster);
  if (!source.cluster_attending.name.empty()) {
    source.cluster_attending_text =
        text(std::string(kRowText) + kTypesText + kAttendingText + kClusterAttendingText, cluster.text());
  }
  return source;
}

}  // namespace sluice::cuda::codegen
