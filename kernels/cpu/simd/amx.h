#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/decode_block.h"
#include "kernels/cpu/products/weight.h"

// Matrix products on AMX tiles (Intel, since Sapphire Rapids). Tiles multiply bf16 and add in float32. K, V and most
// weights are bf16 already; a float32 operand is split into two bf16 halves, x = high + low, which keeps 16 bits of its
// mantissa, so products stay within about 1e-5 of float32 for twice the tile work. An infinite operand gives NaN, since
// what is left of it after its high half is.
namespace sluice::cpu {

/// True if the processor has bf16 tiles and the system lets this process use them (asks for the permission once).
bool amx_available();

/// Runs `rounds` rounds of independent products on tile registers alone; gives the floating-point operations of one round.
double amx_multiply_rounds(int64_t rounds);

/// Scratch bytes of one thread for `amx_panel_products` with `columns` inputs.
size_t amx_matmul_scratch_bytes(int64_t columns);
/// Rows that `amx_panel_products` takes at once.
inline constexpr int64_t kAmxRows = 32;

/// Splits up to kAmxRows rows of x [rows, columns] into tiles in `scratch`, for any number of `amx_panel_products` calls.
void amx_split_rows(const Matrix& x, std::byte* scratch);
/// The columns of `out` that belong to panels [first, last) = the rows split into `scratch` * those bf16 panels^T. Every
/// output sums its inputs in the same order whatever the number of rows.
void amx_panel_products(const CpuWeight& weight, int64_t first, int64_t last, const std::byte* scratch, const Matrix& out);

/// True if `AmxScores` can score these pages: bf16, whole tiles of channels, pages of a multiple of 8 tokens.
inline bool amx_scores_take(const KvPages& kv) { return kv.type == DataType::kBF16 && kv.dim % 32 == 0 && kv.page % 8 == 0; }
/// Bytes of `heads` query heads packed for `AmxScores`.
inline size_t amx_query_bytes(int heads, int dim) { return static_cast<size_t>(heads) * dim * 2 * sizeof(uint16_t); }
/// Packs query [heads, dim] * factor, padded to `padded` heads with zeros, into `packed`.
void amx_pack_query(const float* query, int heads, int padded, int dim, float factor, std::byte* packed);
/// q . k of decode attention for the current thread, over blocks whose pages all hold the same number of tokens. It keeps the
/// tiles set up from block to block, which costs as much as a few pages, and releases them when it goes away.
class AmxScores {
 public:
  AmxScores() = default;
  ~AmxScores();
  AmxScores(const AmxScores&) = delete;
  AmxScores& operator=(const AmxScores&) = delete;

  /// scores[token][heads] = q . k for the heads (1, 2 or 4) that were packed together. Writes whole tiles of tokens: what lies
  /// past the last token is garbage of the same page. Asks for the rows of the block that follows.
  void score_block(const BlockRows<uint16_t>& keys, const std::byte* packed, int heads, float* scores);

 private:
  int heads_ = 0;  // that the tiles are set up for; 0: they are not
};

/// Tokens that are packed together.
inline constexpr int kAmxPackTokens = 32;
/// Bytes of packed K and V of `tokens` tokens of one KV head.
size_t amx_packed_bytes(int64_t tokens, int dim);
/// True if heads of `dim` channels fill whole tiles.
inline bool amx_takes_dim(int dim) { return dim % 32 == 0; }
/// Packs tokens [first, first + kAmxPackTokens) of one KV head into `packed` (which holds all tokens from 0); tokens from
/// `length` on become zeros. kv.type must be bf16, amx_takes_dim(kv.dim), `first` a multiple of kAmxPackTokens.
void amx_pack_tokens(const KvPages& kv, const int32_t* pages, int first, int length, std::byte* packed);

/// Tokens whose queries make one tile of 32 rows (rows are token-major, then heads of the group).
int amx_tile_rows(int group);
/// Scratch bytes of one thread for `amx_attend_tile`.
size_t amx_attention_scratch_bytes(int dim);
/// Attention of one tile over packed K and V; like `attend_tile`. Softmax runs online over blocks of 256 tokens, so bits of a row
/// without a mask depend on its position alone. Packs that no row of the tile sees are not read.
void amx_attend_tile(const std::byte* packed, int dim, const PrefillTile& tile, int group, float scale, std::byte* scratch);

}  // namespace sluice::cpu
