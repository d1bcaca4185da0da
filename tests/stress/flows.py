#!/usr/bin/env python3
"""Sends random flows through the program as their authors would: commands, the server's check, and a worker's verdict.

    ninja -C build sluice stress_graphs && tests/stress/flows.py --count 10000 --judged 1000

`stress_graphs --scripts` draws graphs that ask for all that a flow may ask for and writes them as Lua. Each of them goes through
`sluice check`, `sluice plan` for both devices (no GPU is needed), and POST /v1/check of a server; the first `--judged` of them are
handed in and judged by the suite `verify`. Exit 0 if

- every command ends with 0 (it is in order) or 1 (it is refused, with a reason), within two seconds of its own processor time;
- every answer of the server is 2xx, within two seconds (of the clock: beside the commands);
- every flow that was handed in gets a verdict within ten minutes, at the first try: `passed`, or `rejected_static`, and that not for
  want of memory.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_SECONDS = 2.0
MOST_PATIENCE = 600.0


class Findings:
    def __init__(self):
        self.problems, self.counts, self.slowest = 0, collections.Counter(), {}

    def problem(self, text):
        self.problems += 1
        print("PROBLEM:", text, flush=True)

    def took(self, what, seconds, which):
        if seconds > self.slowest.get(what, (0, ""))[0]:
            self.slowest[what] = (seconds, which)
        if seconds > MOST_SECONDS:
            self.problem(f"{which}: {what} took {seconds:.2f} s")


def run(findings, program, flow, *arguments):
    """A command: its exit code, and seconds of processor time that it took."""
    child = subprocess.Popen([program, *arguments, str(flow)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = code = os.waitstatus_to_exitcode(status)
    what = " ".join(arguments)
    findings.counts[f"{what}: exit {code}"] += 1
    findings.took(what, usage.ru_utime + usage.ru_stime, flow.name)
    if code not in (0, 1) or (code == 1 and not errors.startswith(b"error: ")):
        findings.problem(f"{flow.name}: {what}: exit {code}, {errors[-300:]!r}")


class Server:
    def __init__(self, program, folder, workers):
        token = subprocess.run([program, "agent", "add", "ada", "--data", folder, "--quota", "1000000"], check=True, capture_output=True,
                               text=True).stdout.strip()
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        self.process = subprocess.Popen([program, "serve", "--data", folder, "--suite", "verify", "--port", "0", "--quiet",
                                         "--workers", str(workers)],
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r"http://127.0.0.1:(\d+)", self.process.stdout.readline()).group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, method, path, body=None):
        """(status, answer, seconds). Who asks too often waits as long as the server says."""
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            begun = time.monotonic()
            connection.request(method, path, None if body is None else json.dumps(body), self.headers)
            answer = connection.getresponse()
            text = answer.read()
            seconds = time.monotonic() - begun
            connection.close()
            if answer.status != 429:
                return answer.status, json.loads(text), seconds
            time.sleep(float(answer.headers["Retry-After"]))


def check(findings, server, flow):
    status, body, seconds = server.ask("POST", "/v1/check", {"script": flow.read_text()})
    findings.counts[f"POST /v1/check: {status}, {'ok' if body.get('ok') else 'refused'}"] += 1
    findings.took("POST /v1/check", seconds, flow.name)
    if status != 200:
        findings.problem(f"{flow.name}: /v1/check: {status} {body}")


def hand_in(findings, server, flow):
    status, body, _ = server.ask("POST", "/v1/submissions", {"name": flow.stem, "script": flow.read_text()})
    if status not in (200, 201):
        findings.problem(f"{flow.name}: handed in: {status} {body}")
    return body.get("id")


def await_verdict(findings, server, flow, number):
    patience = time.monotonic() + MOST_PATIENCE
    while True:
        status, body, _ = server.ask("GET", f"/v1/submissions/{number}")
        if status != 200:
            return findings.problem(f"{flow.name}: submission {number}: {status} {body}")
        if time.monotonic() > patience:
            return findings.problem(f"{flow.name}: no verdict")
        if body["status"] in ("queued", "running"):
            time.sleep(0.1)
            continue
        evaluation = body["evaluation"]
        message = evaluation["message"]
        findings.counts[f"verdict: {body['status']}"] += 1
        if body["status"] not in ("passed", "rejected_static") or "memory" in message or evaluation["attempt"] > 1:
            findings.problem(f"{flow.name}: {body['status']}: {message}, attempt {evaluation['attempt']}")
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--judged", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2, help="commands at once, and workers that judge")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    program = str(options.build / "sluice")
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="sluice-flows-") as folder:
        scripts = pathlib.Path(folder, "scripts")
        subprocess.run([str(options.build / "tests/stress_graphs"), "--first", str(options.first), "--count", str(options.count),
                        "--scripts", str(scripts)], check=True)
        flows = sorted(scripts.iterdir(), key=lambda flow: int(flow.stem))
        with Server(program, os.path.join(folder, "data"), options.jobs) as server, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:

            def look(flow):
                run(findings, program, flow, "check")
                run(findings, program, flow, "plan", "--device", "cpu")
                run(findings, program, flow, "plan", "--device", "cuda")
                check(findings, server, flow)

            for done, _ in enumerate(pool.map(look, flows), 1):
                if done % 1000 == 0:
                    print(f"{done} flows, {findings.problems} problems", flush=True)
            judged = flows[:options.judged]
            numbers = [hand_in(findings, server, flow) for flow in judged]
            for done, (flow, number) in enumerate(zip(judged, numbers), 1):
                if number is not None:
                    await_verdict(findings, server, flow, number)
                if done % 100 == 0:
                    print(f"{done} verdicts, {findings.problems} problems", flush=True)
    for what, count in sorted(findings.counts.items()):
        print(f"{count:7} {what}")
    for what, (seconds, which) in sorted(findings.slowest.items()):
        print(f"{seconds:7.2f} s at most: {what} ({which})")
    print("FAILED" if findings.problems else "passed")
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
