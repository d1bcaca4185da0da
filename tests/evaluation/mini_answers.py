"""Whether flows that are a pattern, sinks and a window, answer as transformers does with that mask given explicitly.

    sluice eval FLOW.lua --tasks ... --tokens 8192 --json REPORT.json --answers --no-speed
    mini_answers.py MODEL REPORT.json --sink 32 --keep 1024

MODEL is the directory of the report's model. Of every question the answer that the first flow gave is compared with the greedy one of
transformers (float32, prompts and answers under the mask), as far as both go: Sluice cuts off an answer that can only be wrong.
"""

import argparse
import json

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM


def mask_of(first, length, sink, keep, device):
    """Of the queries [first, length)."""
    i = torch.arange(first, length, device=device)[:, None]
    j = torch.arange(length, device=device)[None]
    return ((j <= i) & ((j < sink) | (i - j < keep)))[None, None]


def greedy(model, ids, sink, keep, most):
    """The tokens that follow, and by how much each was ahead of the next best."""
    said, leads = [], []
    out = model(torch.tensor([ids], device=model.device), attention_mask=mask_of(0, len(ids), sink, keep, model.device),
                logits_to_keep=1, use_cache=True)
    for length in range(len(ids), len(ids) + most):
        best = out.logits[0, -1].float().topk(2)
        token = int(best.indices[0])
        leads.append(float(best.values[0] - best.values[1]))
        if token == model.config.eos_token_id:
            break
        said.append(token)
        out = model(torch.tensor([[token]], device=model.device), past_key_values=out.past_key_values,
                    attention_mask=mask_of(length, length + 1, sink, keep, model.device),
                    position_ids=torch.tensor([[length]], device=model.device), use_cache=True)
    return said, leads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("report")
    parser.add_argument("--sink", type=int, required=True)
    parser.add_argument("--keep", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    tokenizer = Tokenizer.from_file(f"{arguments.model}/tokenizer.json")
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32, attn_implementation="sdpa")
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    same, right, count = 0, {"Sluice": 0, "transformers": 0}, 0
    for question in json.load(open(arguments.report))["questions"]:
        ours = question["said"][1]
        wanted = question["answer"].split()
        prompt = tokenizer.encode(question["prompt"]).ids
        tokens, leads = greedy(model, prompt, arguments.sink, arguments.keep, len(wanted) + 2)
        theirs = tokenizer.decode(tokens).split()
        said = ours["text"].split()
        agree = said == theirs[:len(said)] and (not ours["ended"] or len(said) == len(theirs))
        same += agree
        count += 1
        right["Sluice"] += said == wanted and ours["ended"]
        right["transformers"] += theirs == wanted
        if not agree:
            at = next((k for k, (a, b) in enumerate(zip(said, theirs)) if a != b), min(len(said), len(theirs)))
            lead = f"{leads[at]:.3f}" if at < len(leads) else "-"
            print(f"{question['task']}: they part at word {at} of {len(wanted)}, where transformers' lead is {lead}: "
                  f"wanted {wanted[at:at + 1]}, Sluice {said[at:at + 1]}, transformers {theirs[at:at + 1]}")
    print(f"{count} questions, {same} answered alike; right: {right}")


main()
