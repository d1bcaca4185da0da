"""Trains the mini model on synthetic documents (docs/TASKS.md) and writes a Hugging Face directory.

    python3 train.py --out DIR --minutes 25

The curriculum goes from short to long documents with a constant number of tokens a step, by wall-clock time: a faster
machine makes more steps. A run that was cut off goes on with the same command (its checkpoint lies in DIR); a finished
model is trained further with --start model.safetensors. Needs PyTorch with a CUDA device, safetensors and numpy.
"""
import argparse
import json
import random
import time
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from documents import TASKS, build, to_device, training_plan
from evaluation import accuracy, full_report
from language import VOCABULARY, Words, write_files
from model import Mini, fastest_attention
from optimizer import Muon

# (until this part of the time, {document length: share}, tokens a step)
CURRICULUM = [
    (0.12, {256: 1.0}, 65536),
    (0.22, {512: 1.0}, 65536),
    (0.36, {1024: 1.0}, 131072),
    (0.50, {2048: 1.0}, 131072),
    (0.65, {4096: 1.0}, 131072),
    (0.82, {8192: 0.9, 2048: 0.1}, 131072),
    (1.01, {8192: 0.8, 16384: 0.2}, 131072),
]
GROUPS = 8  # of documents in a step
MATRIX_RATE, OTHER_RATE, WARM_UP, DECAY_FROM = 0.02, 3e-3, 100, 0.55


def learning_rate(step, done):
    """Relative: warm up, hold, then fall linearly to almost nothing."""
    return min(1.0, step / WARM_UP) * min(1.0, max(0.02, (1 - done) / (1 - DECAY_FROM)))


