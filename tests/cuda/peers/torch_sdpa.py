"""PyTorch's scaled_dot_product_attention over contiguous K and V, by each of its backends: torch_sdpa.py decode|prefill SECONDS CASE..."""

import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from torch_timing import attend, copies_of, error_of, measure

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def sdpa(backend, *tensors, **options):
    if backend == "default":
        return scaled_dot_product_attention(*tensors, **options)
    with sdpa_kernel(BACKENDS[backend]):
        return scaled_dot_product_attention(*tensors, **options)


def draw(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def decode(seconds, key):
    batch, kv_heads, group, tokens, pages = map(int, key.split(","))
    if pages:
        return  # contiguous K and V have none
    copies = copies_of(2 * 2 * batch * kv_heads * tokens * 128)
    kv = [(draw(batch, kv_heads, tokens, 128), draw(batch, kv_heads, tokens, 128)) for _ in range(copies)]
    # The query heads of a KV head as heads of their own, and as rows of its one head: the latter needs no grouped heads.
    q = draw(batch, kv_heads, group, 128)
    heads = q.view(batch, kv_heads * group, 1, 128)
    k, v = kv[0]
    wanted = torch.stack([attend(q[0, head], k[0, head], v[0, head]) for head in range(kv_heads)])
    for backend in ("default", *BACKENDS):
        for form in ("heads", "rows"):
            def call(number, backend=backend, form=form):
                if form == "rows":
                    return sdpa(backend, q, *kv[number % copies])
                return sdpa(backend, heads, *kv[number % copies], enable_gqa=group > 1)

            measure(call, lambda: error_of(call(0).reshape(batch, kv_heads, group, 128)[0], wanted), seconds,
                    peer="SDPA", bench="attention", case=key, variant=f"{backend}, {form}")


def prefill(seconds, key):
    tokens, kv_heads, group, dim = map(int, key.split(","))
    q, k, v = draw(1, kv_heads * group, tokens, dim), draw(1, kv_heads, tokens, dim), draw(1, kv_heads, tokens, dim)
    at = torch.tensor([0, tokens // 3 + 1, tokens - 1], device="cuda")
    seen = torch.arange(tokens, device="cuda")[None] <= at[:, None]
    head = kv_heads * group // 2
    wanted = attend(q[0, head, at], k[0, head // group], v[0, head // group], seen)
    for backend in ("default", *BACKENDS):
        def call(_, backend=backend):
            return sdpa(backend, q, k, v, is_causal=True, enable_gqa=group > 1)

        measure(call, lambda: error_of(call(0)[0, head, at], wanted), seconds,
                peer="SDPA", bench="prefill", case=key, variant=backend)


def main():
    torch.set_grad_enabled(False)
    run = {"decode": decode, "prefill": prefill}[sys.argv[1]]
    for key in sys.argv[3:]:
        run(float(sys.argv[2]), key)
        torch.cuda.empty_cache()


main()
