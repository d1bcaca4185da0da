#!/usr/bin/env python3
"""The loss of windows of a text by transformers, as `sluice eval --dense-only --tasks text:FILE` has it where all windows are asked.

    text_loss.py MODEL_DIRECTORY WINDOW FILE... [--sink N] [--keep N]      (PyTorch and transformers; a GPU if there is one)

--keep: a query sees the last N tokens, its own included, and the first as --sink says: the pattern sink(S) | window(N).

Prints a line a text: its name, how many windows it has, and their mean loss in nats a token. A window begins every 128 tokens;
its last 128 tokens are scored. Weights are rounded to bf16 and computed with in float32.
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SCORED = 128


def mask_of(tokens, sink, keep, device):
    """[1, 1, tokens, tokens] what is added to the scores."""
    query = torch.arange(tokens, device=device)[:, None]
    key = torch.arange(tokens, device=device)[None]
    seen = (key <= query) & ((query - key < keep) | (key < sink))
    return torch.zeros(tokens, tokens, device=device).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('directory')
    parser.add_argument('window', type=int)
    parser.add_argument('files', nargs='+')
    parser.add_argument('--sink', type=int, default=0)
    parser.add_argument('--keep', type=int, default=0)
    options = parser.parse_args()
    directory, window, files = options.directory, options.window, options.files
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    torch.backends.cuda.matmul.allow_tf32 = False
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).float().to(device).eval()
    mask = mask_of(window, options.sink, options.keep, device) if options.keep > 0 else None
    for file in files:
        with open(file, encoding='utf-8') as text:
            ids = tokenizer(text.read(), add_special_tokens=False, return_tensors='pt')['input_ids'][0]
        losses = []
        for begin in range(0, len(ids) - window + 1, SCORED):
            part = ids[begin:begin + window].to(device)
            with torch.no_grad():
                logits = model(part[None], attention_mask=mask).logits[0, -SCORED - 1:-1].double()
            told = torch.log_softmax(logits, -1).gather(1, part[-SCORED:, None])
            losses.append(-told.mean().item())
        print(f'{file} {len(losses)} {sum(losses) / len(losses):.6f}', flush=True)


if __name__ == '__main__':
    main()
