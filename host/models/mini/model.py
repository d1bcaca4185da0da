"""The mini model: a plain Qwen3 whose parameters bear the names of the Hugging Face checkpoint.

Parameters are float32 for the optimizer, but every use rounds them to bfloat16 first, so that what is trained is
exactly what the exported bfloat16 file holds. The residual stream and norms are float32.

The parts around attention see flat tokens [documents * length, hidden]. Their shapes do not depend on the length of
the documents, so each is compiled once for all layers and for the whole curriculum.
"""
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

HIDDEN, LAYERS, QUERY_HEADS, KV_HEADS, HEAD, FEED_FORWARD = 256, 8, 8, 2, 64, 768
GROUP = QUERY_HEADS // KV_HEADS
EPSILON, ROPE_THETA = 1e-6, 500000.0
# Logits are the dot product of the final norm's output with embeddings. A quarter keeps them small at the start;
# as the norm has a weight anyway, the factor is simply its first value.
LOGIT_SCALE = 0.25


def rms_norm(x, weight):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight.bfloat16().float()


def rotate(x, cos, sin):
    """x [tokens, heads, HEAD]; cos and sin [tokens, HEAD / 2]. The two halves of a head are pairs, as in Qwen3."""
    first, second = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).bfloat16()


def before_attention(x, norm, query, key, value, query_norm, key_norm, cos, sin):
    """x [tokens, HIDDEN]: q [tokens, QUERY_HEADS, HEAD], k and v [tokens, KV_HEADS, HEAD]."""
    h = rms_norm(x, norm).bfloat16()
    qkv = F.linear(h, torch.cat([query, key, value]).bfloat16())
    q, k, v = qkv.view(len(x), -1, HEAD).split([QUERY_HEADS, KV_HEADS, KV_HEADS], 1)
    return rotate(rms_norm(q, query_norm), cos, sin), rotate(rms_norm(k, key_norm), cos, sin), v.contiguous()


def after_attention(x, attended, output, norm, gate, up, down):
    x = x + F.linear(attended, output.bfloat16())
    h = rms_norm(x, norm).bfloat16()
    gate, up = F.linear(h, torch.cat([gate, up]).bfloat16()).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, down.bfloat16())


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(HIDDEN)
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN)
        self.self_attn = nn.ModuleDict({
            "q_proj": nn.Linear(HIDDEN, QUERY_HEADS * HEAD, bias=False),
            "k_proj": nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False),
            "v_proj": nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False),
            "o_proj": nn.Linear(QUERY_HEADS * HEAD, HIDDEN, bias=False),
            "q_norm": nn.RMSNorm(HEAD), "k_norm": nn.RMSNorm(HEAD)})
        self.mlp = nn.ModuleDict({
            "gate_proj": nn.Linear(HIDDEN, FEED_FORWARD, bias=False),
            "up_proj": nn.Linear(HIDDEN, FEED_FORWARD, bias=False),
            "down_proj": nn.Linear(FEED_FORWARD, HIDDEN, bias=False)})

    def weights(self):
        """The arguments of before_attention and of after_attention."""
        a, m = self.self_attn, self.mlp
        return ([w.weight for w in (self.input_layernorm, a["q_proj"], a["k_proj"], a["v_proj"], a["q_norm"],
                                    a["k_norm"])],
                [w.weight for w in (a["o_proj"], self.post_attention_layernorm, m["gate_proj"], m["up_proj"],
                                    m["down_proj"])])


class Mini(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)
        self.attention = flash_repeated
        self.before, self.after = before_attention, after_attention
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 if name.startswith("embed") else 0.7 * p.shape[1] ** -0.5)
        nn.init.constant_(self.norm.weight, LOGIT_SCALE)

    def compile(self):
        self.before = torch.compile(before_attention, dynamic=False)
        self.after = torch.compile(after_attention, dynamic=False)

    def embeddings(self):
        """Rounded to bfloat16, with the gradient of the unrounded ones."""
        weight = self.embed_tokens.weight
        return weight + (weight.bfloat16().float() - weight).detach()

    def forward(self, tokens, sparse=None):
        """tokens [documents, length] -> what logits are made of [documents * length, HIDDEN], float32."""
        documents, length = tokens.shape
        angle = torch.arange(length, device=tokens.device)[:, None] * ROPE_THETA ** (
            -torch.arange(0, HEAD, 2, device=tokens.device) / HEAD)
        cos, sin = angle.cos().repeat(documents, 1), angle.sin().repeat(documents, 1)
        x = F.embedding(tokens.flatten(), self.embeddings())
        for index, layer in enumerate(self.layers):
            first, second = layer.weights()
            qkv = self.before(x, *first, cos, sin)
            q, k, v = (t.view(documents, length, -1, HEAD).transpose(1, 2) for t in qkv)
            attended = self.attention(q, k, v)
            if sparse is not None and index >= sparse.full_layers:
                attended = torch.cat([attended[:, :, :sparse.start], sparse.attend(q, k, v)], 2)
            x = self.after(x, attended.transpose(1, 2).reshape(len(x), -1), *second)
        return rms_norm(x, self.norm.weight)

    def logits(self, hidden):
        return hidden @ self.embeddings().t()


