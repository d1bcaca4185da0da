#!/usr/bin/env python3
"""A Markdown table of what measure.py left in a folder: tests/cuda/peers/table.py FOLDER

A time is the median of the rounds; of a peer, that of the best of its variants. The ratio in brackets is the peer's time over ours:
above 1, Sluice is faster.
"""

import json
import pathlib
import statistics
import sys

from cases import ATTENTION, PATTERNED, PATTERNS, PREFILL, TOPK

MOST_ERROR = 2e-2  # of a row that counts: bf16 leaves less than half of it


class Results:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.run = json.loads((folder / "run.json").read_text())
        self.rows = lines_of(folder / "rows.jsonl")
        self.reports = [line["report"] for line in lines_of(folder / "sluice.jsonl")]

    def ours(self, case):
        """Times of the rounds, in microseconds; those of wrong results do not count."""
        name, shape = case.ours
        return [row["time_us"] for report in self.reports if report["name"] == case.bench for row in report["rows"]
                if row["name"] == name and row["shape"] == shape and row["correct"]]

    def peer(self, peer, bench, key):
        """The same of a peer's best variant."""
        variants = {}
        for row in self.rows:
            if (row["peer"], row["bench"], row["case"]) == (peer, bench, key) and "us" in row and row["error"] <= MOST_ERROR:
                variants.setdefault(row["variant"], []).append(row["us"])
        return min(variants.values(), key=statistics.median, default=[])

    def copies(self):
        """Copy bandwidths that `sluice bench` measured, TB/s."""
        return [report["copy_tb_per_s"] for report in self.reports if report["copy_tb_per_s"]]


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def time_cell(times):
    return f"{statistics.median(times):.1f}" if times else "–"


def peer_cell(times, ours):
    if not times:
        return "–"
    ratio = f" ({statistics.median(times) / statistics.median(ours):.2f}x)" if ours else ""
    return time_cell(times) + ratio


def table(head, lines):
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines]) + "\n"


def section(results, title, heads, cases, peers, label):
    """A table of cases, a column for each of the peers; empty where nothing of it was measured."""
    lines = []
    for case in cases:
        ours = results.ours(case)
        theirs = [results.peer(peer, case.bench, case.key) for peer in peers]
        if ours or any(theirs):
            lines.append([*label(case), time_cell(ours), *(peer_cell(times, ours) for times in theirs)])
    return f"### {title}\n\n{table([*heads, 'Sluice', *peers], lines)}\n" if lines else ""


def attention(results):
    return section(results, "Decode attention over pages of 16, head size 128, bf16, µs",
                   ["batch × KV heads (group)", "tokens", "pages"], ATTENTION,
                   ["FlashInfer CUDA cores", "FlashInfer tensor cores", "FlashInfer XQA", "SDPA"],
                   lambda c: [f"{c.batch} × {c.kv_heads} ({c.group})", str(c.tokens), str(c.pages or "all")])


def topk(results):
    return section(results, "Exact top-k of float32, µs", ["rows", "length", "k"], TOPK, ["FlashInfer", "torch.topk"],
                   lambda c: [str(c.rows), str(c.length), str(c.k)])


def prefill(results):
    return section(results, "Causal prefill of one prompt, bf16, µs", ["tokens", "KV heads (group)", "head size"], PREFILL, ["SDPA"],
                   lambda c: [str(c.tokens), f"{c.kv_heads} ({c.group})", str(c.dim)])


def patterns(results):
    """SDPA's time is that of the prompt without a pattern."""
    lines = []
    for prompt, step in zip(PATTERNED[::2], PATTERNED[1::2]):
        whole, one = results.ours(prompt), results.ours(step)
        theirs = [results.peer("FlexAttention", "patterns", case.key) for case in (prompt, step)]
        dense = results.peer("SDPA", "prefill", prompt.dense.key)
        if whole or one or any(theirs):
            lines.append([str(prompt.tokens), prompt.pattern, PATTERNS[prompt.pattern], time_cell(whole), peer_cell(theirs[0], whole),
                          peer_cell(dense, whole), time_cell(one), peer_cell(theirs[1], one)])
    heads = ["tokens", "pattern", "a token sees", "Sluice, prompt", "FlexAttention", "dense SDPA", "Sluice, step", "FlexAttention"]
    return f"### Static patterns, batch 1, 64 heads of 128, bf16, µs\n\n{table(heads, lines)}\n" if lines else ""


def spread(results):
    """The largest difference between rounds of what is in the tables, of its median."""
    series = [results.ours(case) for case in (*ATTENTION, *TOPK, *PREFILL, *PATTERNED)]
    for row in results.rows:
        series.append(results.peer(row["peer"], row["bench"], row["case"]))
    return max(((max(times) - min(times)) / statistics.median(times) for times in series if len(times) > 1), default=0)


def heading(results):
    run = results.run
    card = run["card"]
    versions = [f"FlashInfer {run['flashinfer']}" if run["flashinfer"] else "", f"PyTorch {run['torch']}" if run["torch"] else ""]
    text = (f"One {card.get('name', 'unknown card')}, driver {card.get('driver_version', 'unknown')}, {run['date']}, "
            f"commit {run['commit']}.\n{', '.join(filter(None, versions)) or 'No peer was there'}.\nCommand: `{run['command']}`\n")
    copies = results.copies()
    if copies:
        text += f"\nCopy bandwidth in this run: {min(copies):.2f} to {max(copies):.2f} TB/s, read and written."
    if run["rounds"] > 1:
        text += f"\nRounds differ by at most {100 * spread(results):.1f}%."
    text += "\nRatios are a peer's time over ours.\n\n"
    if run["problems"]:
        text += "**Not all is measured:**\n\n" + "".join(f"- {problem}\n" for problem in run["problems"]) + "\n"
    return text


def text_of(folder):
    results = Results(folder)
    return heading(results) + "".join(part(results) for part in (attention, topk, prefill, patterns) if part.__name__ in results.run["parts"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: table.py FOLDER (that measure.py wrote)")
    try:
        print(text_of(sys.argv[1]), end="")
    except FileNotFoundError as missing:
        sys.exit(f"table.py: {missing.filename} is not there: FOLDER is one that measure.py wrote")
