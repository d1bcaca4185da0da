#include "host/serving/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <tuple>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {
namespace {

/// Of the layers that run a program; null: of all others.
PageLayout choose_layout(const ModelConfig& config, const Plan* plan, const EngineOptions& options) {
  if (plan == nullptr) {
    if (options.page < 8 || options.page > 128 || (options.page & (options.page - 1)) != 0) {
      throw InputError(fmt::format("a page of {} tokens", options.page), "a page holds 8, 16, 32, 64 or 128 tokens");
    }
    return page_layout({config.head_dim, config.group(), options.page, options.kv}, {});
  }
  return plan->layout;
}

/// Of one page of every layer.
size_t bytes_of_pages(const ModelConfig& config, const std::vector<CacheGroup>& groups) {
  size_t bytes = 0;
  for (const CacheGroup& group : groups) bytes += group.layout.bytes * group.layers.size();
  return bytes * static_cast<size_t>(config.kv_heads);
}

int choose_pages(const ModelConfig& config, const std::vector<CacheGroup>& groups, const EngineOptions& options) {
  if (options.pages > 0) return options.pages;
  const size_t bytes = bytes_of_pages(config, groups);
  const size_t pages = options.pool_bytes / bytes;
  if (pages == 0) {
    throw InputError(fmt::format("a page pool of {} bytes cannot hold one page of {} bytes", options.pool_bytes, bytes),
                     "make the pool larger");
  }
  return static_cast<int>(std::min<size_t>(pages, 1 << 24));
}

/// By layer; 0: it sees all, as with a window as long as the model's positions.
std::vector<int> layer_windows(const ModelConfig& config, const EngineOptions& options) {
  std::vector<int> windows(static_cast<size_t>(config.layers), 0);
  for (int layer = 0; layer < config.layers; ++layer) windows[static_cast<size_t>(layer)] = config.window(layer);
  std::vector<bool> is_told(windows.size(), false);
  for (const LayerWindow& told : options.windows) {
    if (told.layers.empty()) throw InputError(fmt::format("a window of {} tokens for no layer", told.tokens));
    if (told.tokens < 1) throw InputError(fmt::format("a window of {} tokens; at least 1 is wanted", told.tokens));
    for (const int layer : told.layers) {
      if (layer < 0 || layer >= config.layers) {
        throw InputError(fmt::format("a window for layer {} of a model of {} layers", layer, config.layers));
      }
      if (is_told[static_cast<size_t>(layer)]) throw InputError(fmt::format("two windows for layer {}", layer));
      is_told[static_cast<size_t>(layer)] = true;
      windows[static_cast<size_t>(layer)] = told.tokens;
    }
  }
  for (int& window : windows) window = window >= config.max_positions ? 0 : window;
  return windows;
}

/// Groups of layers that see the same; that which keeps everything first.
struct Groups {
  std::vector<CacheGroup> groups;
  std::vector<GroupView> views;
};

/// What layers have in common that are kept together: a window, a pattern by its place in their program (LayerPatterns::kNone),
/// and which program that is, if it evicts tokens or there are several; else -1.
using Sight = std::tuple<int, int, int>;

GroupView view_of(const Sight& sight, const ModelConfig& config, const Plan* plan, const EngineOptions& options) {
  const auto& [window, place, number] = sight;
  if (number >= 0) plan = plan->programs()[static_cast<size_t>(number)];
  const bool has_beside = number >= 0 && plan->graph.beside() != nullptr;
  const std::optional<Pattern> beside = has_beside ? std::optional(*plan->graph.beside()) : std::nullopt;
  if (number >= 0 && plan->graph.eviction)
    return {.budget = std::make_shared<TokenBudget>(*plan->graph.eviction, config.max_positions)};
  if (place == LayerPatterns::kNone) return {.window = window, .beside = beside};
  const std::vector<HeadPatterns>& patterns = plan->graph.patterns.patterns;
  const HeadPatterns& told = patterns[static_cast<size_t>(place)];
  Pattern pattern = told.any(config.kv_heads);
  std::vector<Pattern> heads;
  for (int head = 0; head < config.kv_heads && head < told.size() && !told.is_same(); ++head) heads.push_back(told.of_head(head));
  if (window > 0) {
    const Pattern seen = Pattern::window(window);
    const auto exceeds = [](const Pattern& each) { return each.nodes().size() + 2 > Pattern::kMostNodes; };
    if (exceeds(pattern) || std::any_of(heads.begin(), heads.end(), exceeds)) {
      throw FlowError(plan->graph.patterns.where, "flow.pattern has too many parts for a model with windows");
    }
    pattern = pattern & seen;
    for (Pattern& each : heads) each = each & seen;
  }
  const bool is_dense = plan->graph.patterns.dense_prefill;
  GroupView view{.window = is_dense ? window : 0,
                 .pattern = pattern,
                 .heads = std::move(heads),
                 .dense_prefill = is_dense,
                 .beside = beside};
  if (!options.forget_unread || view.window > 0) return view;
  // An index stage is shown pages of tokens that follow each other, and prompts that are dense read all.
  const bool in_slots = !is_dense && plan->graph.sources.empty();
  size_t analyses = 0;
  for (const HeadPatterns& each : patterns) analyses += in_slots ? each.each().size() : 1;
  const AnalysisBound bound = AnalysisBound().shared_by(analyses);
  try {
    if (in_slots) {
      std::vector<SlotMap> maps;
      for (const PatternAnalysis& each : PatternAnalysis::all(view.heads.empty() ? std::vector{pattern} : view.heads, bound)) {
        maps.emplace_back(each, config.max_positions);
      }
      view.slots = std::make_shared<HeadSlots>(std::move(maps));
    } else {
      view.lives = std::make_shared<PageLives>(PatternAnalysis(pattern, bound), config.max_positions, plan->layout.page);
    }
  } catch (const InputError& error) {
    throw FlowError(plan->graph.patterns.where, error.what(), error.hint());
  }
  return view;
}

/// Which group is the first: one that sees all, or else one with a pattern or a budget, which has a place for all tokens, or
/// slots, and then no prefix is shared; without both, the window that most layers have, of which all tokens are kept.
int rank_of(const GroupView& view) { return view.sees_all() ? 0 : view.pattern || view.budget ? 1 : 2; }

Groups groups_of(const ModelConfig& config, const Plan* plan, const EngineOptions& options) {
  std::map<Sight, std::vector<int>> layers;
  const std::vector<int> windows = layer_windows(config, options);
  for (int layer = 0; layer < config.layers; ++layer) {
    const int window = windows[static_cast<size_t>(layer)];
    const Plan* const program = plan == nullptr ? nullptr : plan->program_of(layer, config.layers);
    // A flow with an index stage leaves layers with a window as they are.
    const bool is_run =
        program != nullptr && program->graph.is_run_by(layer, config.layers) && (program->graph.sources.empty() || window == 0);
    const bool has_pattern = is_run && !program->graph.patterns.empty();
    const int place = has_pattern ? program->graph.patterns.place_of(layer, config.layers) : LayerPatterns::kNone;
    const bool is_alone = is_run && (!plan->variants.empty() || program->graph.eviction);
    layers[{window, place, is_alone ? program->program : -1}].push_back(layer);
  }
  if (layers.size() > kMostGroups) {
    throw InputError(
        fmt::format("{} windows, patterns and budgets; at most {} groups of layers are kept apart", layers.size(), kMostGroups));
  }
  std::vector<std::pair<CacheGroup, GroupView>> groups;
  EngineOptions of_dense = options;
  if (plan != nullptr) of_dense.page = plan->layout.page, of_dense.kv = plan->layout.kv;
  for (const auto& [sight, of_sight] : layers) {
    const int number = std::get<2>(sight);
    // Without variants all layers have pages with the fields of the flow, so that slabs are shared by pages of one size.
    const bool has_variants = plan != nullptr && !plan->variants.empty();
    const Plan* const own = !has_variants ? plan : number < 0 ? nullptr : plan->programs()[static_cast<size_t>(number)];
    groups.emplace_back(CacheGroup{of_sight, choose_layout(config, own, of_dense)}, view_of(sight, config, plan, options));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    const int a_rank = rank_of(a.second);
    const int b_rank = rank_of(b.second);
    return a_rank != b_rank ? a_rank < b_rank : a.first.layers.size() > b.first.layers.size();
  });
  Groups result;
  for (auto& [group, view] : groups) {
    result.groups.push_back(std::move(group));
    result.views.push_back(std::move(view));
  }
  return result;
}

