#pragma once

#include <memory>
#include <vector>

#include "host/serving/engine.h"
#include "host/serving/frozen_pool.h"
#include "host/serving/group_view.h"
#include "host/serving/page_cache.h"
#include "host/serving/segment_index.h"
#include "kernels/device.h"

namespace sluice {

/// The pool of pages for the K and V of one model on one device, and who uses which: of one engine, or of several that share it.
/// Of the thread that owns the device.
class KvCache {
 public:
  /// For `config`'s model. By group of the map, `views`, and `kept`: tokens back that are kept, or 0: all that has a slot.
  /// `prefixes`: whether who has the same prefix shares its pages; a group with slots rules that out. Throws InputError as
  /// Device::create_pool does.
  KvCache(Device& device, const ModelConfig& config, const PoolMap& map, std::vector<GroupView> views,
          const std::vector<int>& kept, bool prefixes);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  /// Prefixes are known by their tokens alone, so they are of one model on one device.
  bool is_of(const Device& device, const ModelConfig& config) const { return &device == &device_ && &config == &config_; }
  /// Whether there is room for the fields of another flow.
  bool takes_fields() const;

  Pool& pool() { return *pool_; }
  const Pool& pool() const { return *pool_; }
  PageCache& pages() { return pages_; }
  /// By group with K and V.
  const std::vector<GroupView>& views() const { return views_; }
  bool has_window(int layer) const { return views_[static_cast<size_t>(pool_->map().place_of(layer).group)].window > 0; }
  /// Whether every group keeps all tokens.
  bool keeps_all() const { return keeps_all_ && !has_slots(views_) && !has_lives(views_); }
  /// Whether K and V of tokens can be given to every group, which then keeps what it will read of them.
  bool takes_snapshots() const { return keeps_all_; }
  /// Where text that requests marked can be found; null: here it cannot, since tokens leave, or the device does not reuse it.
  SegmentIndex* segments() const { return segments_.get(); }
  /// Texts that are to stay known; null where `segments` is.
  FrozenPool* frozen() const { return frozen_.get(); }

 private:
  const Device& device_;
  const ModelConfig& config_;
  std::unique_ptr<Pool> pool_;
  std::vector<GroupView> views_;
  PageCache pages_;
  std::unique_ptr<SegmentIndex> segments_;
  std::unique_ptr<FrozenPool> frozen_;
  bool keeps_all_;  // but for what patterns leave out
};

/// The group of a cache that has the fields of one engine's flow, as long as this lives.
class FieldPlane {
 public:
  /// None.
  FieldPlane() = default;
  /// Throws InputError for more groups than a pool has, or pages larger than its slabs.
  FieldPlane(KvCache& cache, CacheGroup group);
  ~FieldPlane();
  FieldPlane(const FieldPlane&) = delete;
  FieldPlane& operator=(const FieldPlane&) = delete;

  /// -1: none.
  int group() const { return group_; }

 private:
  KvCache* cache_ = nullptr;
  int group_ = -1;
};

/// For the engine of one flow (null: dense), with the flow's fields beside K and V. Of `options` it reads what they say of pages
/// and windows. Throws InputError for pages and windows that cannot be.
std::shared_ptr<KvCache> create_own_cache(Device& device, const ModelConfig& config, const Plan* plan,
                                          const EngineOptions& options);
/// For several engines of `config`'s model with pages of options.page tokens in options.kv (EngineOptions::cache). Fields have
/// pages of their own, so that all have the same K and V: what one has computed of a prompt others find. Memory goes to K, V and
/// fields as they are needed.
std::shared_ptr<KvCache> create_shared_cache(Device& device, const ModelConfig& config, const EngineOptions& options);

}  // namespace sluice
