#!/usr/bin/env python3
"""Measures Sluice's kernels and their peers by turns in one run on one GPU, and leaves rows and a table in a folder.

    tests/cuda/peers/measure.py --out FOLDER [--parts attention,topk,prefill] [--rounds 2]

Runs from a clone (with build/sluice) or from where `./dev pack` was unpacked. What cannot be measured is said, and the rest goes on;
the exit status is 1 then. FOLDER gets run.json (card, driver, versions, command, what each step took), rows.jsonl (peers),
sluice.jsonl (reports of `sluice bench`), table.md and log.txt.
"""

import argparse
import datetime
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import build
import table
from cases import ATTENTION, PATTERNED, PATTERNS, PREFILL, TOPK

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]  # of a clone, or of a pack
PARTS = ("attention", "topk", "prefill", "patterns")
MOST_IN_USE = 2048  # MiB of the GPU's memory before anything has begun: a driver may keep some
CARD = "name,driver_version,temperature.gpu,power.draw,clocks.sm,clocks.mem,memory.used,utilization.gpu"


class Step(NamedTuple):
    name: str
    command: list
    limit: int  # seconds
    ours: bool = False


class Run:
    """The folder of results, and what has happened so far."""

    def __init__(self, out, about):
        self.out = out
        self.about = about
        self.problems = about["problems"]
        self.log = (out / "log.txt").open("w")
        for name in ("rows.jsonl", "sluice.jsonl", "table.md"):
            (out / name).unlink(missing_ok=True)

    def say(self, text):
        print(text, flush=True)
        print(text, file=self.log, flush=True)

    def problem(self, text):
        self.problems.append(text)
        self.say(f"PROBLEM: {text}")

    def save(self):
        (self.out / "run.json").write_text(json.dumps(self.about, indent=2) + "\n")

    def append(self, file, row):
        with (self.out / file).open("a") as rows:
            rows.write(json.dumps(row) + "\n")


def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().split("\n")[0] if done.returncode == 0 and done.stdout.strip() else None


def card():
    """What nvidia-smi says of the first GPU, as a dictionary."""
    line = first_line(["nvidia-smi", f"--query-gpu={CARD}", "--format=csv,noheader", "--id=0"])
    return dict(zip(CARD.split(","), (text.strip() for text in line.split(",")))) if line else {}


def in_use(of):
    """MiB of its memory; 0 where that is not known ("[N/A]")."""
    number = of["memory.used"].split()[0]
    return int(number) if number.isdecimal() else 0


def commit():
    packed = ROOT / "COMMIT"
    if packed.is_file():
        return packed.read_text().strip()
    return first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]) or "unknown"


def find_sluice(named):
    """The command that is the program: from a pack by its launcher, which finds libraries."""
    if named:
        return [named]
    if (ROOT / "run").is_file():
        return [str(ROOT / "run"), "sluice"]
    if (ROOT / "build" / "sluice").is_file():
        return [str(ROOT / "build" / "sluice")]
    sys.exit(f"measure.py: there is no program: neither {ROOT}/run of a pack nor {ROOT}/build/sluice; build one, or name it by --sluice")


def programs_for(part):
    """FlashInfer's programs that a part runs, and the cases of each."""
    if part == "topk":
        return {"flashinfer_topk": TOPK}
    if part != "attention":
        return {}
    groups = sorted({case.group for case in ATTENTION})
    xqa = {f"flashinfer_xqa_{group}": [case for case in ATTENTION if case.group == group] for group in groups}
    return {"flashinfer_decode": ATTENTION, **xqa}


def find_programs(run, arguments):
    """The folder of FlashInfer's programs, which are built where there are none; None without FlashInfer."""
    wanted = [name for part in arguments.parts for name in programs_for(part)]
    folder = folder_of_programs(run, arguments) if wanted else None
    if folder:
        run.about["flashinfer"] = json.loads((folder / "build.json").read_text())["flashinfer"]
        missing = [name for name in wanted if not (folder / name).is_file()]
        if missing:
            run.problem(f"not in {folder}, and so not measured: {', '.join(missing)}")
    return folder


def folder_of_programs(run, arguments):
    if arguments.programs:
        if not (arguments.programs / "build.json").is_file():
            sys.exit(f"measure.py: {arguments.programs} has no build.json: build.py writes it beside the programs")
        return arguments.programs
    for folder in (HERE / "programs", ROOT / "build" / "peers"):
        if not arguments.flashinfer and (folder / "build.json").is_file():
            return folder
    folder = pathlib.Path(tempfile.gettempdir()) / "sluice-peers"
    try:
        build.build(arguments.flashinfer, folder)
    except build.Missing as missing:
        run.problem(f"FlashInfer is not measured. {missing}")
        return None
    return folder


def keys(cases):
    return [case.key for case in cases]


def steps_of(part, sluice, programs, has_torch, seconds):
    """What belongs to a part, ours first."""
    def ours(bench):
        return Step(f"sluice {bench}", [*sluice, "bench", bench, "--device", "cuda", "--seconds", seconds], 240, ours=True)

    def torch(name, script, *words):
        return [Step(name, [sys.executable, str(HERE / script), *words], 400)] if has_torch else []

    built = {name: cases for name, cases in programs_for(part).items() if programs and (programs / name).is_file()}
    flashinfer = [Step(name, [str(programs / name), seconds, *keys(cases)], 180) for name, cases in built.items()]
    if part == "attention":
        return [ours("attention"), *flashinfer, *torch("SDPA decode", "torch_sdpa.py", "decode", seconds, *keys(ATTENTION))]
    if part == "topk":
        return [ours("topk"), *flashinfer, *torch("torch.topk", "torch_topk.py", seconds, *keys(TOPK))]
    if part == "prefill":
        return [ours("prefill"), *torch("SDPA prefill", "torch_sdpa.py", "prefill", seconds, *keys(PREFILL))]
    dense = keys(dict.fromkeys(case.dense for case in PATTERNED))
    return [ours("patterns"), *torch("FlexAttention", "torch_flex.py", seconds, *PATTERNS),
            *torch("SDPA prefill", "torch_sdpa.py", "prefill", seconds, *dense)]