/// Slabs are as small as memory is read fast: a stretch of pages of a layer fills the larger pages of memory that devices have.
/// They have whole numbers of pages of the group with the most layers. There are `least_slabs` at least.
PoolMap map_of_slabs(const ModelConfig& config, std::vector<CacheGroup> groups, const EngineOptions& options,
                     size_t least_slabs) {
  const int pages = choose_pages(config, groups, options);
  constexpr size_t kStretch = size_t{2} << 20;
  constexpr size_t kFewSlabs = 32;  // for small pools stretches are shorter
  const auto page_bytes = [&](const CacheGroup& group) { return group.layout.bytes * static_cast<size_t>(config.kv_heads); };
  const size_t bytes = bytes_of_pages(config, groups) * static_cast<size_t>(pages);
  size_t most_layers = 0;
  size_t largest_page = 0;
  for (const CacheGroup& group : groups) {
    most_layers = std::max(most_layers, group.layers.size());
    largest_page = std::max(largest_page, page_bytes(group));
  }
  const size_t row_bytes = largest_page * most_layers;
  const size_t wanted = std::max(bytes / std::max(row_bytes, most_layers * kStretch), kFewSlabs);
  const size_t slab_bytes = row_bytes * std::max<size_t>(1, bytes / wanted / row_bytes) + largest_page;  // begin where they may
  // Every group could have all pages.
  size_t slabs = 0;
  for (const CacheGroup& group : groups) {
    const size_t slab_pages = (slab_bytes - page_bytes(group)) / (page_bytes(group) * group.layers.size());
    slabs += (static_cast<size_t>(pages) + slab_pages - 1) / slab_pages;
  }
  return {config.kv_heads, std::move(groups), slab_bytes, static_cast<int>(std::max(slabs, least_slabs))};
}

