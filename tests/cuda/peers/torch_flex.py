"""FlexAttention, compiled, with a block mask for each static pattern: the prefill of a prompt, and the decode step of its last token.
Batch 1, 64 heads of 128, bf16: torch_flex.py SECONDS PATTERN...

Compilation takes long, so patterns compile side by side, each in a process of its own. These are timed one at a time: a process says
"ready", and waits for a line. It keeps what it needs for the longest prompt, of which shorter ones are the beginning.
"""

import os
import subprocess
import sys

from cases import PATTERN_HEADS, PATTERNED

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


class Length:
    """A pattern at one length, compiled."""

    variants = {"": {}, "TMA": {"USE_TMA": True}}

    def __init__(self, name, tokens, flex, tensors):
        import torch
        from torch.nn.attention.flex_attention import create_block_mask

        self.name, self.tokens, self.flex, self.pattern = name, tokens, flex, PATTERNS[name]
        self.q, self.k, self.v = (tensor[:, :, :tokens].contiguous() for tensor in tensors)
        self.q_last = self.q[:, :, -1:].contiguous()
        last = tokens - 1
        self.whole = create_block_mask(lambda b, h, q, k: (k <= q) & self.pattern(q, k), None, None, tokens, tokens, device="cuda")
        self.one = create_block_mask(lambda b, h, q, k: self.pattern(q + last, k), None, None, 1, tokens, device="cuda")
        self.at = torch.tensor([0, 1, tokens // 3, tokens // 2 + 7, last], device="cuda")
        for call in (*(lambda variant=variant: self.prefill(variant) for variant in self.variants), self.step):
            try:
                call()
            except Exception as problem:  # is met again by `measure`, which reports it
                print(f"{name}: {problem}"[:2000], file=sys.stderr, flush=True)

    def prefill(self, variant):
        return self.flex(self.q, self.k, self.v, block_mask=self.whole, kernel_options=self.variants[variant])

    def step(self, k=None, v=None):
        return self.flex(self.q_last, self.k if k is None else k, self.v if v is None else v, block_mask=self.one)

    def judge(self, out, q, at):
        """Of the first head and the last, the rows at some positions."""
        import torch

        from torch_timing import attend, error_of

        keys = torch.arange(self.tokens, device="cuda")[None]
        seen = (keys <= at[:, None]) & self.pattern(at[:, None], keys)
        return max(error_of(out[0, head], attend(q[0, head], self.k[0, head], self.v[0, head], seen))
                   for head in (0, PATTERN_HEADS - 1))

    def measure(self, seconds):
        import torch

        from torch_timing import copies_of, measure

        for variant in self.variants:
            measure(lambda _: self.prefill(variant), lambda: self.judge(self.prefill(variant)[:, :, self.at], self.q[:, :, self.at], self.at),
                    seconds, peer="FlexAttention", bench="patterns", case=f"{self.name},{self.tokens},prompt", variant=variant)
        seen = int(self.pattern(torch.tensor(self.tokens - 1), torch.arange(self.tokens)).sum())
        copies = copies_of(2 * 2 * PATTERN_HEADS * seen * DIM)
        kv = [(self.k, self.v)] + [(torch.randn_like(self.k), torch.randn_like(self.v)) for _ in range(copies - 1)]
        measure(lambda number: self.step(*kv[number % len(kv)]), lambda: self.judge(self.step(), self.q_last, self.at[-1:]),
                seconds, peer="FlexAttention", bench="patterns", case=f"{self.name},{self.tokens},step", variant="")


def work(seconds, name):
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    torch.set_grad_enabled(False)
    torch._dynamo.config.recompile_limit = 64  # lengths and variants are more than the default allows
    flex = torch.compile(flex_attention, dynamic=False)
    lengths = sorted({case.tokens for case in PATTERNED})
    tensors = [torch.randn(1, PATTERN_HEADS, lengths[-1], DIM, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    ready = [Length(name, tokens, flex, tensors) for tokens in lengths]
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print("ready", flush=True)
    sys.stdin.readline()
    for length in ready:
        length.measure(seconds)
        torch.cuda.empty_cache()


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
