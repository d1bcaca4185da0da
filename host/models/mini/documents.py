"""Documents and questions in the mini dialect (docs/TASKS.md), made on the GPU.

A batch is built from groups. All documents of one group share a plan (how many statements of which kind, which
questions, where everything ends) and differ in words and places, so that a group is a few tensor operations.
"""
import math
import random
from dataclasses import dataclass, field

import numpy
import torch

from language import BOS, EOS, PAD

LINE = 8  # words of a statement
LONGEST_TRACE = 64
EVALUATED_TRACE = 16
# words of the question, words of the answer with <eos>; `run` depends on the number of steps
QUESTIONS = {"all": (3, 5), "each": (6, 28), "trace": (3, 6), "what": (7, 20)}
TASKS = {"needle_multivalue": "all", "needle_multiquery": "each", "variable_tracking": "trace", "salad": "what",
         "trace": "run"}


@dataclass
class Plan:
    """What one group of documents holds."""
    task: str
    facts: int = 0
    multis: int = 0                 # keys with four values each
    chains: int = 0                 # variables that are tracked over three hops
    traces: int = 0                 # traces that a question may ask for, of `steps` rules each
    steps: int = 0
    others: tuple = (0, 0)          # further traces and their steps
    topics: int = 0
    attributes: int = 0
    segment: int = 0                # lines of a salad segment; 0 scatters its lines over the document
    pattern: str = "ABAB"           # order of the salad's segments
    in_order: bool = True           # a chain's statements stand in the order of the chain
    hay: float = 1.0                # share of the other lines that are statements, not filler words
    alike: float = 0.5              # of these, share of the kinds that are asked for, with other keys
    questions: dict = field(default_factory=dict)  # kind: how many

    def question_size(self, kind):
        return (3, LINE * self.steps + 1) if kind == "run" else QUESTIONS[kind]

    def question_words(self):
        return sum(count * sum(self.question_size(kind)) for kind, count in self.questions.items())


@dataclass
class Group:
    tokens: torch.Tensor            # [documents, length]
    task: str
    answers: list                   # (column of the last question word, answer words), one for each question
    start: int                      # column of the first question's last word: everything before it is prompt


class Writer:
    """Lines of one group under construction: hay that statements are written over."""

    def __init__(self, words, documents, lines, device):
        self.words, self.documents, self.device = words, documents, device
        first, count = words.fillers
        self.lines = torch.randint(first, first + count, (documents, lines, LINE), device=device)
        self.lines[:, :, -1] = words.id["."]
        self.used = torch.zeros(documents, lines, dtype=torch.bool, device=device)
        self._slots = torch.rand(documents, lines, device=device).argsort(1)
        first, count = words.keys
        self._keys = torch.rand(documents, count, device=device).argsort(1) + first
        self._used_slots = self._used_keys = 0

    def slots(self, count):
        """[documents, count] lines that nothing else uses, in random order."""
        self._used_slots += count
        assert self._used_slots <= self.lines.shape[1], "more statements than lines"
        return self._slots[:, self._used_slots - count:self._used_slots]

    def keys(self, count):
        """[documents, count] keys that nothing else uses."""
        self._used_keys += count
        assert self._used_keys <= self._keys.shape[1], "more keys than there are"
        return self._keys[:, self._used_keys - count:self._used_keys]

    def values(self, *shape):
        first, count = self.words.values
        return torch.randint(first, first + count, (self.documents, *shape), device=self.device)

    def write(self, slots, statement):
        """slots [documents, n]; statement: eight of word, tensor [documents, n], or None for the filler there."""
        for column, word in enumerate(statement):
            if word is not None:
                value = self.words.id[word] if isinstance(word, str) else word
                self.lines[:, :, column].scatter_(1, slots, value)
        self.used.scatter_(1, slots, True)

    def some(self, count, chosen):
        """[documents, chosen] different indices below count."""
        return torch.rand(self.documents, count, device=self.device).argsort(1)[:, :chosen]

    def block(self, *columns):
        """Questions with their answers: columns are words or tensors [documents, n]; gives [documents, n, columns]."""
        shape = next(column.shape for column in columns if not isinstance(column, str))
        return torch.stack([torch.full(shape, self.words.id[column], device=self.device) if isinstance(column, str)
                            else column for column in columns], -1)


