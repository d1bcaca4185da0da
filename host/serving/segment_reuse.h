#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/recompute_rule.h"

namespace sluice {

/// A part of a prompt that a request marks: text that may have stood elsewhere before, and may again.
struct Segment {
  int first = 0;  // tokens of the prompt, up to before `end`
  int end = 0;
  std::string extra_key;  // the name that it is known by; nobody finds what goes by another
};

/// Bytes that the extra key of a segment may have.
inline constexpr size_t kLongestExtraKey = 256;

/// Tokens of a prompt [0, `copied`.size()) of which some are copied, in blocks, in the order of the prompt. New are those that
/// are not, from `begun` on.
struct CopiedTokens {
  std::vector<uint8_t> copied;  // by token
  std::vector<int32_t> moved;   // by token: its position less the one where its K and V were computed; 0 of others
  int begun = 0;                // tokens before this are there, exactly, and nobody's to compute
  int block = 16;               // tokens that are copied together
  std::vector<int32_t> firsts;  // of runs: blocks of one segment, copied from where they stood one behind the other, too
  bool ends_known = false;      // the prompt ends with a segment of which some is copied

  int count() const;
  /// The block whose first token is `first` is new after all.
  void lose_block(int first);
  /// Those that are copied, block by block, ascending.
  std::vector<int32_t> places() const;
  /// The rows whose queries look for what matters: those that are computed whatever the rule says, and, if the prompt ends with
  /// a text that is known, the last of its tokens (SparseX, section 3.2); of them the last `most`.
  std::vector<int32_t> looking_rows(int most) const;
};

/// Numbers of a fact that no layer has to say, of places(). Throws InternalError for others.
void fill_fact(CopyFact fact, const CopiedTokens& tokens, std::span<const int32_t> looking, std::span<float> numbers);

/// The tokens from `begun` on that are computed in all layers from the rule's on, ascending: new ones and those that it chooses.
/// `of_layer` fills what a layer has to say. Null: all of them.
std::vector<int32_t> rows_to_compute(const CopiedTokens& tokens, const RecomputeRule* rule, uint64_t seed,
                                     std::span<const int32_t> looking, const RecomputeRule::Fill& of_layer);

}  // namespace sluice
