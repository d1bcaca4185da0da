#!/usr/bin/env python3
"""Kills a server again and again beside hostile flows, dear reads, guesses of tokens and completions, and looks at what is left.

    tests/stress/kills.py --kills 200            (about half an hour)

Starts `sluice serve --data` in a folder of its own, lets callers do their worst for some seconds, ends it by SIGKILL, and starts
it again. In the last life nobody is killed: the load ends, and the server's memory is looked at. Exit 0 if all of this holds:

- every submission that was acknowledged is there after each kill, with the script that was sent;
- every answer is 2xx, 4xx, or 503 with a Retry-After;
- /health answers within a second as long as the server lives;
- `sluice fsck` finds the folder clean at the end;
- the memory of the server is back to within 100 MiB of what it was when it started.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
MOST_HEALTH_SECONDS = 1.0
MOST_GROWTH = 100 * MIB

# Flows that take all of something: memory of a worker, time of a check, operations of a step, and lines of a diff.
HOSTILE = {
    "memory": """local flow = sluice.flow { name = "memory", page = 16 }
function flow.index(q, c)
  local x = sluice.fill(1, {"page", {"sub", 65536}}) * sluice.position()
  for i = 1, 20 do x = x * 1.5 end
  return sluice.topk(x:max("sub"), {k = 1000})
end
return flow
""",
    "tree": """local flow = sluice.flow { name = "tree", page = 16 }
function flow.cache(c) c.m = c.k:mean("token") end
function flow.index(q, c)
  local a, b = sluice.topk(q:mean("head"):dot(c.m), {k = 1}), sluice.window{last = 1}
  for i = 1, 200 do a, b = b, sluice.union(a, b) end
  return b
end
return flow
""",
    "slow": "local t, m = {}, (1 << 19) - 1 for i = 1, 1 << 18 do t[i * m] = true end t[-1] = true\n",
    "endless": "while true do end\n",
    "lines": "\n".join("ab"[i * i % 2] for i in range(30000)) + "\n",
    "other_lines": "\n".join("ba"[i * i // 3 % 2] for i in range(30000)) + "\n",
}


def memory_of(pid):
    """Resident bytes, without pages of files."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("no RssAnon")


class Server:
    """One life of the server after the other, at one port."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.process, self.port = None, 0
        self.alive = threading.Event()

    def run(self, *arguments):
        return subprocess.run([self.program, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    def start(self):
        self.process = subprocess.Popen(
            [self.program, "serve", "--data", self.folder, "--suite", "verify", "--port", str(self.port), "--quiet"],
            stdout=subprocess.PIPE, stderr=self.log(), text=True)
        line = self.process.stdout.readline()
        if " at http://" not in line:
            raise RuntimeError(f"the server has not started: {line!r}")
        self.port = int(line.rsplit(":", 1)[1])
        self.alive.set()

    def log(self):
        return open(pathlib.Path(self.folder).parent / "serve.log", "a")

    def kill(self):
        self.alive.clear()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.alive.clear()
        self.process.terminate()
        self.process.wait()

    def ask(self, method, path, body=None, token=None, timeout=60):
        """(status, body, headers); raises OSError or HTTPException if the connection breaks."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            if token:
                headers["Authorization"] = f"Bearer {token}"
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()


