#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device/compiled_flow.h"
#include "kernels/device/matrix.h"
#include "kernels/device/operation_observer.h"
#include "kernels/device/page_pool.h"

namespace sluice {

/// What a cache of keys, values and fields needs of a device: its memory, and what writes to it. But for `create_pool` and
/// `refresh_pages` and `copy_shifted` all of it belongs to a pass (Device::begin_pass).
class CacheOperations : public virtual ObservedOperations {
 public:
  virtual ~CacheOperations() = default;

  /// Memory laid out as `map` says, zeros at first. Throws InputError for pages that the device does not keep, or without memory.
  virtual std::unique_ptr<Pool> create_pool(const PoolMap& map) = 0;
  /// The same for `pages` pages of one group of all layers.
  std::unique_ptr<Pool> create_pool(int layers, int kv_heads, int pages, const PageLayout& layout) {
    return create_pool(PoolMap(layers, kv_heads, pages, layout));
  }

  struct Rope {
    float theta = 10000;
    std::vector<float> inverse_frequencies;  // [head_dim / 2]; already scaled (llama3, linear) where a model wants it
    float attention_scale = 1;               // multiplies cos and sin
  };
  /// Normalises q and k per head (gains may be null), rotates them by the position of their token (halves, not pairs) and
  /// appends k and v to the pages of `layer`. qkv is [rows, (query_heads + 2 * kv_heads) * head_dim], q is rotated in place.
  virtual void rope_append(int layer, Matrix qkv, int query_heads, const Weight* query_gain, const Weight* key_gain,
                           float epsilon, const Rope& rope) = 0;
  /// Appends k, v [rows, kv_heads * head_dim] as they are.
  virtual void append(int layer, Matrix keys, Matrix values) = 0;
  /// Copies K and V of runs of tokens in layers of a group, outside a pass, and turns keys that `rope` has rotated as
  /// their new places ask (SparseX, section 3.1). All at once: no place may be a target twice, or a target and the source of
  /// another. Cached fields are untouched. By way of the host, unless a device has its own way.
  virtual void copy_shifted(Pool& pool, GroupLayers layers, std::span<const ShiftedRun> runs, const Rope& rope);
  /// Makes room for the pass's rows in all layers that run `flow`, which says who leaves (FlowGraph::eviction): once in a pass,
  /// before rows come. Tokens that take the slots of others take their states along, and fields of their pages are recomputed.
  virtual void evict(const CompiledFlow& flow) = 0;
  /// Recomputes the cached fields of `layer` for the pages that this pass's tokens touched. No-op without fields.
  virtual void refresh_fields(int layer, const CompiledFlow& flow) = 0;
  /// What `refresh_pages` is to recompute the fields of.
  struct StalePages {
    std::span<const int32_t> pages;             // of the layer's group
    int last_tokens = 0;                        // in the last of them, 1..page; the others are full
    int field_group = -1;                       // that has the fields, where they have pages of their own
    std::span<const int32_t> field_pages = {};  // [pages] of it
  };
  /// The same for given pages, outside a pass.
  virtual void refresh_pages(Pool& pool, int layer, const StalePages& stale, const CompiledFlow& flow) = 0;
};

}  // namespace sluice
