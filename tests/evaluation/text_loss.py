#!/usr/bin/env python3
"""The loss of windows of a text by transformers, as `sluice eval --dense-only --tasks text:FILE` has it where all windows are asked.

    text_loss.py MODEL_DIRECTORY WINDOW FILE...          (PyTorch and transformers; a GPU if there is one)

Prints a line a text: its name, how many windows it has, and their mean loss in nats a token. A window begins every 128 tokens;
its last 128 tokens are scored. Weights are rounded to bf16 and computed with in float32.
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SCORED = 128


def main():
    directory, window, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    torch.backends.cuda.matmul.allow_tf32 = False
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).float().to(device).eval()
    for file in files:
        with open(file, encoding='utf-8') as text:
            ids = tokenizer(text.read(), add_special_tokens=False, return_tensors='pt')['input_ids'][0]
        losses = []
        for begin in range(0, len(ids) - window + 1, SCORED):
            part = ids[begin:begin + window].to(device)
            with torch.no_grad():
                logits = model(part[None]).logits[0, -SCORED - 1:-1].double()
            told = torch.log_softmax(logits, -1).gather(1, part[-SCORED:, None])
            losses.append(-told.mean().item())
        print(f'{file} {len(losses)} {sum(losses) / len(losses):.6f}', flush=True)


if __name__ == '__main__':
    main()