class Stress:
    def __init__(self, server, tokens, seed):
        self.server, self.tokens = server, tokens
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.acknowledged = {}  # script by id
        self.problems = []
        self.answers = {}  # count by status
        self.worst_health = 0.0
        self.loaded = threading.Event()
        self.ended = False
        self.number = 0

    def problem(self, text):
        with self.lock:
            self.problems.append(text)
        print("PROBLEM:", text, flush=True)

    def ask(self, method, path, body=None, token=None):
        """None if the server was killed meanwhile."""
        life = self.server.process.pid
        try:
            status, text, headers = self.server.ask(method, path, body, token)
        except (OSError, http.client.HTTPException) as error:
            if self.server.alive.is_set() and self.server.process.pid == life and self.server.process.poll() is not None:
                self.problem(f"the server ended by itself at {method} {path}: {error}")
            return None
        with self.lock:
            self.answers[status] = self.answers.get(status, 0) + 1
        if status >= 500 and not (status == 503 and headers.get("Retry-After")):
            self.problem(f"{method} {path}: {status} {text[:200]!r}")
        return status, text

    def submit(self, token, name, script):
        answer = self.ask("POST", "/v1/submissions", {"name": name, "script": script}, token)
        if answer and answer[0] in (200, 201):
            with self.lock:
                self.acknowledged[json.loads(answer[1])["id"]] = script

    def id(self):
        with self.lock:
            return self.random.choice(list(self.acknowledged) or [1])

    def next_number(self):
        with self.lock:
            self.number += 1
            return self.number

    # What callers do, again and again.

    def hand_in(self):
        name = self.random.choice(["quest", *HOSTILE])
        script = HOSTILE.get(name) or (ROOT / f"scripting/flows/{name}.lua").read_text()
        self.submit(self.tokens[0], name, f"{script}-- {self.next_number()}\n")

    def check(self):
        self.ask("POST", "/v1/check", {"script": self.random.choice(list(HOSTILE.values()))}, self.tokens[0])

    def check_quickly(self):
        self.ask("POST", "/v1/check", {"script": "x"}, self.tokens[1])

    def diff(self):
        self.ask("GET", f"/v1/submissions/{self.id()}/diff?from={self.id()}&context=all")

    def read(self):
        path = self.random.choice([f"submissions/{self.id()}", f"submissions/{self.id()}/lineage", f"submissions/{self.id()}/evaluations",
                                   f"submissions/{self.id()}/artifacts/report.json", "submissions?text=flow&limit=200",
                                   "submissions?limit=200", "leaderboard?limit=1000", "history", "front", "agents", "operators"])
        self.ask("GET", f"/v1/{path}")

    def call_tool(self):
        name, arguments = self.random.choice([("diff", {"id": self.id(), "from": self.id()}), ("lineage", {"id": self.id()}),
                                              ("get_submission", {"id": self.id()}), ("operators", {}), ("leaderboard", {})])
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        self.ask("POST", "/mcp", message)

    def guess(self):
        self.ask("GET", "/v1/me", token="sluice_1_" + f"{self.random.getrandbits(256):064x}")

    def prove(self):
        answer = self.ask("GET", "/v1/me", token=self.tokens[1])
        if answer and answer[0] != 200:
            self.problem(f"a right token gets {answer[0]}")

    def complete(self):
        self.ask("POST", "/v1/completions", {"prompt": [1, 4, 27, 13], "max_tokens": 8, "ignore_eos": True}, self.tokens[1])

    def health(self):
        life, begun = self.server.process.pid, time.monotonic()
        answer = self.ask("GET", "/health")
        seconds = time.monotonic() - begun
        if answer and self.server.process.pid == life:
            with self.lock:
                self.worst_health = max(self.worst_health, seconds)
            if seconds > MOST_HEALTH_SECONDS:
                self.problem(f"/health took {seconds:.2f} s")

    def repeat(self, action, pause):
        while not self.ended:
            if action != self.health and not self.loaded.wait(0.1):
                continue
            if not self.server.alive.wait(0.1):
                continue
            action()
            time.sleep(pause)

    def begin(self):
        crowd = [(self.health, 0.1, 1), (self.hand_in, 0.2, 2), (self.check, 0.05, 8), (self.check_quickly, 0.2, 1),
                 (self.diff, 0, 24), (self.read, 0.02, 8), (self.call_tool, 0.02, 8), (self.guess, 0, 4), (self.prove, 0.2, 1),
                 (self.complete, 0.2, 1)]
        threads = []
        for action, pause, count in crowd:
            for _ in range(count):
                threads.append(threading.Thread(target=self.repeat, args=(action, pause), daemon=True))
                threads[-1].start()
        return threads

    def look(self):
        """That everything that was acknowledged is there."""
        with self.lock:
            acknowledged = dict(self.acknowledged)
        for number, script in acknowledged.items():
            status, text, headers = self.server.ask("GET", f"/v1/submissions/{number}")
            while status == 429:
                time.sleep(float(headers["Retry-After"]))
                status, text, headers = self.server.ask("GET", f"/v1/submissions/{number}")
            if status != 200:
                self.problem(f"submission {number} is lost: {status}")
            elif json.loads(text)["script"] != script:
                self.problem(f"submission {number} has another script")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--program", default=str(ROOT / "build/sluice"))
    parser.add_argument("--seed", type=int, default=random.getrandbits(32))
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    draw = random.Random(options.seed)

    with tempfile.TemporaryDirectory(prefix="sluice-stress-") as parent:
        server = Server(options.program, os.path.join(parent, "data"))
        tokens = [server.run("agent", "add", name, "--data", server.folder, "--quota", "1000000") for name in ("ada", "bob")]
        stress = Stress(server, tokens, options.seed)
        server.start()
        for name in HOSTILE:
            stress.submit(tokens[0], name, HOSTILE[name])
        threads = stress.begin()
        stress.loaded.set()
        for kill in range(options.kills):
            time.sleep(draw.uniform(0.5, 5))
            server.kill()
            time.sleep(draw.uniform(0, 0.3))
            server.start()
            if kill % 10 == 9:
                print(f"{kill + 1} kills, {len(stress.acknowledged)} submissions, /health at most {stress.worst_health:.3f} s",
                      flush=True)
        # The last life: what it takes must be given back. A completion first, so that its engine is no growth.
        stress.loaded.clear()
        time.sleep(2)
        server.kill()
        server.start()
        stress.complete()
        time.sleep(2)
        before = memory_of(server.process.pid)
        stress.loaded.set()
        peak = 0
        for _ in range(200):
            time.sleep(0.1)
            peak = max(peak, memory_of(server.process.pid))
        stress.loaded.clear()
        stress.ended = True
        for thread in threads:
            thread.join()
        stress.look()
        time.sleep(2)
        after = memory_of(server.process.pid)
        if after - before > MOST_GROWTH:
            stress.problem(f"the server keeps {(after - before) // MIB} MiB")
        server.stop()
        fsck = subprocess.run([server.program, "fsck", "--data", server.folder], capture_output=True, text=True)
        if fsck.returncode != 0:
            stress.problem(f"fsck: {fsck.stdout}{fsck.stderr}")
        print(f"{options.kills} kills, {len(stress.acknowledged)} submissions acknowledged, answers by status "
              f"{dict(sorted(stress.answers.items()))}, /health at most {stress.worst_health:.3f} s, memory {before // MIB} MiB, at most "
              f"{peak // MIB}, then {after // MIB}, fsck: {fsck.stdout.strip()}")
        if stress.problems and os.path.exists(os.path.join(parent, "serve.log")):
            print(pathlib.Path(parent, "serve.log").read_text()[-3000:])
    print("FAILED" if stress.problems else "passed")
    return 1 if stress.problems else 0


if __name__ == "__main__":
    sys.exit(main())