def repeat(x):
    return x.repeat_interleave(GROUP, 1)


def flash_repeated(q, k, v):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, repeat(k), repeat(v), is_causal=True)


def flash_grouped(q, k, v):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def cudnn_repeated(q, k, v):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, repeat(k), repeat(v), is_causal=True)


def cudnn_grouped(q, k, v):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def fastest_attention(documents, length):
    """The quickest of the dense attentions for this shape that agrees with flash attention, gradients included."""
    def inputs():
        torch.manual_seed(0)
        return [torch.randn(documents, length, heads, HEAD, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
                .requires_grad_() for heads in (QUERY_HEADS, KV_HEADS, KV_HEADS)]

    expected, best, best_time, times = None, flash_repeated, float("inf"), []
    state = torch.cuda.get_rng_state()
    for attention in (flash_repeated, flash_grouped, cudnn_repeated, cudnn_grouped):
        try:
            for turn in range(4):
                if turn == 1:
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                qkv = inputs()
                out = attention(*qkv)
                out.backward(out.detach())
            torch.cuda.synchronize()
            took = (time.perf_counter() - begin) / 3
            got = [out.detach().float()] + [t.grad.float() for t in qkv]
        except RuntimeError as error:
            times.append(f"{attention.__name__}: {str(error).splitlines()[0][:60]}")
            continue
        expected = expected or got
        agrees = all((a - b).norm() < 0.02 * b.norm() for a, b in zip(got, expected))
        times.append(f"{attention.__name__} {took * 1e3:.1f} ms{'' if agrees else ' WRONG'}")
        if agrees and took < best_time:
            best, best_time = attention, took
    torch.cuda.set_rng_state(state)
    print(f"attention {documents} x {length}:", ", ".join(times), flush=True)
    return best


class Sparse:
    """Page-sparse attention of the positions from `starts` (one for each document) on, as a flow would have it.

    selector: quest, block (mean of keys), exact (largest score in the page) or random. Of the pages that a position
    sees, `share` are kept; the first and the last two always are.
    """

    def __init__(self, selector, page, share, starts, full_layers=0):
        self.selector, self.page, self.share, self.full_layers = selector, page, share, full_layers
        self.starts, self.start = starts, min(starts)

    @torch.no_grad()
    def scores(self, q, k):
        """q [documents, KV_HEADS, GROUP, queries, HEAD], k [documents, KV_HEADS, pages, page, HEAD] ->
        [documents, KV_HEADS, queries, pages]."""
        if self.selector == "quest":
            high, low, q = k.amax(3).float(), k.amin(3).float(), q.float()
            return (torch.einsum("bhgtd,bhpd->bhgtp", q.clamp(min=0), high)
                    + torch.einsum("bhgtd,bhpd->bhgtp", q.clamp(max=0), low)).amax(2)
        if self.selector == "block":
            return torch.einsum("bhtd,bhpd->bhtp", q.float().mean(2), k.float().mean(3))
        if self.selector == "exact":
            pages = k.shape[2]
            best = None
            for head in range(GROUP):
                score = torch.einsum("bhtd,bhkd->bhtk", q[:, :, head], k.flatten(2, 3))
                score = score.unflatten(-1, (pages, self.page)).amax(-1).float()
                best = score if best is None else torch.maximum(best, score)
            return best
        return torch.rand(*q.shape[:2], q.shape[3], k.shape[2], device=q.device)

    @torch.no_grad()
    def mask(self, q, k):
        """[documents, KV_HEADS, queries, length], true where a query attends."""
        documents, _, length, _ = k.shape
        pages = length // self.page
        tail = q[:, :, self.start:].unflatten(1, (KV_HEADS, GROUP))
        score = self.scores(tail, k.unflatten(2, (pages, self.page)))
        position = torch.arange(self.start, length, device=q.device)
        current, page = (position // self.page)[:, None], torch.arange(pages, device=q.device)
        score = score.masked_fill(page > current, -torch.inf)
        score = score.masked_fill((page == 0) | (page <= current) & (page >= current - 1), torch.inf)
        kept = score.topk(max(3, int(pages * self.share)), -1).indices
        chosen = torch.zeros_like(score, dtype=torch.bool).scatter_(3, kept, True)
        chosen = chosen.repeat_interleave(self.page, 3)
        starts = torch.tensor(self.starts, pin_memory=True).to(q.device, non_blocking=True)
        chosen |= (position < starts[:, None])[:, None, :, None]  # still the prompt: dense
        return chosen & (torch.arange(length, device=q.device) <= position[:, None])

    def attend(self, q, k, v):
        mask = repeat(self.mask(q.detach(), k.detach()))
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return F.scaled_dot_product_attention(q[:, :, self.start:], repeat(k), repeat(v), attn_mask=mask)
