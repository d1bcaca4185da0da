#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sluice {

/// Finds text that requests have marked, wherever it stood: runs of as many tokens as a page has, by a hash under a secret of
/// this process, of whose they are, of the name that they were marked with, and of the tokens themselves (virtual blocks:
/// SparseX, sections 4.3 and 4.4). Names and tokens are compared on every hit, so nobody finds a run that is another's or that
/// goes by another name, whatever hashes are. A run may lie in two pages, since it begins where its text does.
///
/// The index does not own pages. Who asks checks that those of a view still hold what they did.
class SegmentIndex {
 public:
  using Digest = std::array<unsigned char, 32>;

  /// Where the tokens of a run lie.
  struct View {
    std::array<int32_t, 2> pages{};     // that have its first tokens, and the others; equal where one has them all
    std::array<uint64_t, 2> serials{};  // of what these pages held
    int slot = 0;                       // of its first token in the first page
    int32_t position = 0;               // of its first token in its sequence

    bool operator==(const View&) const = default;
  };

  /// For runs of `block` tokens, of which it knows `most` at a time, beside frozen ones: those that nobody has found or offered
  /// for longest go first.
  SegmentIndex(int block, size_t most);
  ~SegmentIndex();
  SegmentIndex(const SegmentIndex&) = delete;
  SegmentIndex& operator=(const SegmentIndex&) = delete;

  /// Runs are found in the space in which they were offered: that of a tenant, and a name of the tenant's choice; and of the flow
  /// whose steps computed their K and V, if one did.
  Digest space(std::string_view tenant, std::string_view extra_key, std::string_view flow = {}) const;
  /// Stands for a long text, such as that of a flow.
  Digest digest_of(std::string_view text) const;
  /// The run lies there from now on.
  void offer(const Digest& space, std::span<const int32_t> tokens, const View& view);
  /// Null: unknown. Valid until the index changes. Fastest in the order in which runs were offered.
  const View* find(const Digest& space, std::span<const int32_t> tokens);
  /// A run that is known stays so until it is forgotten, whatever else is offered; `text`, which is not 0, is the frozen text
  /// that it is of (FrozenPool). Nothing happens if it is unknown, or is another's already.
  void freeze(const Digest& space, std::span<const int32_t> tokens, uint64_t text);
  /// 0: it is unknown, or of none.
  uint64_t frozen_text(const Digest& space, std::span<const int32_t> tokens);
  /// Nothing happens if it is unknown.
  void forget(const Digest& space, std::span<const int32_t> tokens);

  int block() const { return block_; }
  size_t size() const { return entries_.size() + frozen_.size(); }
  size_t most() const { return most_; }

 private:
  struct Entry {
    Digest digest;
    Digest space;
    std::vector<int32_t> tokens;
    View view;
    uint64_t text = 0;  // that it is of, which is frozen
  };
  struct Hash {
    size_t operator()(const Digest& digest) const;
  };
  using Entries = std::list<Entry>;  // the one to go next is the last
  struct Known {
    Entries::iterator entry;
    // Runs that were asked for or offered one after the other: a text is, and hashing it costs more than comparing it.
    Known* next = nullptr;
    Known* before = nullptr;
  };

  Digest digest_of(const Digest& space, std::span<const int32_t> tokens) const;
  /// Null: unknown.
  Known* locate(const Digest& space, std::span<const int32_t> tokens);
  /// It is the last to go, and the one that was asked for last.
  void renew(Known& known);
  /// Nothing is known of a run any more but its entry.
  void unlink(Known& known);

  int block_;
  size_t most_;
  std::array<unsigned char, 32> secret_;
  Entries entries_;
  Entries frozen_;  // in no order
  std::unordered_map<Digest, Known, Hash> by_digest_;
  Known* last_ = nullptr;  // that was asked for or offered; null: it is gone
};

}  // namespace sluice
