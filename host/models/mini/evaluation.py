"""Accuracy of the mini model: the share of answers that greedy decoding gets right, word by word and with <eos>.

The true answer stands in the document while the model predicts each word of it. All predictions are right exactly if
greedy decoding would have written the whole answer, so this is not an approximation.
"""
import random

import torch

from documents import TASKS, build, evaluation_plan
from model import Sparse, after_attention, before_attention, flash_repeated

AT_ONCE = 131072  # tokens
# name: selector, page, share of the pages, layers that stay dense
SELECTIONS = {
    "quest page 8, 1/8": ("quest", 8, 1 / 8, 0), "quest page 8, 1/16": ("quest", 8, 1 / 16, 0),
    "quest page 16, 1/8": ("quest", 16, 1 / 8, 0), "quest page 8, 1/8, two full layers": ("quest", 8, 1 / 8, 2),
    "exact page 16, 1/8": ("exact", 16, 1 / 8, 0), "block page 16, 1/8": ("block", 16, 1 / 8, 0),
    "random page 16, 1/8": ("random", 16, 1 / 8, 0)}


@torch.no_grad()
def right_answers(model, group, selection):
    """[documents] of bool."""
    tokens, (column, size) = group.tokens, group.answers[0]
    expected = tokens[:, column + 1:column + 1 + size]
    sparse = None
    if selection:
        selector, page, share, full_layers = selection
        sparse = Sparse(selector, page, share, [column] * len(tokens), full_layers)

    hidden = model(tokens, sparse).view(*tokens.shape, -1)[:, column:column + size]
    return (model.logits(hidden).argmax(-1) == expected).all(1)


def accuracy(model, words, task, length, samples, selection=None, seed=0):
    chance = random.Random(seed)
    before, after, attention = model.before, model.after, model.attention
    model.before, model.after, model.attention = before_attention, after_attention, flash_repeated
    right = 0
    at_once = max(1, min(samples, AT_ONCE // length))
    with torch.random.fork_rng(devices=[torch.cuda.current_device()]):
        torch.manual_seed(seed)
        for _ in range(samples // at_once):
            group = build(words, evaluation_plan(task, length), at_once, length, chance)
            right += right_answers(model, group, selection).sum().item()
    model.before, model.after, model.attention = before, after, attention
    return right / (samples // at_once * at_once)


def table(model, words, columns, samples):
    """columns: {heading: (length, selection)}; prints and returns {heading: {task: accuracy}}."""
    result = {heading: {} for heading in columns}
    print(f"{'':19}" + " ".join(f"{heading:>18}" for heading in columns), flush=True)
    for task in TASKS:
        for heading, (length, selection) in columns.items():
            count = samples if length <= 8192 else samples // 2
            result[heading][task] = accuracy(model, words, task, length, count, selection)
        print(f"{task:19}" + " ".join(f"{result[heading][task]:18.3f}" for heading in columns), flush=True)
    print(f"{'mean':19}" + " ".join(f"{sum(row.values()) / len(row):18.3f}" for row in result.values()), flush=True)
    return result


def full_report(model, words, samples=128, sparse_samples=64):
    dense = table(model, words, {f"dense {length}": (length, None) for length in (1024, 4096, 8192, 16384)}, samples)
    sparse = table(model, words, {name: (8192, selection) for name, selection in SELECTIONS.items()}, sparse_samples)
    return dense | sparse
