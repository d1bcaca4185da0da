#include "kernels/cuda/codegen/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/codegen/arguments.h"
#include "kernels/cuda/codegen/attending_path.h"
#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/codegen/selection_plan.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"

namespace sluice::cuda::codegen {
namespace {

/// Writes the description of one plan.
class Description {
 public:
  Description(const Plan& plan, const DescribedStep& step)
      : plan_(plan), step_(step), layout_(plan), source_(generate(layout_)) {}

  std::string text() {
    const std::string whole = source_.row.name.empty() ? std::string() : whole_rows();
    evict();
    if (!source_.refresh.name.empty()) refresh();
    for (size_t i = 0; i < layout_.launches.size(); ++i) index(layout_.launches[i], source_.index[i]);
    for (const ScoredSelection& selection : layout_.selections) select(selection);
    launch("lists", plan_.graph.selects_tokens() ? "the pages that have selected tokens, ascending, and masks of these"
                                                 : "the selected pages of each row, ascending, with those that are always kept");
    if (plan_.graph.selects_under_masks()) launch("join", "with the pages of tokens beside them, and masks");
    attention();
    after();
    const std::string steps = taken(layout_.selections.empty() ? "each" : "each but top-k");
    const std::string begin = "on a GPU, a sparse layer of a decode step: ";
    if (layout_.launches.empty()) return begin + steps;
    if (whole.empty()) return fmt::format("{}{}  not in one kernel: {}\n", begin, steps, source_.why_not_whole_rows);
    const int64_t most_tokens = source_.row.most_pages() * plan_.layout.page;
    const bool fits = step_.tokens <= most_tokens;
    return fmt::format("{}{}rows of {} about {} tokens, which those of {} are not: {}", begin, fits ? whole : steps,
                       fits ? "more than" : "at most", most_tokens, step_.tokens, fits ? steps : whole);
  }

 private:
  static constexpr int kMultiprocessors = 132;                 // of an H200
  static constexpr int64_t kTooMany = 1 << 20;                 // rows, or sequences
  static constexpr size_t kBlockShared = (227 << 10) - 1'024;  // of an H200, less about what a kernel has anyway

  using Which = std::function<bool(NodeId)>;

  const Node& node(NodeId id) const { return layout_.node(id); }
  bool kept(NodeId id) const { return layout_.kept[static_cast<size_t>(id)]; }
  bool query_only(NodeId id) const { return layout_.query_only[static_cast<size_t>(id)]; }
  const RowSlot& slot(NodeId id) const { return layout_.slots[static_cast<size_t>(id)]; }

  /// What was written since the last call, with the number of launches.
  std::string taken(const char* which = "each") {
    return fmt::format("{} launches, {} begun while the one before it ends\n{}", std::exchange(launches_, 0), which,
                       std::exchange(lines_, {}));
  }

  void attention() {
    const std::vector<AttendedSource>& sources = plan_.attend.sources;
    const auto is_grouped = [](const AttendedSource& source) { return source.group_pages > 1; };
    const auto opens = [](const AttendedSource& source) { return source.opened != kNoNode; };
    if (std::any_of(sources.begin(), sources.end(), opens)) launch("opened", "the pages whose groups are open");
    if (std::any_of(sources.begin(), sources.end(), is_grouped))
      launch("groups", "what pages weigh that have a summary together");
    launch("attention", plan_.attend.is_plain()
                            ? "over the lists"
                            : "over the lists and, in the same softmax, summaries of other pages, whose keys are "
                              "not read again");
  }

  void evict() {
    if (!plan_.graph.eviction) return;
    launch("evict", "a block for each sequence and KV head: who leaves, and who takes their slots");
    if (!plan_.graph.fields.empty()) launch("refresh", "of the pages that tokens moved to");
  }

  void after() {
    for (size_t i = 0; i < layout_.after.size(); ++i) index(layout_.after[i], source_.after[i]);
  }

