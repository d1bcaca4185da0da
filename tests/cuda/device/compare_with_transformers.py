"""Logits of a random Qwen3 (2 layers of the 1.7B geometry, bf16) from Sluice on the GPU beside those of transformers.

    python3 tests/cuda/device/compare_with_transformers.py SLUICE [--tokens 512]

The judge is transformers in float32 on the same bf16 weights. Sluice's error against it must not exceed 1.5 times that of
transformers in bf16, and both must choose the same token wherever float32 prefers one by more than those errors.
Exits with 1 otherwise. Needs torch, transformers and a GPU.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import Qwen3Config, Qwen3ForCausalLM

MINI = pathlib.Path(__file__).resolve().parents[2] / "host" / "models" / "mini"


def make_model(folder: pathlib.Path) -> None:
    torch.manual_seed(1)
    config = Qwen3Config(
        vocab_size=151936, hidden_size=2048, intermediate_size=6144, num_hidden_layers=2, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-6, rope_theta=1e6, max_position_embeddings=40960,
        tie_word_embeddings=True, use_sliding_window=False)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    shutil.copy(MINI / "tokenizer.json", folder)


def reference(folder: pathlib.Path, ids: list[int], dtype: torch.dtype) -> torch.Tensor:
    # float32 products as such, not in TF32.
    torch.backends.cuda.matmul.allow_tf32 = False
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").cuda().eval()
    with torch.no_grad():
        return model(torch.tensor([ids], device="cuda")).logits[0].float().cpu()


def sluice(program: str, folder: pathlib.Path, ids: list[int]) -> torch.Tensor:
    out = folder / "logits.safetensors"
    listed = folder / "ids.txt"
    listed.write_text(",".join(map(str, ids)))
    subprocess.run(
        [program, "generate", "--model", folder, "--device", "cuda", "--ids-file", listed, "--max-tokens", "1",
         "--ignore-eos", "--logits", out], check=True, stdout=subprocess.DEVNULL)
    return load_file(out)["logits"][: len(ids)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("sluice")
    parser.add_argument("--tokens", type=int, default=512)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_model(folder)
        ids = torch.randint(0, 1000, (arguments.tokens,), generator=torch.Generator().manual_seed(2)).tolist()
        exact = reference(folder, ids, torch.float32)
        theirs = reference(folder, ids, torch.bfloat16)
        ours = sluice(arguments.sluice, folder, ids)
    errors = {"transformers": (theirs - exact).abs(), "sluice": (ours - exact).abs()}
    result = {who: {"largest": error.max().item(), "rms": error.square().mean().sqrt().item()} for who, error in errors.items()}
    best = exact.topk(2).values
    clear = best[:, 0] - best[:, 1] > 2 * errors["transformers"].max()
    wrong = int((ours.argmax(-1) != exact.argmax(-1))[clear].sum())
    result |= {"spread": exact.std().item(), "clear": int(clear.sum()), "wrong": wrong}
    print(json.dumps(result))
    good = all(result["sluice"][key] <= 1.5 * result["transformers"][key] for key in ("largest", "rms"))
    return 0 if good and wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
