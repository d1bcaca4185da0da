#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/flow/eviction.h"
#include "kernels/device.h"

namespace sluice::cpu::flows {

/// The states of one request: for every sparse layer and KV head the float32 values of each State, of all pages where the
/// state has a page axis; and what the rows of its prompt gave their tokens, where the flow reads the sum. Different layers and
/// heads may be used by different threads.
class FlowState final : public RequestState {
 public:
  FlowState(const FlowGraph& graph, int layers, int kv_heads, int max_pages);

  size_t bytes() const override;
  void reset() override;

  /// Values of state `index` for a row of `pages` pages; those that the last save had not seen hold the initial value.
  /// They lie where `save` writes. Throws InternalError outside the layers, heads and pages that this was made for.
  float* load(int layer, int kv_head, int index, int pages);
  /// Keeps `values`, which may be what `load` gave; the last page holds `tokens` tokens, and tokens still to come keep the
  /// initial value.
  void save(int layer, int kv_head, int index, const float* values, int pages, int tokens);
  /// Pages, the oldest, that hold what was saved.
  int saved_pages(int layer, int kv_head, int index) const;
  /// Keeps `values` of the pages from those on, to before `pages`: of others `values` need not be there.
  void save_leaving(int layer, int kv_head, int index, const float* values, int pages);
  /// Sums over the rows of the prompt so far, [pages, page, group]; 0 of pages that were not asked for before. Null if the flow
  /// does not read them.
  float* prompt_masses(int layer, int kv_head, int pages);
  /// Those sums begin again.
  void forget_prompt_masses(int layer, int kv_head);
  /// Of flows that evict: the position of the token in each slot.
  std::span<int32_t> positions(int layer, int kv_head);
  /// Tokens have taken the slots of those who left, and `staying` are there: what is kept of them goes along, and slots behind
  /// them hold the initial values.
  void move_tokens(int layer, int kv_head, std::span<const SlotMove> moves, int staying);

 private:
  struct Entry {
    int64_t offset = 0;    // from the start of a head's block
    int64_t elements = 0;  // of a page, or of the whole
    bool paged = false;
    int64_t token_inner = 0;  // elements inside the token axis; 0: no token axis
    int64_t tokens = 0;
    float initial = 0;

    /// Where the first number of a token's lies, of the part of a page that has the others by turns of tokens * token_inner.
    int64_t place_of(int64_t slot) const { return slot / tokens * elements + slot % tokens * token_inner; }
  };

  int64_t block_of(int layer, int kv_head) const;
  void initialise_future_tokens(const Entry& entry, float* page, int tokens) const;

  std::vector<Entry> entries_;
  std::vector<int> layer_blocks_;  // by layer; -1: dense
  int kv_heads_;
  int max_pages_;
  int64_t block_floats_ = 0;
  int64_t blocks_ = 0;
  std::unique_ptr<float[]> values_;
  std::vector<int32_t> seen_;    // [block, state] pages at the last save
  int64_t mass_floats_ = 0;      // of a page; 0: no masses
  std::vector<int32_t> summed_;  // [block] pages with sums
  std::unique_ptr<float[]> sums_;
  int64_t slots_ = 0;               // of flows that evict
  std::vector<int32_t> positions_;  // [block, slots]
};

}  // namespace sluice::cpu::flows