class Batch:
    """Groups of documents one upon the other, and where their answers are."""

    def __init__(self, words, length, tokens, chance):
        documents = tokens // length
        groups = min(GROUPS, documents)
        self.groups, row, places, weights, self.parts = [], 0, [], [], []
        for index in range(groups):
            count = documents // groups
            shorter = length >= 512 and chance.random() < 0.2
            size = chance.randint(length * 6 // 10, length) if shorter else length
            plan = training_plan(chance, size)
            group = build(words, plan, count, length, chance, length=size)
            columns = numpy.concatenate([numpy.arange(column, column + answer) for column, answer in group.answers])
            places.append(((row + numpy.arange(count))[:, None] * length + columns).flatten())
            # documents with a single short answer would hardly count otherwise
            weights.append(numpy.full(places[-1].size, min(8.0, max(1.0, 40 / columns.size)), numpy.float32))
            self.parts.append((plan.task, places[-1].size))
            self.groups.append(group.tokens)
            row += count
        self.tokens = torch.cat(self.groups)
        self.places = to_device(numpy.concatenate(places), self.tokens.device)
        self.weights = to_device(numpy.concatenate(weights), self.tokens.device)
        self.targets = self.tokens.flatten()[self.places + 1]

    def loss(self, model):
        """The weighted mean over the answers' words, and which of these the model got right."""
        logits = model.logits(model(self.tokens)[self.places])
        each = F.cross_entropy(logits, self.targets, reduction="none")
        return (each * self.weights).sum() / self.weights.sum(), logits.detach().argmax(-1) == self.targets


def export(model, folder):
    """The Hugging Face directory: bfloat16 weights and all other files."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {f"model.{name}": p.detach().bfloat16().contiguous().cpu() for name, p in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_files(folder)


def load(model, path):
    weights = {name.removeprefix("model."): tensor.float() for name, tensor in load_file(path).items()}
    model.load_state_dict(weights)


class Training:
    def __init__(self, arguments):
        torch.manual_seed(arguments.seed)
        torch.set_float32_matmul_precision("high")
        self.chance = random.Random(arguments.seed)
        self.words = Words()
        self.model = Mini(VOCABULARY).cuda()
        if arguments.start:
            load(self.model, arguments.start)
        self.model.compile()
        parameters = dict(self.model.named_parameters())
        matrices = [p for name, p in parameters.items() if p.dim() == 2 and not name.startswith("embed")]
        others = [p for name, p in parameters.items() if p.dim() == 1 or name.startswith("embed")]
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
        self.folder, self.seconds = Path(arguments.out), arguments.minutes * 60
        self.step, self.spent, self.begin, self.rate = 0, 0.0, arguments.begin, arguments.rate
        self.attentions = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / "checkpoint.pt").exists():
            self.resume()

    def save(self):
        state = {"model": self.model.state_dict(), "adam": self.adam.state_dict(), "step": self.step,
                 "muon": [memory for _, memory in self.muon.groups], "spent": self.spent}
        torch.save(state, self.folder / "checkpoint.tmp")
        (self.folder / "checkpoint.tmp").rename(self.folder / "checkpoint.pt")
        export(self.model, self.folder)

    def resume(self):
        state = torch.load(self.folder / "checkpoint.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.adam.load_state_dict(state["adam"])
        for (_, memory), saved in zip(self.muon.groups, state["muon"]):
            memory.copy_(saved)
        self.step, self.spent = state["step"], state["spent"]
        print(f"goes on at step {self.step} after {self.spent:.0f} s", flush=True)

    def done(self):
        """The part of the curriculum that is behind us; --begin skips the first part of it."""
        return self.begin + (1 - self.begin) * self.spent / self.seconds

    def train_step(self, lengths, tokens):
        length = self.chance.choices(list(lengths), list(lengths.values()))[0]
        batch = Batch(self.words, length, tokens, self.chance)
        if (length, tokens) not in self.attentions:
            self.attentions[length, tokens] = fastest_attention(tokens // length, length)
        self.model.attention = self.attentions[length, tokens]
        loss, right = batch.loss(self.model)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        rate = self.rate * learning_rate(self.step, self.done())
        for group in self.adam.param_groups:
            group["lr"] = OTHER_RATE * rate
        self.adam.step()
        self.muon.step(MATRIX_RATE * rate)
        self.model.zero_grad(set_to_none=True)
        self.step += 1
        return batch, length, loss, right

    def report(self, batch, length, loss, right):
        words = {}
        for (task, _), part in zip(batch.parts, right.split([size for _, size in batch.parts])):
            words.setdefault(task, []).append(part.float().mean().item())
        text = " ".join(f"{task} {sum(shares) / len(shares):.3f}" for task, shares in sorted(words.items()))
        print(f"{self.spent:.0f} s, step {self.step}, length {length}, "
              f"loss {loss.item():.4f}: {text}", flush=True)

    def run(self):
        last = saved = time.time()
        stage = None
        while self.spent < self.seconds:
            now = next(entry for entry in CURRICULUM if self.done() < entry[0])
            if stage not in (None, now):
                self.small_report(max(stage[1], key=stage[1].get))
            stage = now
            outcome = self.train_step(*now[1:])
            if self.step % 20 == 0:
                torch.cuda.synchronize()
            self.spent += time.time() - last
            last = time.time()
            if self.step % 200 == 0:
                self.report(*outcome)
            if time.time() - saved > 60:
                self.save()
                saved = time.time()
        self.save()
        print(f"{self.step} steps in {self.spent:.0f} s", flush=True)

    def small_report(self, length):
        shares = {task: accuracy(self.model, self.words, task, length, 32) for task in TASKS}
        print(f"== after {self.spent:.0f} s, whole answers at {length}: "
              + ", ".join(f"{task} {share:.2f}" for task, share in shares.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder for the model and its checkpoint")
    parser.add_argument("--minutes", type=float, required=True, help="time to train, without the final evaluation")
    parser.add_argument("--start", help="a model.safetensors to train further")
    parser.add_argument("--begin", type=float, default=0.0, help="skip this part of the curriculum (0 to 1)")
    parser.add_argument("--rate", type=float, default=1.0, help="factor on all learning rates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=128, help="samples of the final evaluation; 0 for none")
    arguments = parser.parse_args()
    training = Training(arguments)
    training.run()
    if arguments.samples:
        result = full_report(training.model, training.words, arguments.samples, arguments.samples // 2)
        (training.folder / "accuracy.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
