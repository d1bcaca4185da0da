#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/flow/flow.h"
#include "kernels/cuda/primitives/round_up.h"

// Which kernels run rows of a length, and with how much memory.

namespace sluice::cuda {
namespace {

constexpr int kMostHelpers = 8;   // blocks that share a row in order to be faster; more do so where it is too long
constexpr int kLeastHeld = 1024;  // pages worth a block that holds a row with others; of heavy ones an eighth

}  // namespace

// Measured on an H200: a row is read fastest by one block where rows fill the device, and by several where they do not, as long
// as each has work and all run at once.
int CudaFlow::row_blocks(int rows, int pages) const {
  int cluster = 1;
  const bool heavy = source_.row.read_bytes >= codegen::kHeavyPage;
  for (int more = 2; more <= kMostRowBlocks; more *= 2) {
    // Of rows of heavy pages two blocks may share a multiprocessor.
    const bool in_pairs = heavy && static_cast<size_t>(source_.row.shared_bytes(held_pages(more, pages), 1, kRowThreads)) <=
                                       row_kernel_.most_shared(kLargeRowBlocks);
    const int at_once = (in_pairs ? kLargeRowBlocks : 1) * clusters_at_once_.at(static_cast<size_t>(more));
    const bool worth = more <= kMostHelpers && pages >= more * (heavy ? kLeastHeld / 8 : kLeastHeld) && rows <= at_once;
    if (clusters_at_once_.at(static_cast<size_t>(more)) == 0) break;
    if (!row_fits(cluster, pages) || worth) cluster = more;
  }
  return row_fits(cluster, pages) ? cluster : 0;
}

int CudaFlow::held_pages(int cluster, int pages) { return round_up((pages + cluster - 1) / cluster, kHeldStep); }

bool CudaFlow::row_fits(int cluster, int pages) const {
  return static_cast<size_t>(source_.row.shared_bytes(held_pages(cluster, pages), 1, kRowThreads)) <= row_kernel_.most_shared(1);
}

bool CudaFlow::are_many(int rows) { return rows > kLargeRowBlocks * multiprocessors(); }

FlowPath CudaFlow::path(int sequences, int pages) const {
  const int rows = sequences * kv_heads_;
  FlowPath path{.cluster = whole_rows_ ? row_blocks(rows, pages) : 0};
  if (path.cluster == 0) return path;
  path.held_pages = held_pages(path.cluster, pages);
  const auto bytes = [&](int stages) {
    return static_cast<size_t>(source_.row.shared_bytes(path.held_pages, stages, path.threads));
  };
  // Blocks share a multiprocessor where there are as many: two, or, so that no rows wait for others to end, more and smaller
  // ones.
  const int blocks = path.cluster * rows;
  size_t most = row_kernel_.most_shared(1);
  const bool in_turns = rows > clusters_at_once_.at(static_cast<size_t>(path.cluster));
  if ((blocks > multiprocessors() || in_turns) && bytes(1) <= row_kernel_.most_shared(kLargeRowBlocks)) {
    most = row_kernel_.most_shared(kLargeRowBlocks);
  }
  if (path.cluster == 1 && are_many(rows)) {
    const size_t share = row_kernel_.most_shared(kSmallRowBlocks);  // small blocks have no more of their own
    path.threads = kSmallRowThreads;
    if (bytes(1) <= share) {
      most = share;
    } else {
      path.threads = kRowThreads;
    }
  }
  while (source_.row.stage_bytes > 0 && path.stages < kMostStages && bytes(path.stages + 1) <= most) ++path.stages;
  path.shared_bytes = bytes(path.stages);
  return path;
}

codegen::AttendingPath CudaFlow::attending_path(int sequences, int pages) const {
  if (attending_kernel_.kernel == nullptr || path(sequences, pages).cluster == 0) return {};
  const codegen::AttendingBlocks blocks = codegen::attending_blocks(sequences, kv_heads_, multiprocessors());
  return codegen::attending_path(layout_, source_.attending, leaves_, blocks, pages, attending_kernel_.most_shared(1));
}

codegen::ClusterAttendingPath CudaFlow::cluster_attending_path(int sequences, int pages) const {
  if (cluster_attending_kernel_.kernel == nullptr || path(sequences, pages).cluster == 0) return {};
  return codegen::cluster_attending_path(layout_, source_.cluster_attending, leaves_, attending_limits_, sequences * kv_heads_,
                                         pages);
}

std::string CudaFlow::describe_path(int sequences, int pages) const {
  const FlowPath way = path(sequences, pages);
  const codegen::AttendingPath attending = attending_path(sequences, pages);
  const codegen::ClusterAttendingPath row_attending = cluster_attending_path(sequences, pages);
  if (way.cluster > 0) {
    return fmt::format("one kernel: {} of {} pages and their scores in shared memory, {} deep",
                       way.cluster == 1 ? fmt::format("a block of {} threads holds a row", way.threads)
                                        : fmt::format("{} blocks hold a row", way.cluster),
                       way.held_pages, way.stages) +
           (attending.blocks > 0 ? fmt::format(", or, where sequences are about as long as each other and nobody asks what is "
                                               "selected, a block of {} threads takes {} rows "
                                               "from scores to attention",
                                               kAttendingThreads, attending.own_rows)
                                 : "") +
           (row_attending.cluster > 0
                ? fmt::format(", or, where nobody asks what is selected, {} of {} threads {} a row from "
                              "scores to attention",
                              row_attending.cluster == 1 ? "a block" : fmt::format("{} blocks", row_attending.cluster),
                              kAttenderThreads, row_attending.cluster == 1 ? "takes" : "take")
                : "");
  }
  if (index_.empty()) return "a list of pages that needs no scores";
  std::string why = source_.why_not_whole_rows;
  if (why.empty()) why = whole_rows_ ? "rows are too long to be held on chip" : "one kernel was not wanted";
  const bool hinted = takes_hints(sequences, pages);
  return fmt::format("{} of its own and top-k{}, scores in device memory: {}",
                     index_.size() == 1 ? "a kernel" : fmt::format("{} kernels", index_.size()),
                     hinted ? ", which begins with what a request's last step selected" : "", why);
}

}  // namespace sluice::cuda