  /// The way of rows that fit on chip.
  std::string whole_rows() {
    evict();
    const RowKernel& row = source_.row;
    launch(
        row.name,
        fmt::format("up to {} blocks for each row, each of {} threads and {:.1f} kB of shared memory, and {} B a page",
                    kMostRowBlocks, kRowThreads, static_cast<double>(row.shared_bytes(0, 1, kRowThreads)) / 1e3, row.page_bytes));
    const bool scored = !layout_.selections.empty();
    const bool by_row =
        std::any_of(layout_.launches.begin(), layout_.launches.end(), [](const Launch& each) { return each.by_row; });
    std::vector<std::string> parts;
    if (!plan_.graph.fields.empty()) parts.emplace_back("the fields of the newest page");
    if (scored) parts.emplace_back("scores");
    if (by_row) parts.emplace_back("steps over whole rows");
    const auto drawn = [&](const ScoredSelection& each) { return is_drawn(node(each.node)); };
    const auto approximate = std::count_if(layout_.selections.begin(), layout_.selections.end(), drawn);
    if (approximate < std::ssize(layout_.selections)) parts.emplace_back("exact selection");
    if (approximate > 0) parts.emplace_back("approximate selection");
    parts.emplace_back("the list of pages");
    line(fmt::format("{}, all on chip", fmt::join(parts, ", ")));
    for (const ScoredSelection& each : layout_.selections) {
      if (node(each.node).op == Op::kTopK) line(fmt::format("%{} topk: {}", each.node, describe_held_method(node(each.node))));
    }
    if (plan_.graph.selects_under_masks()) launch("join", "with the pages of tokens beside them, and masks");
    attention();
    after();
    if (!source_.attending.name.empty()) {
      lines_ +=
          fmt::format("  {:<10} in place of both where sequences, about as long as each other, are as many as fill the GPU by\n",
                      source_.attending.name);
      line(fmt::format("blocks of {} threads, each of which takes up to {} KV heads of one from scores to attention",
                       kAttendingThreads, kMostOwnRows));
      line(attending());
    } else if (source_.cluster_attending.name.empty()) {
      line(fmt::format("no kernel does both: {}", source_.why_not_attending));
    }
    if (!source_.cluster_attending.name.empty()) {
      lines_ +=
          fmt::format("  {:<10} in place of both for few rows of at most {} pages: up to {} blocks of {} threads for each\n",
                      source_.cluster_attending.name, kMostHeldPages, kMostRowBlocks, kAttenderThreads);
      line(cluster_attending());
    }
    return taken();
  }

  int pages() const { return static_cast<int>((step_.tokens + plan_.layout.page - 1) / plan_.layout.page); }
  /// The same of rows that take several kernels: longer ones, where one kernel does the step's.
  int unheld_pages() const {
    return source_.row.name.empty() ? pages() : std::max(pages(), static_cast<int>(source_.row.most_pages() + 1));
  }
  std::string rows() const { return fmt::format("{} x {} KV heads", step_.batch, step_.kv_heads); }

  /// Whether clusters of blocks do.
  std::string cluster_attending() const {
    constexpr ClustersAtOnce kClusters{0, 132, 66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7, 7, 7, 7};  // of one H200; others differ
    const int64_t count = step_.batch * step_.kv_heads;
    if (count > kClusters[1]) return fmt::format("not here: {} are more rows than multiprocessors", rows());
    ClusterLimits limits{.at_once = kClusters, .most_shared = kBlockShared};
    if (source_.cluster_attending.most_blocks > 1) {
      std::transform(kClusters.begin(), kClusters.end(), limits.in_pairs.begin(), [](int clusters) { return 2 * clusters; });
      limits.most_shared_in_pairs = kBlockShared / 2;
    }
    const ClusterAttendingPath path = cluster_attending_path(layout_, source_.cluster_attending, leaf_selections(plan_.graph),
                                                             limits, static_cast<int>(count), pages());
    if (pages() > kMostHeldPages) return fmt::format("not here: rows of {} pages", pages());
    if (path.cluster == 0)
      return fmt::format("not here: {} of {} pages are more than blocks have room or time for", rows(), pages());
    return fmt::format("taken here: {} are clusters of about {}", rows(), path.cluster);
  }

  /// Whether one kernel attends to the step's rows, too.
  std::string attending() const {
    const auto batch = static_cast<int>(std::min(step_.batch, kTooMany));
    const AttendingBlocks blocks = attending_blocks(batch, step_.kv_heads, kMultiprocessors);
    if (attending_path(layout_, source_.attending, leaf_selections(plan_.graph), blocks, pages(), kBlockShared).blocks > 0) {
      return fmt::format("taken here: {} are {} blocks", rows(), blocks.blocks);
    }
    if (!blocks.have_rows_enough()) {
      return fmt::format("not here: of {} a block would have {}, too few", rows(), blocks.own_rows);
    }
    if (!may_attend(source_.attending, step_.kv_heads, kBlockShared)) {
      return "not here: beside what it makes of the queries, a block has no room for rows of any length";
    }
    if (!blocks.are_worth_it()) {
      return fmt::format("not here: {} are {} blocks of {}, and {} to {} are worth it", rows(),
                         step_.batch * step_.kv_heads / blocks.own_rows, blocks.own_rows, blocks.least, blocks.most);
    }
    return fmt::format("not here: rows of {} pages do not fit a block", pages());
  }

