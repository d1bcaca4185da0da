#!/usr/bin/env python3
"""Says how far judges of flows agree with a real model, as rank correlations (Spearman).

    agreement.py --truth REAL.json ... --judge NAME=FILE.json ...

Files are what `sluice eval FLOW ... --json FILE` writes. The truth is the mean over tasks of accuracies and of what is kept of
texts. A judge is each task's `accuracy`, their mean and the `score` or, where it was asked for none, each figure of its traces.
Choices were made on flows of `vortex/`, some with those of `others/` and `fresh/` in view; those of `held/` had no part in any.
Intervals are 95%, by the bootstrap over flows. README.md has the commands.
"""
import argparse
import json
import random
from pathlib import Path

HERE = Path(__file__).resolve().parent
SETS = {name: {path.stem for path in (HERE / name).glob("*.lua")} for name in ("vortex", "others", "fresh", "held")}


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            result[order[place]] = (first + last) / 2
        first = last + 1
    return result


def spearman(left, right):
    a, b = ranks(left), ranks(right)
    mean = (len(a) - 1) / 2
    product = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    squares = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    return product / squares ** 0.5 if squares else 0.0


def cell(values, truth, flows):
    """The correlation over `flows`, with its interval."""
    if len(flows) < 3:
        return ""
    def over(chosen):
        return spearman([values[flow] for flow in chosen], [truth[flow] for flow in chosen])
    draws = random.Random(1)
    resampled = sorted(over(draws.choices(flows, k=len(flows))) for _ in range(400))
    return f"{over(flows):.2f} {resampled[9]:.2f}-{resampled[-10]:.2f}"


def flows_of(paths):
    for path in paths:
        yield from json.loads(Path(path).read_text())["flows"]


def figures_of(flow):
    """Of a flow, by name; more is better."""
    tasks = {f"{task['name']} {task['tokens']}": task["accuracy"] for task in flow["tasks"] if task.get("counted", True)}
    if tasks:
        means = {"mean": sum(tasks.values()) / len(tasks)}
        return tasks | means | ({} if flow.get("score") is None else {"score": flow["score"]})
    traces = flow["traces"]
    return {} if traces is None else {"mass": traces["mass"], "regret": -traces["regret"], "error": -traces["error"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", nargs="+", required=True)
    parser.add_argument("--judge", action="append", required=True, metavar="NAME=FILE[,FILE...]")
    arguments = parser.parse_args()
    real = {flow["name"]: figures_of(flow) for flow in flows_of(arguments.truth)}
    truth = {flow: own["mean"] for flow, own in real.items() if "mean" in own}
    print(f"{'judge':36} {''.join(f'{name:16}' for name in [*SETS, 'all'])}within 5 points of best, worst")
    for judge in arguments.judge:
        name, files = judge.split("=", 1)
        figures = {flow["name"]: figures_of(flow) for flow in flows_of(files.split(","))}
        figures = {flow: own for flow, own in figures.items() if own and flow in truth}
        for figure in next(iter(figures.values())):
            values = {flow: own[figure] for flow, own in figures.items() if figure in own}
            row = [cell(values, truth, sorted(of_set & set(values))) for of_set in (*SETS.values(), set(values))]
            best, worst = max(values.values()), min(values.values())
            near = [sum(abs(value - end) < 0.05 for value in values.values()) / len(values) for end in (best, worst)]
            print(f"{name + ', ' + figure:36} {' '.join(f'{text:15}' for text in row)} {near[0]:.0%}, {near[1]:.0%}")


if __name__ == "__main__":
    main()
