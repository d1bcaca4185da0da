"""What is measured: each case is one of `sluice bench --device cuda`, and every peer that can do it gets it by its key."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Attention:
    """Decode attention over pages of 16, heads of 128, bf16."""
    batch: int
    kv_heads: int
    group: int  # query heads of a KV head
    tokens: int
    pages: int  # that each KV head attends to; 0: all

    bench = "attention"

    @property
    def key(self):
        return f"{self.batch},{self.kv_heads},{self.group},{self.tokens},{self.pages}"

    @property
    def ours(self):
        """Name and shape of the row in the report of `sluice bench`."""
        return (f"sparse decode, {self.pages} pages" if self.pages else "dense decode",
                f"batch {self.batch}, tokens {self.tokens}, kv_heads {self.kv_heads}, group {self.group}, dim 128, page 16, bf16")


@dataclass(frozen=True)
class TopK:
    """The k greatest of float32 scores."""
    rows: int
    length: int
    k: int

    bench = "topk"

    @property
    def key(self):
        return f"{self.rows},{self.length},{self.k}"

    @property
    def ours(self):
        return "exact", f"rows {self.rows}, pages {self.length}, k {self.k}, float32"


@dataclass(frozen=True)
class Prefill:
    """Causal attention of one whole prompt, bf16."""
    tokens: int
    kv_heads: int
    group: int
    dim: int

    bench = "prefill"

    @property
    def key(self):
        return f"{self.tokens},{self.kv_heads},{self.group},{self.dim}"

    @property
    def ours(self):
        return ("whole prompt", f"batch 1, tokens {self.tokens}, kv_heads {self.kv_heads}, group {self.group}, dim {self.dim}, "
                                "page 16, bf16")


ATTENTION = [Attention(16, 8, 4, 32768, 0), Attention(64, 8, 2, 8192, 0), Attention(1, 8, 4, 131072, 0),
             Attention(16, 8, 4, 32768, 256), Attention(16, 8, 4, 32768, 128), Attention(16, 8, 4, 32768, 32),
             Attention(64, 8, 2, 8192, 64), Attention(128, 8, 2, 8192, 64), Attention(4, 8, 4, 32768, 128),
             Attention(1, 8, 4, 131072, 128)]
TOPK = [TopK(1, 8192, 2048), TopK(1, 65536, 2048), TopK(1, 131072, 2048), TopK(64, 65536, 2048), TopK(128, 2048, 64),
        TopK(128, 2048, 128), TopK(128, 8192, 125), TopK(512, 1024, 64)]
PREFILL = [Prefill(8192, 64, 1, 128), Prefill(8192, 16, 4, 128), Prefill(8192, 8, 8, 128), Prefill(8192, 8, 8, 64)]

PATTERN_HEADS = 64
# Static patterns, which FlexAttention computes by a mask, and what a token sees beside itself.
PATTERNS = {"dense causal": "all tokens",
            "streaming": "the first 32, the last 1024",
            "sliding": "the last 1024",
            "block local": "3 blocks of 128",
            "strided": "the last 512, every 512th",
            "fixed": "a block of 256, the last of each",
            "strided block local": "every fourth of a block of 256"}


@dataclass(frozen=True)
class Patterned:
    """A whole prompt under a pattern, or the decode step of its last token. Batch 1, 64 heads of 128, bf16."""
    pattern: str
    tokens: int
    what: str  # "prompt" or "step"

    bench = "patterns"

    @property
    def key(self):
        return f"{self.pattern},{self.tokens},{self.what}"

    @property
    def ours(self):
        return (f"{self.pattern}, {self.what}",
                f"batch 1, tokens {self.tokens}, kv_heads {PATTERN_HEADS}, group 1, dim 128, page 16, bf16")

    @property
    def dense(self):
        """The prompt without a pattern."""
        return Prefill(self.tokens, PATTERN_HEADS, 1, 128)


PATTERNED = [Patterned(pattern, tokens, what) for tokens in (2048, 8192, 16384) for pattern in PATTERNS for what in ("prompt", "step")]
