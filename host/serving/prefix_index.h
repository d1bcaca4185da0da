#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

/// Finds pages by what they hold: a tree whose nodes are full pages, keyed by a hash chain over the tokens from the start
/// of the sequence. Tokens and the parent are compared on every hit, so that a collision of hashes is harmless. Everything lives
/// in arrays by page: nothing allocates after construction.
class PrefixIndex {
 public:
  static constexpr int32_t kRoot = -1;  // the parent of first pages
  static constexpr int32_t kNone = -1;

  /// Numbers of pages are below `limit`.
  PrefixIndex(int limit, int page_tokens);

  /// The page that holds `tokens` (a full page of them) after `parent`, or kNone.
  int32_t find(int32_t parent, std::span<const int32_t> tokens) const;
  /// Registers `page`, which must not be in the index, and of which there must be no equal.
  void insert(int32_t parent, std::span<const int32_t> tokens, int32_t page);
  /// Registers it by itself, full or not: it follows no page, so that no prefix is found in it, but it is known and has a serial.
  void insert_apart(int32_t page);
  /// Forgets a page. Those after it are not found any more, even if it comes back.
  void erase(int32_t page);
  /// Of what the page holds, never given again; 0: it is not in the index.
  uint64_t serial(int32_t page) const { return nodes_[static_cast<size_t>(page)].serial; }
  bool contains(int32_t page) const { return nodes_[static_cast<size_t>(page)].serial != 0; }
  size_t bytes() const { return nodes_.capacity() * sizeof(Node) + (tokens_.capacity() + buckets_.capacity()) * sizeof(int32_t); }

 private:
  struct Node {
    uint64_t hash = 0;
    uint64_t serial = 0;         // 0: not in the index; unique per insertion, so a reused page is never taken for its past
    uint64_t parent_serial = 0;  // 0: the root
    int32_t next_in_bucket = kNone;
  };

  void add(int32_t page, uint64_t hash, uint64_t parent_serial);
  uint64_t hash_of(int32_t parent, std::span<const int32_t> tokens) const;
  uint64_t serial_of(int32_t parent) const;
  std::span<const int32_t> tokens_of(int32_t page) const;
  int32_t& bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  int page_tokens_;
  std::vector<Node> nodes_;       // by page
  std::vector<int32_t> tokens_;   // [limit, page_tokens]
  std::vector<int32_t> buckets_;  // heads of chains of pages
  uint64_t last_serial_ = 0;
};

}  // namespace sluice
