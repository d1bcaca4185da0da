#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice {

/// A part of a prompt that a request marks: text that may have stood elsewhere before, and may again.
struct Segment {
  int first = 0;  // tokens of the prompt, up to before `end`
  int end = 0;
  std::string extra_key;  // the name that it is known by; nobody finds what goes by another
};

/// Bytes that the extra key of a segment may have.
inline constexpr size_t kLongestExtraKey = 256;

/// What is computed again of tokens whose K and V are copied from where they stood before (SparseX, section 3).
struct Recomputation {
  enum class Rule : uint8_t {
    kNone,     // nothing
    kAll,      // everything: the result is that of computing the prompt
    kEdges,    // the first tokens of each segment (EPIC)
    kSparseQ,  // what the rows that are not copied look at, and what is beside them
    kKeys,     // those whose keys differ most from the copies (CacheBlend)
  };
  Rule rule = Rule::kSparseQ;
  /// All rows are computed below this layer, which is the one that says what the rule goes by; of kSparseQ and kKeys.
  int boundary = 1;
  double share = 0.15;  // of the copied tokens, that are chosen
  int edge = 16;        // tokens of each segment, of kEdges
};

/// Tokens of a prompt [0, `copied`.size()) of which some are copied; in groups of a page each, in the order of the prompt.
struct CopiedTokens {
  std::vector<uint8_t> copied;  // by token
  int begun = 0;                // tokens before this are there, exactly, and nobody's to compute
  int block = 16;               // tokens that are copied together
  std::vector<int32_t> firsts;  // of segments with copied tokens: the first of them

  int count() const;
  /// The rows whose queries look for what matters: those that are computed whatever the rule says. If the prompt ends with copied
  /// tokens these are the last of them, too (section 3.2).
  std::vector<int32_t> rows_of_their_own() const;
};

/// The tokens from `begun` on that are computed in all layers from the boundary on, ascending. `scores`, by token: what the rule
/// goes by; empty for rules that go by nothing.
std::vector<int32_t> rows_to_compute(const CopiedTokens& tokens, const Recomputation& rule, std::span<const float> scores);

}  // namespace sluice
