"""Timing of PyTorch's calls as agents/bench/cuda/timing.cpp has it: the same graphs, as many calls, as many replays."""

import json
import statistics

import torch

CALLS = 20  # of a graph
CACHES = 256 << 20  # bytes: more than a second-level cache holds


def copies_of(size, least=1):
    """How many inputs of so many bytes calls rotate through, so that nothing stays in the cache."""
    return max(least, min(CALLS, -(-CACHES // size)))


def time_calls(call, seconds):
    """Median time in microseconds of one `call(number)` in graphs of 20 that are replayed for about `seconds`."""
    warm_ups, least = 2, 12
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # first calls may set things up, which captured ones must not
        for number in range(3):
            call(number)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(CALLS):
            call(number)
    times, spent = [], 0.0
    while len(times) < least or spent < seconds:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        milliseconds = start.elapsed_time(stop)
        spent += milliseconds / 1e3
        times.append(milliseconds * 1e3 / CALLS)
    return statistics.median(times[warm_ups:])


def error_of(got, wanted):
    """|got - wanted| / |wanted| of the worst row; infinite where a number is none."""
    worst = ((got.double() - wanted.double()).norm(dim=-1) / wanted.double().norm(dim=-1)).max().item()
    return worst if worst == worst else 1e9


def attend(q, k, v, allowed=None):
    """The judge, in float64: softmax(q k / sqrt(dim)) v of one head, where `allowed` [queries, keys] says so."""
    scores = q.double() @ k.double().T / q.shape[-1] ** 0.5
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return torch.softmax(scores, -1) @ v.double()


def report(**row):
    """A row for measure.py."""
    print(json.dumps(row), flush=True)


def measure(call, judge, seconds, **row):
    """Times and judges one way to compute a case. What cannot be done at all becomes a row that says why."""
    try:
        error = judge()
        us = time_calls(call, seconds)
    except Exception as problem:  # of any kind: a backend that refuses a shape, no memory, a kernel that fails
        report(**row, note=(str(problem).splitlines() or [type(problem).__name__])[0][:200])
        torch.cuda.synchronize()
    else:
        report(**row, us=us, error=error)