  void launch(const std::string& name, const std::string& what) {
    ++launches_;
    lines_ += fmt::format("  {:<10} {}\n", name, what);
  }
  void line(const std::string& what) { lines_ += fmt::format("  {:<10} {}\n", "", what); }

  /// "%4 mul, %5 maximum" of those `nodes` for which `which` holds, after `what`; nothing if there are none.
  void list(const std::string& what, const std::vector<NodeId>& nodes, const Which& which) {
    std::vector<std::string> names;
    for (const NodeId id : nodes) {
      if (which(id)) names.push_back(fmt::format("%{} {}", id, name_of(node(id).op)));
    }
    if (!names.empty()) line(fmt::format("{}: {}", what, fmt::join(names, ", ")));
  }

  /// A launch of blocks with memory of their own.
  void launch(const GeneratedKernel& kernel, const std::string& blocks) {
    std::string memory;
    const double kilobytes = static_cast<double>(kernel.memory_bytes) / 1e3;
    if (kernel.memory_bytes > 0 && !kernel.global_memory) memory = fmt::format(" and {:.1f} kB of shared memory", kilobytes);
    launch(kernel.name, fmt::format("{}, each of {} threads{}", blocks, kernel.threads, memory));
    if (!kernel.global_memory) return;
    line(fmt::format("slow: what a block keeps, {:.1f} kB, does not fit shared memory and lies in device memory", kilobytes));
  }

  void refresh() {
    launch(source_.refresh, "a block for each page that was written to and KV head");
    list("kept by the block", plan_.cache, [&](NodeId id) { return kept(id); });
    list("computed where they are read", plan_.cache, [&](NodeId id) { return !kept(id); });
    std::vector<std::string> fields;
    for (const Field& field : plan_.graph.fields) fields.push_back(fmt::format("{} = %{}", field.name, field.node));
    line(fmt::format("to the page: {}", fmt::join(fields, ", ")));
  }

  void index(const Launch& part, const GeneratedKernel& kernel) {
    launch(kernel, kernel.by_row ? "a block for each row" : "blocks for pieces of rows");
    std::vector<NodeId> nodes;
    for (const PlanStep* step : part.steps) nodes.insert(nodes.end(), step->nodes.begin(), step->nodes.end());
    list("kept by the block", nodes, [&](NodeId id) { return kept(id) && !slot(id).stored && !query_only(id); });
    list("computed where they are read", nodes, [&](NodeId id) { return !kept(id) && !slot(id).stored && !query_only(id); });
    for (const NodeId id : nodes) {
      if (!slot(id).stored) continue;
      line(fmt::format("to device memory: %{} {}, {} B{}", id, name_of(node(id).op), slot(id).per_page * sizeof(float),
                       slot(id).paged ? " a page" : ""));
    }
    list("budgets of", part.plans, [](NodeId) { return true; });
    list("states written", part.saves, [](NodeId) { return true; });
  }

  void select(const ScoredSelection& selection) {
    const Node& current = node(selection.node);
    launch("top-k", fmt::format("%{} {}: of the scores %{}, which come from device memory{}", selection.node, name_of(current.op),
                                selection.score,
                                current.op == Op::kThreshold ? "; as many as pass"
                                : current.op == Op::kTopP    ? "; as many as have the share"
                                                             : ""));
    if (current.op != Op::kTopK) return;
    const int most = unheld_pages();
    const auto rows = static_cast<int>(std::min<int64_t>(step_.batch * step_.kv_heads, kTooMany));
    line(describe_method(current, {rows, most, most_budget(current, most), kMultiprocessors}, plan_.graph.patterns.empty()));
  }

  const Plan& plan_;
  DescribedStep step_;
  FlowLayout layout_;
  GeneratedSource source_;
  int launches_ = 0;
  std::string lines_;
};

}  // namespace

std::string describe(const Plan& plan, const DescribedStep& step) { return Description(plan, step).text(); }

}  // namespace sluice::cuda::codegen