def choose(table, index):
    """table [documents, n, ...] at index [documents, m]: [documents, m, ...]."""
    return table[torch.arange(len(table), device=table.device)[:, None], index]


def write_facts(writer, plan):
    keys, values = writer.keys(plan.facts), writer.values(plan.facts, 4)
    writer.write(writer.slots(plan.facts), ["key", keys, "=", *values.unbind(-1), ";"])

    def each(count):
        which = torch.rand(writer.documents, count, plan.facts, device=writer.device).topk(4).indices  # [d, count, 4]
        asked = choose(keys, which.flatten(1)).view(which.shape).unbind(-1)
        found = choose(values, which.flatten(1)).view(*which.shape, 4).unbind(2)
        answer = []
        for key, value in zip(asked, found):
            answer += [key, "=", *value.unbind(-1), ";"]
        return writer.block("each", *asked, ":", *answer[:-1], "<eos>")

    return {"each": each}


def write_multis(writer, plan):
    keys = writer.keys(plan.multis)
    first, count = writer.words.values
    values = torch.rand(writer.documents, plan.multis, count, device=writer.device).topk(4).indices + first
    slots = writer.slots(4 * plan.multis).view(writer.documents, plan.multis, 4).sort(-1).values
    for order in range(4):
        writer.write(slots[..., order], ["also", keys, "=", values[..., order], None, None, None, ";"])

    def everything(number):
        which = writer.some(plan.multis, number)
        return writer.block("all", choose(keys, which), "=", *choose(values, which).unbind(-1), "<eos>")

    return {"all": everything}


def write_chains(writer, plan):
    keys = writer.keys(4 * plan.chains).view(writer.documents, plan.chains, 4)
    values = writer.values(plan.chains, 2)
    slots = writer.slots(4 * plan.chains).view(writer.documents, plan.chains, 4)
    if plan.in_order:
        slots = slots.sort(-1).values
    writer.write(slots[..., 0], ["var", keys[..., 0], "=", *values.unbind(-1), None, None, ";"])
    for hop in range(1, 4):
        writer.write(slots[..., hop], ["var", keys[..., hop], "<-", keys[..., hop - 1], None, None, None, ";"])

    def track(count):
        which = writer.some(plan.chains, count)
        a, b, c, d = choose(keys, which).unbind(-1)
        return writer.block("trace", d, "=", c, b, a, *choose(values, which).unbind(-1), "<eos>")

    return {"trace": track}


def write_traces(writer, traces, steps):
    keys = writer.keys(traces * steps).view(writer.documents, traces, steps)
    values = writer.values(traces, steps)
    here = torch.arange(steps, device=writer.device)
    earlier = (torch.rand(keys.shape, device=writer.device) * here).long()
    itself = (torch.rand(keys.shape, device=writer.device) < 0.125) | (here == 0)
    recalled = torch.where(itself, here, earlier)  # [documents, traces, steps]: the step whose c is written again
    source = recalled
    for _ in range(math.ceil(math.log2(steps + 1))):
        source = source.gather(2, source)  # ends at a step that recalls itself
    following = torch.cat([keys[:, :, 1:], torch.full_like(keys[:, :, :1], writer.words.id["end"])], 2)
    recall = keys.gather(2, recalled)
    writer.write(writer.slots(traces * steps), [
        "rule", keys.flatten(1), "to", following.flatten(1), values.flatten(1), "from", recall.flatten(1), ";"])

    def run(count):
        which = writer.some(traces, count)
        key, value, after, memory, c = (choose(table, which) for table in (
            keys, values, following, recall, values.gather(2, source)))
        lines = writer.block("at", key, value, memory, c, "to", after, ";").flatten(2)  # [documents, count, 8 steps]
        return torch.cat([writer.block("run", key[:, :, 0], ":"), lines, torch.full_like(lines[..., :1], EOS)], -1)

    return {"run": run}