/// Pages that a whole batch has at most, however long its sequences are: where every group forgets under a pattern, and nobody
/// looks for what was given back.
int most_pages(const Groups& groups, int page, const EngineOptions& options) {
  int64_t most = 0;
  for (const GroupView& view : groups.views) {
    if (view.budget != nullptr && !view.budget->keeps_prompt()) {
      const int of_sequence = pages_for(view.budget->tokens(), page);
      most = std::max(most, int64_t{options.max_batch} * of_sequence);
      continue;
    }
    const std::shared_ptr<const PageLives> lives = view.lives_of_prompts();
    if (view.slots == nullptr && (lives == nullptr || options.prefix_cache)) return INT_MAX;
    // A sequence's, and one more, and those that its rows of a pass need beside them.
    const int of_sequence =
        1 + (lives != nullptr ? lives->most(lives->tokens()) : pages_for(view.slots->used(view.slots->length()), page));
    most = std::max(most, int64_t{options.max_batch} * of_sequence + pages_for(options.max_pass_tokens, page));
  }
  return static_cast<int>(std::min<int64_t>(most, INT_MAX));
}

/// By group, how many tokens back it keeps; 0: all that has a slot.
std::vector<int> kept_of(const std::vector<GroupView>& views, const EngineOptions& options) {
  std::vector<int> kept(views.size(), 0);
  for (size_t group = 1; group < views.size() && !options.keep_all; ++group) kept[group] = views[group].window;
  return kept;
}

