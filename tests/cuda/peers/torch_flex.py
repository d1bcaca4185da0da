"""FlexAttention, compiled, with a block mask for each static pattern: the prefill of a prompt, and the decode step of its last token.
Batch 1, 64 heads of 128, bf16: torch_flex.py SECONDS PATTERN...

Compilation takes long, so patterns compile side by side, each in a process of its own. These are timed one at a time: a process says
"ready", and waits for a line.
"""

import os
import subprocess
import sys

from cases import FLEX_HEADS, FLEX_TOKENS

DIM = 128
# Whether a query sees a key, by their positions; causal besides. What the numbers mean is in cases.py.
PATTERNS = {
    "dense causal": lambda q, k: k <= q,
    "streaming": lambda q, k: (k < 32) | (q - k < 1024),
    "sliding": lambda q, k: q - k < 1024,
    "block local": lambda q, k: q // 128 - k // 128 < 3,
    "strided": lambda q, k: (q - k < 512) | ((q - k) % 512 == 0),
    "fixed": lambda q, k: (q // 256 == k // 256) | (k % 256 == 255),
    "strided block local": lambda q, k: (q // 256 == k // 256) & (k % 4 == 0),
}


def work(seconds, name):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    from torch_timing import attend, copies_of, error_of, measure

    torch.set_grad_enabled(False)
    pattern = PATTERNS[name]
    tokens, last = FLEX_TOKENS, FLEX_TOKENS - 1
    flex = torch.compile(flex_attention, dynamic=False)

    def draw(rows):
        return torch.randn(1, FLEX_HEADS, rows, DIM, device="cuda", dtype=torch.bfloat16)

    def judge(out, q, at):
        """Of the first head and the last, the rows at some positions."""
        seen = (torch.arange(tokens, device="cuda")[None] <= at[:, None]) & pattern(at[:, None], torch.arange(tokens, device="cuda")[None])
        return max(error_of(out[0, head], attend(q[0, head], k[0, head], v[0, head], seen)) for head in (0, FLEX_HEADS - 1))

    whole = create_block_mask(lambda b, h, q, k: (k <= q) & pattern(q, k), None, None, tokens, tokens, device="cuda")
    one = create_block_mask(lambda b, h, q, k: pattern(q + last, k), None, None, 1, tokens, device="cuda")
    q, k, v, q_last = draw(tokens), draw(tokens), draw(tokens), draw(1)
    at = torch.tensor([0, 1, tokens // 3, tokens // 2 + 7, last], device="cuda")
    at_last = torch.tensor([last], device="cuda")
    variants = {"": {}, "TMA": {"USE_TMA": True}}

    def prefill(variant):
        return flex(q, k, v, block_mask=whole, kernel_options=variants[variant])

    for call in (*(lambda variant=variant: prefill(variant) for variant in variants), lambda: flex(q_last, k, v, block_mask=one)):
        try:
            call()
        except Exception as problem:  # is met again by `measure`, which reports it
            print(f"{name}: {problem}"[:2000], file=sys.stderr, flush=True)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print("ready", flush=True)
    sys.stdin.readline()

    for variant in variants:
        measure(lambda _: prefill(variant), lambda: judge(prefill(variant)[:, :, at], q[:, :, at], at), seconds,
                peer="FlexAttention", bench="flex prefill", case=name, variant=variant)
    seen = int(pattern(torch.tensor(last), torch.arange(tokens)).sum())
    kv = [(k, v)] + [(draw(tokens), draw(tokens)) for _ in range(copies_of(2 * 2 * FLEX_HEADS * seen * DIM) - 1)]
    measure(lambda number: flex(q_last, *kv[number % len(kv)], block_mask=one),
            lambda: judge(flex(q_last, k, v, block_mask=one), q_last, at_last), seconds,
            peer="FlexAttention", bench="flex step", case=name, variant="")


def main(seconds, names):
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2", "OMP_NUM_THREADS": "2"}
    workers = {name: subprocess.Popen([sys.executable, __file__, "--work", seconds, name], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, env=environment) for name in names}
    ready = []
    for name, worker in workers.items():
        for line in worker.stdout:
            if line.strip() == "ready":
                ready.append(name)
                break
            print(line, end="", flush=True)
        else:
            print(f"torch_flex.py: {name} could not be compiled", file=sys.stderr, flush=True)
    failed = len(names) - len(ready)
    for name in ready:
        worker = workers[name]
        rows, _ = worker.communicate("go\n")
        print(rows, end="", flush=True)
        failed += worker.returncode != 0
    sys.exit(1 if failed else 0)


if sys.argv[1] == "--work":
    work(float(sys.argv[2]), sys.argv[3])
else:
    main(sys.argv[1], sys.argv[2:])