def salad_places(plan, lines, chance):
    """Headers [(line, topic)] and the lines [topics][attributes] of the `in` statements."""
    segments = lines // plan.segment
    topic_of = {"ABAB": lambda s: s % plan.topics, "AABB": lambda s: s // 2 % plan.topics,
                "AAABBB": lambda s: s * plan.topics // segments}[plan.pattern]
    headers, free = [], [[] for _ in range(plan.topics)]
    for segment in range(segments):
        begin = segment * plan.segment
        headers.append((begin, topic_of(segment)))
        free[topic_of(segment)] += range(begin + 1, begin + plan.segment)
    return headers, [chance.sample(places, plan.attributes) if len(places) >= plan.attributes else None
                     for places in free]


def write_salad(writer, plan, chance):
    topics, keys = writer.keys(plan.topics), writer.keys(plan.attributes)
    writer.topics = topics
    values = writer.values(plan.topics, plan.attributes, 2)
    if plan.segment:
        headers, places = salad_places(plan, writer.lines.shape[1], chance)
        at, topic = to_device(numpy.array(headers).T, writer.device)
        header_slots = at.expand(writer.documents, -1)
        header_topics = topics[:, topic]
        slots = to_device(numpy.array(places).flatten(), writer.device).expand(writer.documents, -1)
    else:
        header_slots, header_topics = writer.slots(plan.topics), topics
        slots = writer.slots(plan.topics * plan.attributes)
    writer.write(header_slots, ["topic", header_topics] + [None] * 5 + [";"])
    topic_of = topics.repeat_interleave(plan.attributes, 1)
    key_of = keys.repeat(1, plan.topics)
    values = values.flatten(1, 2)
    writer.write(slots, ["in", topic_of, key_of, "=", *values.unbind(-1), None, ";"])

    def what(count):
        topic = torch.randint(plan.topics, (writer.documents, count), device=writer.device)
        which = torch.rand(writer.documents, count, plan.attributes, device=writer.device).topk(4).indices
        asked = choose(keys, which.flatten(1)).view(which.shape).unbind(-1)
        places = (topic[..., None] * plan.attributes + which).flatten(1)
        found = choose(values, places).view(*which.shape, 2).unbind(2)
        answer = []
        for key, value in zip(asked, found):
            answer += [key, "=", *value.unbind(-1), ";"]
        return writer.block("what", choose(topics, topic), *asked, ":", *answer[:-1], "<eos>")

    return {"what": what}


def write_hay(writer, plan):
    """Statements in the place of filler words, each of which is half of one that is asked for: of a kind that the document asks
    for, with keys that it does not, or of another kind, with keys that it does."""
    documents, lines = shape = writer.lines.shape[:2]
    used = writer._used_keys

    def draw(keys):
        return keys.gather(1, torch.randint(keys.shape[1], shape, device=writer.device))

    def values(*more):
        return writer.values(lines, *more)

    def statements(key):
        return {"facts": [["key", key(), "=", *values(4).unbind(-1), ";"]],
                "multis": [["also", key(), "=", values(), None, None, None, ";"]],
                "chains": [["var", key(), "=", *values(2).unbind(-1), None, None, ";"],
                           ["var", key(), "<-", key(), None, None, None, ";"]],
                "traces": [["rule", key(), "to", key(), values(), "from", key(), ";"]],
                "topics": [["in", key(), key(), "=", *values(2).unbind(-1), None, ";"]]}

    asked = statements(lambda: draw(writer._keys[:, :used]))
    other = statements(lambda: draw(writer._keys[:, used:]))
    if plan.topics:  # a topic that is asked for, and an attribute that is not
        other["topics"][0][1] = draw(writer.topics)
    alike = [statement for kind, same in other.items() if getattr(plan, kind) for statement in same]
    unlike = [statement for kind, same in asked.items() if not getattr(plan, kind) for statement in same]
    free = ~writer.used & (torch.rand(shape, device=writer.device) < plan.hay)
    is_alike = torch.rand(shape, device=writer.device) < (plan.alike if unlike else 1.0)
    for chosen, kinds in ((is_alike, alike), (~is_alike, unlike)):
        if not kinds:
            continue
        which = torch.randint(len(kinds), shape, device=writer.device)
        for index, statement in enumerate(kinds):
            here = free & chosen & (which == index)
            for column, word in enumerate(statement):
                if word is not None:
                    value = torch.full(shape, writer.words.id[word], device=writer.device) if isinstance(word, str) else word
                    writer.lines[:, :, column] = torch.where(here, value, writer.lines[:, :, column])


def to_device(array, device):
    """A small host array on the GPU without waiting for the GPU."""
    return torch.from_numpy(numpy.ascontiguousarray(array)).pin_memory().to(device, non_blocking=True)


def build(words, plan, documents, tokens, chance=random, length=None, device="cuda"):
    """A group of `documents` of `tokens` each; text and questions fill the first `length`, the rest is padding."""
    asked = plan.question_words()
    offset = chance.randrange(16)
    lines = ((length or tokens) - 1 - offset - asked) // LINE
    writer = Writer(words, documents, lines, device)
    asking = {}
    if plan.facts:
        asking |= write_facts(writer, plan)
    if plan.multis:
        asking |= write_multis(writer, plan)
    if plan.chains:
        asking |= write_chains(writer, plan)
    if plan.traces:
        asking |= write_traces(writer, plan.traces, plan.steps)
    if plan.others[0]:
        write_traces(writer, *plan.others)
    if plan.topics:
        asking |= write_salad(writer, plan, chance)
    write_hay(writer, plan)

    first, count = words.fillers
    begin = torch.randint(first, first + count, (documents, offset + 1), device=device)
    begin[:, 0] = BOS
    body = torch.cat([begin, writer.lines.flatten(1)], 1)
    # question blocks of all kinds, in one random order for the group
    blocks, text, answers, order = [], [], [], []
    position = 0
    for kind, number in plan.questions.items():
        text.append(asking[kind](number).flatten(1))
        question, answer = plan.question_size(kind)
        for _ in range(number):
            blocks.append((range(position, position + question + answer), question, answer))
            position += question + answer
    chance.shuffle(blocks)
    column = body.shape[1]
    for places, question, answer in blocks:
        order += places
        answers.append((column + question - 1, answer))
        column += question + answer
    text = torch.cat(text, 1)
    if len(blocks) > 1:
        text = text[:, to_device(numpy.array(order), device)]
    padding = torch.full((documents, tokens - column), PAD, device=device)
    return Group(torch.cat([body, text, padding], 1), plan.task, answers, answers[0][0])


def between(chance, low, high):
    """A whole number, as likely between 4 and 8 as between 40 and 80."""
    return low if high <= low else min(high, int(math.exp(chance.uniform(math.log(low), math.log(high + 1)))))


def fit_salad(plan, lines):
    """As many topics and attributes as the segments have lines for; a question asks for four attributes."""
    segments = max(2, lines // plan.segment)
    plan.topics = min(plan.topics, segments // (2 if plan.pattern == "AABB" else 1))
    while True:
        free = [0] * plan.topics
        for segment in range(lines // plan.segment):
            topic = {"ABAB": segment, "AABB": segment // 2}.get(plan.pattern, segment * plan.topics // segments)
            free[topic % plan.topics] += plan.segment - 1
        if min(free) >= 4 or plan.topics == 1:
            break
        plan.topics -= 1
    plan.attributes = min(plan.attributes, min(free))


def training_plan(chance, length):
    """A plan for training documents of `length` tokens, and whether only one question is asked."""
    task = chance.choices(list(TASKS) + ["mixture"], [16, 18, 18, 18, 18, 12])[0]
    single = chance.random() < 0.15
    room = max(64, min(512, length // 4))  # tokens for questions
    if task == "trace":
        room = min(LINE * LONGEST_TRACE + 4, length // 2)
    lines = (length - 16 - room) // LINE
    plan = Plan(task, in_order=chance.random() < 0.5,
                hay=0.0 if chance.random() < 0.15 else chance.uniform(0.3, 1.0),
                alike=0.0 if chance.random() < 0.5 else chance.uniform(0.0, 0.6))

    def count(kind, most):
        return 1 if single else max(1, min(most, room // sum(plan.question_size(kind))))

    if task == "needle_multiquery":
        plan.facts = between(chance, 4, min(lines, 300))
        plan.questions = {"each": count("each", 16)}
    elif task == "needle_multivalue":
        plan.multis = between(chance, 1, min(lines // 4, 60))
        plan.questions = {"all": count("all", plan.multis)}
    elif task == "variable_tracking":
        plan.chains = between(chance, 1, min(lines // 4, 90))
        plan.questions = {"trace": count("trace", plan.chains)}
    elif task == "salad":
        plan.segment, plan.pattern = min(chance.randint(4, 12), lines // 4), chance.choice(["ABAB", "AABB", "AAABBB"])
        plan.topics, plan.attributes = chance.randint(2, 12), between(chance, 4, 40)
        fit_salad(plan, lines)
        plan.questions = {"what": count("what", plan.topics * plan.attributes)}
    elif task == "trace":
        longest = min(LONGEST_TRACE, (room - 4) // LINE, lines)
        plan.steps = longest if chance.random() < 0.6 else chance.randint(2, longest)
        plan.traces = between(chance, 1, min(lines, 250) // plan.steps)
        rest = min(lines, 250) - plan.traces * plan.steps
        if rest >= 2 and chance.random() < 0.5:
            steps = chance.randint(2, min(rest, LONGEST_TRACE))
            plan.others = (chance.randint(1, rest // steps), steps)
        plan.questions = {"run": min(plan.traces, room // (LINE * plan.steps + 4))}
    else:
        fill_mixture(plan, chance, lines, room)
    return plan


def fill_mixture(plan, chance, lines, room):
    """Some of every kind, while lines last."""
    kinds = ["all", "trace", "what", "run"]
    chance.shuffle(kinds)
    kinds = ["each"] + kinds
    for kind in kinds:
        part = int(lines * chance.uniform(0.2, 0.6))
        used = 0
        if kind == "each":
            used = plan.facts = min(max(part, 4), 100)
        elif kind == "all" and part >= 4:
            plan.multis = min(part // 4, 20)
            used = 4 * plan.multis
        elif kind == "trace" and part >= 4:
            plan.chains = min(part // 4, 20)
            used = 4 * plan.chains
        elif kind == "what" and part >= 10:
            plan.topics = chance.randint(2, 6)
            plan.attributes = min(part // plan.topics - 1, 20)
            used = plan.topics * (plan.attributes + 1) if plan.attributes >= 4 else 0
            plan.topics = plan.topics if used else 0
        elif kind == "run" and part >= 4:
            plan.steps = chance.randint(2, min(part, 12))
            plan.traces = min(part // plan.steps, max(1, 60 // plan.steps))
            used = plan.steps * plan.traces
        lines -= used
    most = {"each": plan.facts // 4 * 4, "all": plan.multis, "trace": plan.chains,
            "what": plan.topics * plan.attributes, "run": plan.traces}
    present = [kind for kind in kinds if most[kind]]
    left = room
    for kind in present:
        size = sum(plan.question_size(kind))
        number = min(most[kind], max(1, room // len(present) // size), left // size)
        if number:
            plan.questions[kind] = number
            left -= number * size


def evaluation_plan(task, length):
    """The plan that a task is evaluated with: one question, a few statements that it may ask for, and hay that shares its first
    word or its keys with them in more pages than a flow may select."""
    plan = Plan(task, questions={TASKS[task]: 1}, alike=0.4)
    lines = (length - 64) // LINE
    if task == "needle_multiquery":
        plan.facts = 12
    elif task == "needle_multivalue":
        plan.multis = min(lines // 4, 8)
    elif task == "variable_tracking":
        plan.chains, plan.in_order = min(lines // 4, 5), False
    elif task == "salad":
        plan.segment, plan.topics, plan.attributes = 6, 4, 8
        fit_salad(plan, lines)
    elif task == "trace":
        plan.steps, plan.traces = min(EVALUATED_TRACE, lines // 2), min(3, max(1, lines // (2 * EVALUATED_TRACE)))
    return plan