std::shared_ptr<KvCache> create_cache(Device& device, const ModelConfig& config, const PoolMap& map, Groups groups,
                                      const EngineOptions& options) {
  const std::vector<int> kept = kept_of(groups.views, options);
  const bool prefixes = options.prefix_cache && !has_slots(groups.views);
  return std::make_shared<KvCache>(device, config, map, std::move(groups.views), kept, prefixes);
}

std::vector<std::shared_ptr<const PageLives>> lives_of_prompts(const std::vector<GroupView>& views) {
  std::vector<std::shared_ptr<const PageLives>> lives;
  for (const GroupView& view : views) lives.push_back(view.lives_of_prompts());
  return lives;
}

}  // namespace

KvCache::KvCache(Device& device, const ModelConfig& config, const PoolMap& map, std::vector<GroupView> views,
                 const std::vector<int>& kept, bool prefixes)
    : device_(device),
      config_(config),
      pool_(device.create_pool(map)),
      views_(std::move(views)),
      pages_(pool_->map(), {.page = pool_->layout().page, .share = prefixes, .windows = kept, .lives = lives_of_prompts(views_)}),
      keeps_all_(std::all_of(kept.begin(), kept.end(), [](int window) { return window == 0; }) &&
                 std::none_of(views_.begin(), views_.end(), [](const GroupView& view) { return view.budget != nullptr; })) {
  // Copies are of one group, in which a token's slot is its position.
  constexpr size_t kViews = 4;  // of a page, at most
  const bool sees_all = views_.size() == 1 && views_.front().sees_all() && !views_.front().has_slots() && keeps_all();
  if (prefixes && sees_all) {
    segments_ = std::make_unique<SegmentIndex>(pages_.page(), kViews * static_cast<size_t>(pages_.pages()));
    frozen_ = std::make_unique<FrozenPool>(*segments_, pages_);
  }
}

bool KvCache::takes_fields() const {
  const PoolMap& map = pool_->map();
  if (map.groups() < kMostGroups) return true;
  for (int group = 0; group < map.groups(); ++group) {
    if (!map.has_group(group)) return true;
  }
  return false;
}

FieldPlane::FieldPlane(KvCache& cache, CacheGroup group) : cache_(&cache), group_(cache.pool().add_fields(std::move(group))) {
  try {
    cache.pages().add_fields(cache.pool().map(), group_);
  } catch (...) {
    cache.pool().remove_fields(group_);
    throw;
  }
}

FieldPlane::~FieldPlane() {
  if (cache_ == nullptr) return;
  cache_->pages().remove_fields(group_);
  cache_->pool().remove_fields(group_);
}

std::shared_ptr<KvCache> create_own_cache(Device& device, const ModelConfig& config, const Plan* plan,
                                          const EngineOptions& options) {
  Groups groups = groups_of(config, plan, options);
  const PageLayout& first = groups.groups.front().layout;
  EngineOptions own = options;
  own.pages = std::min(choose_pages(config, groups.groups, options), most_pages(groups, first.page, options));
  const PoolMap map = groups.groups.size() == 1 ? PoolMap(config.layers, config.kv_heads, own.pages, first)
                                                : map_of_slabs(config, groups.groups, own, 1);
  return create_cache(device, config, map, std::move(groups), options);
}

std::shared_ptr<KvCache> create_shared_cache(Device& device, const ModelConfig& config, const EngineOptions& options) {
  Groups groups = groups_of(config, nullptr, options);
  const PoolMap map = map_of_slabs(config, groups.groups, options, 2);  // one for fields
  return create_cache(device, config, map, std::move(groups), options);
}

}  // namespace sluice
