"""torch.topk of float32: torch_topk.py SECONDS CASE..."""

import sys

import torch

from torch_timing import copies_of, measure


def topk(seconds, key):
    rows, length, k = map(int, key.split(","))
    scores = torch.randn(rows, length, device="cuda")
    data = [scores.clone() for _ in range(copies_of(scores.nbytes, least=2))]
    best = scores.sort(dim=-1, descending=True).values[:, :k]
    for is_sorted in (False, True):
        def call(number, is_sorted=is_sorted):
            return torch.topk(data[number % len(data)], k, sorted=is_sorted)

        def error():
            """The share of rows whose values are not the best."""
            values = call(0).values.sort(dim=-1, descending=True).values
            return (values != best).any(dim=-1).double().mean().item()

        measure(call, error, seconds, peer="torch.topk", bench="topk", case=key, variant="sorted" if is_sorted else "unsorted")


def main():
    torch.set_grad_enabled(False)
    for key in sys.argv[2:]:
        topk(float(sys.argv[1]), key)
        torch.cuda.empty_cache()


main()