def call(step, command):
    """Output, errors and exit status of a step, which is ended with all that it started once its time is over."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                          start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=step.limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            return output, errors, f"more than {step.limit} s"
    return output, errors, process.returncode


def rows_of(output):
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # a line that was cut when its time was over
                continue


def take(run, step, turn):
    """Runs a step and keeps what it says."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        json_file = pathlib.Path(folder) / "report.json"
        output, errors, status = call(step, [*step.command, "--json", str(json_file)] if step.ours else step.command)
        if step.ours and json_file.is_file() and json_file.stat().st_size > 0:
            run.append("sluice.jsonl", {"round": turn, "report": json.loads(json_file.read_text())})
    rows = [] if step.ours else list(rows_of(output))
    for row in rows:
        run.append("rows.jsonl", {"round": turn, **row})
    spent = round(time.monotonic() - began, 1)
    run.say(f"round {turn + 1}, {step.name}: {spent} s, exit {status}")
    print(output, errors, sep="\n", file=run.log, flush=True)
    run.about["steps"].append({"round": turn + 1, "name": step.name, "seconds": spent, "exit": status})
    if status != 0:
        last = " ".join((errors.strip() or output.strip() or "it said nothing").splitlines()[-2:])[:400]
        run.problem(f"{step.name} failed in round {turn + 1} (exit {status}): {last}")
    for row in rows:
        if row.get("error", 0) > table.MOST_ERROR:
            run.problem(f"{row['peer']} is wrong, and left out: {row['bench']} {row['case']}, error {row['error']:.2g}")


def look_for_gaps(run, parts):
    """What `sluice bench` should have measured correctly, and has not."""
    cases = {"attention": ATTENTION, "topk": TOPK, "prefill": PREFILL, "patterns": PATTERNED}
    results = table.Results(run.out)
    for case in dict.fromkeys(case for part in parts for case in cases[part]):
        if not results.ours(case):
            run.problem(f"sluice bench {case.bench} has no correct row \"{', '.join(case.ours)}\"")


def begin(arguments):
    arguments.out.mkdir(parents=True, exist_ok=True)
    about = {"date": datetime.date.today().isoformat(), "commit": commit(), "command": shlex.join(sys.argv),
             "card": card(), "torch": None, "flashinfer": None, "seconds": arguments.seconds, "rounds": arguments.rounds,
             "parts": arguments.parts, "problems": [], "steps": []}
    run = Run(arguments.out, about)
    if not about["card"]:
        run.problem("nvidia-smi does not answer: card and driver are unknown")
    elif in_use(about["card"]) > MOST_IN_USE:
        run.problem(f"another program has {about['card']['memory.used']} of the GPU's memory: times may not be what they could be")
    about["torch"] = first_line([sys.executable, "-c", "import torch; assert torch.cuda.is_available(); print(torch.__version__)"])
    if not about["torch"]:
        run.problem(f"PyTorch is not measured: {sys.executable} has no torch that sees a GPU; run measure.py by the Python that has")
    return run


def parse():
    parser = argparse.ArgumentParser(description="Measures Sluice's kernels and their peers by turns on one GPU.")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FOLDER", help="of the results")
    parser.add_argument("--parts", default="attention,topk,prefill", help=f"of {','.join(PARTS)}; all but the last by default")
    parser.add_argument("--rounds", type=int, default=2, help="times that each side is measured (2); patterns only once")
    parser.add_argument("--seconds", default="0.3", help="of replays for each case (0.3)")
    parser.add_argument("--sluice", metavar="PROGRAM", help="instead of the pack's or the clone's")
    parser.add_argument("--programs", type=pathlib.Path, metavar="FOLDER", help="of FlashInfer's programs, built by build.py")
    parser.add_argument("--flashinfer", metavar="FOLDER", help="to build them from; else PEERS_FLASHINFER, or the Python package")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts.split(",")
    unknown = [part for part in arguments.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}: there are {', '.join(PARTS)}")
    return arguments


def main():
    arguments = parse()
    sluice = find_sluice(arguments.sluice)
    run = begin(arguments)
    programs = find_programs(run, arguments)
    for turn in range(arguments.rounds):
        parts = [part for part in arguments.parts if part != "patterns" or turn == 0]
        for part in parts:
            steps = steps_of(part, sluice, programs, run.about["torch"], arguments.seconds)
            for step in steps if turn % 2 == 0 else reversed(steps):
                take(run, step, turn)
                run.save()
        (run.out / "table.md").write_text(table.text_of(run.out))
    run.about["card_after"] = card()
    look_for_gaps(run, arguments.parts)
    run.save()
    (run.out / "table.md").write_text(table.text_of(run.out))
    run.say((run.out / "table.md").read_text())
    if run.problems:
        sys.exit("measure.py: not all is measured:\n- " + "\n- ".join(run.problems))


if __name__ == "__main__":
    main()
