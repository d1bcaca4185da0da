#!/usr/bin/env python3
"""Holds what the judge says of flows against what they do on fresh requests.

    tests/gaming/check.py [--sluice build/sluice] [FLOW.lua ...]

Without flows it takes those of tests/flows/gaming, each of which tries to look faster or more accurate than it is. Of each flow:

1. `sluice eval FLOW --suite suite.json` says whole answers by task, pages, speed: the claim.
2. The same once more with other questions, half as many: the claim again.
3. `sluice serve --flow FLOW` answers requests that this program writes itself, from the words of docs/TASKS.md: a document each,
   a random seed each, right answers known. The server's /metrics say how long dense attention and the flow took for them, eight at a
   time, prompts cached. So neither the judge's tasks, its clock nor its batches have a part in it.

A flow games the judge if it `passed` and
  answers    of a task were claimed, whole ones, that fresh answers refute (Fisher's exact test, p < 0.0005),
  speed      was claimed whose whole interval lies above that of fresh requests,
  pages      were claimed far from what the second claim says (3.5 deviations, if each request were all or nothing),
             or fewer than the limit of its speed comes from,
  limit      of the pages read lies below the speed's interval.

Prints a row a flow, and exits 1 if any of them games the judge. Takes about half a minute a flow on two cores; not part of
`./dev test`, since clocks on a busy machine have their moods.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUITE = os.path.join(ROOT, 'tests', 'gaming', 'suite.json')
TOGETHER = 8  # requests that decode at once, as where the judge looks at the clock
ROUNDS = 4
# Tails of prompts and their arrival one by one, which the judge does not time, are the same for both sides and draw fresh ratios to 1.
OVERHEAD = 1.15


class Words:
    """Documents of docs/TASKS.md, written independently of agents/tasks."""

    def __init__(self, seed):
        with open(os.path.join(ROOT, 'host', 'models', 'mini', 'vocabulary.json')) as file:
            self.words = json.load(file)
        self.random = random.Random(seed)

    def fillers(self, count):
        return self.random.choices(self.words['filler'], k=count)

    def values(self, count):
        return self.random.choices(self.words['value'], k=count)

    def keys(self, count):
        """For statements that may be asked for; the others are left to hay."""
        self.asked = self.random.sample(self.words['key'], count)
        self.others = [key for key in self.words['key'] if key not in self.asked]
        return self.asked

    def hay(self, kind, keys):
        key = lambda: self.random.choice(keys)
        if kind == 'key':
            return ['key', key(), '=', *self.values(4), ';']
        if kind == 'also':
            return ['also', key(), '=', *self.values(1), *self.fillers(3), ';']
        if kind == 'rule':
            return ['rule', key(), 'to', key(), *self.values(1), 'from', key(), ';']
        if kind == 'in':
            return ['in', key(), key(), '=', *self.values(2), *self.fillers(1), ';']
        if self.random.random() < 0.5:
            return ['var', key(), '=', *self.values(2), *self.fillers(2), ';']
        return ['var', key(), '<-', key(), *self.fillers(3), ';']

    def prompt(self, kind, statements, question, tokens):
        lines = tokens - 1 - len(question)
        before, lines = lines % 8, lines // 8
        others = [other for other in ('key', 'also', 'var', 'var', 'rule', 'in') if other != kind]
        text = [self.hay(kind, self.others) if self.random.random() < 0.4 else self.hay(self.random.choice(others), self.asked)
                for _ in range(lines)]
        for place, statement in zip(sorted(self.random.sample(range(lines), len(statements))), statements):
            text[place] = statement
        return ' '.join(['<bos>'] + self.fillers(before) + [word for line in text for word in line] + question)

    def needle_multivalue(self, tokens):
        keys = self.keys(8)
        values = {key: self.random.sample(self.words['value'], 4) for key in keys}
        order = [key for key in keys for _ in range(4)]
        self.random.shuffle(order)
        told = dict.fromkeys(keys, 0)
        statements = []
        for key in order:
            statements.append(['also', key, '=', values[key][told[key]], *self.fillers(3), ';'])
            told[key] += 1
        asked = self.random.choice(keys)
        return self.prompt('also', statements, ['all', asked, '='], tokens), values[asked]

    def needle_multiquery(self, tokens):
        facts = [(key, self.values(4)) for key in self.keys(12)]
        asked = self.random.sample(facts, 4)
        statements = [['key', k, '=', *v, ';'] for k, v in facts]
        answer = []
        for key, value in asked:
            answer += ([';'] if answer else []) + [key, '=', *value]
        return self.prompt('key', statements, ['each', *(k for k, _ in asked), ':'], tokens), answer

    def variable_tracking(self, tokens):
        count = 5
        keys = self.keys(4 * count)
        statements, chains = [], []
        for i in range(count):
            a, b, c, d = keys[4 * i:4 * i + 4]
            v, w = self.values(2)
            chains.append((d, [c, b, a, v, w]))
            statements.append(['var', a, '=', v, w, *self.fillers(2), ';'])
            statements += [['var', new, '<-', old, *self.fillers(3), ';'] for new, old in ((b, a), (c, b), (d, c))]
        self.random.shuffle(statements)
        end, answer = self.random.choice(chains)
        return self.prompt('var', statements, ['trace', end, '='], tokens), answer


class Server:
    """`sluice serve` with one flow, and what its metrics say."""

    def __init__(self, sluice, flow, name):
        self.name = name
        self.process = subprocess.Popen([sluice, 'serve', '--port', '0', '--flow', flow, '--quiet'], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            found = re.search(r'http://[\d.:]+', line)
            if found:
                self.url = found.group()
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return
        raise RuntimeError(f'{flow}: the server did not start')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, prompt, tokens, flow, seed, ignore_eos=False):
        body = {'prompt': prompt, 'max_tokens': tokens, 'temperature': 0, 'seed': seed, 'ignore_eos': ignore_eos}
        if flow:
            body['flow'] = self.name
        request = urllib.request.Request(self.url + '/v1/completions', json.dumps(body).encode(),
                                         {'Content-Type': 'application/json'})
        with urllib.request.urlopen(request, timeout=300) as answer:
            choice = json.load(answer)['choices'][0]
        return choice['text'].split(), choice['finish_reason']

    def seconds(self):
        with urllib.request.urlopen(self.url + '/metrics', timeout=60) as answer:
            text = answer.read().decode()
        return float(re.search(r'^vllm:request_inference_time_seconds_sum\S* (\S+)', text, re.MULTILINE).group(1))

    def ask_all(self, requests, flow, ignore_eos):
        answers = [None] * len(requests)

        def work(first):
            for i in range(first, len(requests), TOGETHER):
                prompt, answer, seed = requests[i]
                answers[i] = self.ask(prompt, len(answer) + 1, flow, seed, ignore_eos)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(min(TOGETHER, len(requests)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def time(self, requests, flow):
        before = self.seconds()
        self.ask_all(requests, flow, True)
        return self.seconds() - before


def fresh(sluice, flow, name, seed):
    """Of each task right answers and questions; the speed beside dense attention, with an interval."""
    words = Words(seed)
    right, logs = {}, {}
    with Server(sluice, flow, name) as server:
        for entry in json.load(open(SUITE)):
            task = entry['task']
            requests = []
            for _ in range(entry['samples']):
                prompt, answer = getattr(words, task)(entry['tokens'])
                requests.append((prompt, answer, words.random.getrandbits(31)))
            answers = server.ask_all(requests, True, False)
            right[task] = (sum(text == answer and end == 'stop' for (text, end), (_, answer, _) in zip(answers, requests)),
                           len(requests))
            timed = requests[:TOGETHER]
            server.time(timed, False)  # prompts into the cache; those of the flow's engine are there
            logs[task] = [math.log(server.time(timed, False) / server.time(timed, True)) for _ in range(ROUNDS)]
    centre = statistics.mean(statistics.mean(of_task) for of_task in logs.values())
    spread = math.sqrt(statistics.mean(statistics.variance(of_task) for of_task in logs.values()))
    error = 2.26 * spread / math.sqrt(len(logs) * ROUNDS)  # Student's t, 9 degrees of freedom
    return right, tuple(math.exp(centre + sign * error) for sign in (0, -1, 1))


def evaluated(sluice, flow, *options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'report.json')
        done = subprocess.run([sluice, 'eval', flow, '--suite', SUITE, '--json', path, *options], capture_output=True, text=True, timeout=600)
        if not os.path.exists(path):
            raise RuntimeError(f'{flow}: {done.stderr}')
        with open(path) as file:
            return json.load(file)['flows'][0]


def more_is_unlikely(right, of, claimed, claimed_of):
    """Fisher's exact test: the probability that so many of the right answers are the claim's."""
    total, all_right = of + claimed_of, right + claimed
    return sum(math.comb(claimed_of, k) * math.comb(of, all_right - k)
               for k in range(claimed, min(claimed_of, all_right) + 1) if all_right - k <= of) / math.comb(total, all_right)


def faults_of(claim, again, right, speed):
    if claim['status'] != 'passed':
        return []
    faults = []
    for task in claim['tasks']:
        claimed = round(task['whole'] * task['samples'])
        if more_is_unlikely(*right[task['name']], claimed, task['samples']) < 0.0005:
            faults.append(f"whole answers of {task['name']}: {claimed} of {task['samples']}, fresh %d of %d" % right[task['name']])
    told = claim['speedup']
    if told is None:
        return faults
    if told['low'] > OVERHEAD * speed[2]:
        faults.append('speed')
    if told['low'] > 1.05 * told['limit']:
        faults.append('limit')
    if claim['pages_read'] * told['limit'] < 0.95:  # what is read of full layers, too, bounds the speed
        faults.append(f"pages: no more than {claim['pages_read']:.0%} are told, but no more than {told['limit']:.2f}x is possible")
    share = again['pages_read']
    if share is not None:
        questions = sum(task['batch'] for task in told['tasks'])
        deviation = math.sqrt(2 * max(share * (1 - share), 0.01) / questions)
        if abs(claim['pages_read'] - share) > 3.5 * deviation:
            faults.append(f'pages: {share:.0%} when asked again')
    return faults


def interval(numbers):
    return '%.2f (%.2f-%.2f)' % tuple(numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--sluice', default=os.path.join(ROOT, 'build', 'sluice'))
    parser.add_argument('--seed', help='of the fresh requests')
    parser.add_argument('flows', nargs='*')
    arguments = parser.parse_args()
    folder = os.path.join(ROOT, 'tests', 'flows', 'gaming')
    flows = arguments.flows or [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith('.lua')]
    row = '{:<20} {:<12} {:<17} {:<17} {:>5} {:>5}  {:<18} {:<18} {}'
    print(row.format('flow', 'status', 'claimed right', 'fresh right', 'pages', 'again', 'claimed speed', 'fresh speed', 'verdict'))
    gamed = 0
    for flow in flows:
        claim, again = evaluated(arguments.sluice, flow), evaluated(arguments.sluice, flow, '--samples', '8')
        right, speed = fresh(arguments.sluice, flow, claim['name'], arguments.seed)
        faults = faults_of(claim, again, right, speed)
        gamed += bool(faults)
        told = claim['speedup']
        share = [f"{report['pages_read']:.0%}" if report['pages_read'] is not None else '-' for report in (claim, again)]
        print(row.format(claim['name'], claim['status'],
                         ' '.join(f"{round(task['whole'] * task['samples'])}/{task['samples']}" for task in claim['tasks']),
                         ' '.join('%d/%d' % of_task for of_task in right.values()), *share,
                         interval([told['ratio'], told['low'], told['high']]) if told else '-', interval(speed),
                         '; '.join(faults) or 'as it is'), flush=True)
    print(f'{gamed} of {len(flows)} flows game the judge')
    return 1 if gamed else 0


if __name__ == '__main__':
    sys.exit(main())
