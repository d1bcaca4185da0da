"""The mini model's words: kinds, token ids, and the tokenizer and configuration files of the Hugging Face directory.

Needs nothing but Python. `python3 language.py` writes tokenizer.json, tokenizer_config.json, config.json and
generation_config.json beside this file.
"""
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPECIALS = ["<unk>", "<bos>", "<eos>", "<pad>"]
UNK, BOS, EOS, PAD = range(4)
VOCABULARY = 1024  # rows of the embedding; the last few belong to no word


class Words:
    """Token ids. Keys, values and fillers are ranges (first, count); a structure word is an attribute of `id`."""

    def __init__(self, path=HERE / "vocabulary.json"):
        kinds = json.loads(Path(path).read_text())
        self.text = SPECIALS + kinds["structure"] + kinds["key"] + kinds["value"] + kinds["filler"]
        assert len(set(self.text)) == len(self.text) <= VOCABULARY
        self.id = {word: index for index, word in enumerate(self.text)}
        self.keys, self.values, self.fillers = (
            (self.id[kinds[kind][0]], len(kinds[kind])) for kind in ("key", "value", "filler"))


def configuration():
    """config.json: a plain Qwen3."""
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "rope_theta": 500000.0, "rope_scaling": None, "max_position_embeddings": 16384,
        "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": True, "use_sliding_window": False,
        "sliding_window": None, "initializer_range": 0.02, "use_cache": True,
        "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD,
    }


def tokenizer(words):
    """tokenizer.json: one word, one token; words are what white space separates."""
    special = [{"id": index, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for index, word in enumerate(SPECIALS)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": words.id, "unk_token": "<unk>"}}


def write_files(folder):
    """Everything of a model directory but the weights."""
    words = Words()
    files = {
        "config.json": configuration(),
        "generation_config.json": {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "do_sample": False},
        "tokenizer.json": tokenizer(words),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 16384, "add_bos_token": False,
            "add_eos_token": False, "clean_up_tokenization_spaces": False, "bos_token": "<bos>", "eos_token": "<eos>",
            "pad_token": "<pad>", "unk_token": "<unk>"},
    }
    for name, content in files.items():
        (Path(folder) / name).write_text(json.dumps(content, indent=1 if name == "tokenizer.json" else 2) + "\n")


if __name__ == "__main__":
    write_files(HERE)
