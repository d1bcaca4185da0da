#pragma once

#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/codegen/writer.h"

/// The kernels of a flow, each with a writer of its own behind its function.
namespace sluice::cuda::codegen {

/// Recomputes the fields of pages: a block for each page and KV head.
GeneratedKernel write_refresh_kernel(const FlowLayout& layout, Writer& writer);
/// A launch of the index or after stage by pieces of rows: blocks take tiles of pages through all of its nodes.
GeneratedKernel write_pieces_kernel(const FlowLayout& layout, const Launch& launch, const std::string& name, Writer& writer);
/// The same by row.
GeneratedKernel write_row_steps_kernel(const FlowLayout& layout, const Launch& launch, const std::string& name, Writer& writer);
/// The whole index stage and the selection, as a function hold_row<threads>.
RowKernel write_row_kernel(const FlowLayout& layout, Writer& writer);
/// The same and attention to what is selected; without a name if it reads no channels of pages.
AttendingKernel write_attending_kernel(const FlowLayout& layout, Writer& writer);
/// The same by a cluster of blocks for each row.
ClusterAttendingKernel write_cluster_attending_kernel(const FlowLayout& layout, Writer& writer);
/// The same under a cover.
ClusterAttendingKernel write_cluster_cover_kernel(const FlowLayout& layout, Writer& writer);

}  // namespace sluice::cuda::codegen
