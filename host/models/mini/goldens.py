"""Makes the goldens of the C++ engine: what transformers and tokenizers say, for tests/goldens.

    python3 goldens.py DIR [tiny] [windows] [tokenizers] [mini]

tiny: a random small Qwen3 with its logits. windows: the same of models whose layers have windows. tokenizers: three tokenizers with texts, ids and decoded texts. mini: logits of
the model in this folder. Logits are float32, on the CPU. Needs transformers, tokenizers and PyTorch.
"""
import json
import random
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, MistralConfig, Qwen3Config, Qwen3ForCausalLM

from documents import build, evaluation_plan
from language import BOS, HERE, Words

QWEN_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONTINUATION = 64

TEXTS = [
    "", " ", "  ", "\n", "\n\n", "\t", " \n ", "\r\n", "a", " a", "a ", "  a  b   c    ",
    "Hello, world!", "hello world", "The quick brown fox jumps over the lazy dog.",
    "I'm sure you're right, we've seen it, he'd know, they'll come, it's John's and don't.",
    "I'M SURE YOU'RE RIGHT, WE'VE, HE'D, THEY'LL, IT'S, DON'T", "'s't're", "rock 'n' roll",
    "0", "42", "3.14159", "1,234,567.89", "2024-11-20T23:40:00Z", "x1y2z3", "١٢٣ ४५६ Ⅷ ½",
    "Straße, Äpfel, öffnen, naïve café, Ünïcödé", "cafe\u0301 vs caf\u00e9", "A\u030angstro\u0308m", "n\u0303o\u0303",
    "e\u0301\u0302\u0323", "\u1e9b\u0323", "\ufb01ne o\ufb03ce",
    "你好，世界！", "注意力机制很稀疏。 页面是一切的单位。", "日本語のテキストとカタカナ", "한국어 텍스트", "\u1112\u1161\u11ab\u1100\u116e\u11a8",
    "Привет, мир! Ёлка", "Γειά σου Κόσμε", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Việt Nam Tiếng Việt",
    "🙂", "👩‍👩‍👧‍👦 family 👍🏽 thumbs 🇩🇪 flag", "❤️ vs ❤", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙",
    "def f(x):\n    return x ** 2  # square\n\n\nprint(f(3))\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\r\n",
    "if (a != b && c <= d) { x->y = *p; }", "{\"key\": [1, 2.5, null, true]}", "SELECT * FROM t WHERE a = 'b';",
    "https://example.com/a?b=c&d=%20#e", "user@example.org", "C:\\Users\\name", "$x^2 + \\alpha$", "---===***!!!???...",
    "<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n", "a<|endoftext|>b <|endoftext|> c", "<|im_start", "<|im_end|><|im_end|>",
    "a\u00a0b\u2003c\u3000d\u200be", "\u2028line\u2029paragraph", "zero\u0000byte", "\ufeffbom", "tab\tand\u000bvertical\fform",
    "trailing newline\n", "trailing spaces   ", "   leading spaces", "a\n\n\n   b", "a   \n   b", "MixedCASE camelCase snake_case",
    "Antidisestablishmentarianism", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ſ'ſ 'ſ", "İstanbul'da",
]
WORD_TEXTS = [
    "", "<bos>", "<bos> acorn", "<bos>acorn<eos>", "ask acorn =", "key acorn = 00 17 42 99 ;", "var acorn <- album 1 2 3 ;",
    "  many   spaces \n and\tlines  ", "Acorn ACORN acorn.", "unknownword acorn", "run acorn : at acorn 05 acorn 05 to end ; <eos>",
    "<pad> <unk> <nothing>", "acorn\u00a0album\u2003almond", "<-<-", "rule acorn to album 10 from acorn ;",
]


def greedy(model, ids):
    """The most likely continuation; <eos> does not end it."""
    ids = list(ids)
    with torch.no_grad():
        for _ in range(CONTINUATION):
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
    return ids[-CONTINUATION:]


def model_goldens(model, prompts, whole_up_to):
    """JSON of prompts and continuations; the tensors `logits.N` of prompt N: all positions, or the last four."""
    entries, tensors = [], {}
    for index, ids in enumerate(prompts):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].float()
        first = 0 if len(ids) <= whole_up_to else len(ids) - 4
        tensors[f"logits.{index}"] = logits[first:].contiguous()
        entries.append({"ids": ids, "first_position": first, "greedy": greedy(model, ids)})
    return {"prompts": entries}, tensors


def write_json(path, content):
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def random_golden(folder, name, model, vocabulary, lengths):
    """Of a model with random weights: its directory, prompts and logits."""
    with torch.no_grad():  # norms of all ones would hide a norm that is applied wrongly
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
    model.save_pretrained(folder / name)
    (folder / name / "generation_config.json").unlink(missing_ok=True)
    chance = random.Random(20)
    prompts = [[chance.randrange(vocabulary) for _ in range(length)] for length in lengths]
    entries, tensors = model_goldens(model, prompts, 60)
    write_json(folder / f"{name}.json", entries)
    save_file(tensors, folder / f"{name}_logits.safetensors")
    print(name, "logits, standard deviation", tensors["logits.1"].std().item())


def tiny(folder):
    torch.manual_seed(20)
    config = Qwen3Config(vocab_size=256, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6, max_position_embeddings=2048,
                         rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False,
                         initializer_range=0.2, attention_bias=False, bos_token_id=0, eos_token_id=1,
                         attn_implementation="eager", dtype="float32")
    random_golden(folder, "tiny_qwen3", Qwen3ForCausalLM(config).float().eval(), 256, (200, 60, 1))


def windows(folder):
    """Layers that see the last tokens alone: all but one in four, by their types or from a layer on, and all of them."""
    common = {"vocab_size": 128, "hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
              "head_dim": 16, "rms_norm_eps": 1e-6, "max_position_embeddings": 2048,
              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "tie_word_embeddings": True,
              "initializer_range": 0.2, "bos_token_id": 0, "eos_token_id": 1, "attn_implementation": "eager", "dtype": "float32"}
    types = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    for name, config in (
            ("tiny_qwen3_types", Qwen3Config(**common, num_hidden_layers=4, use_sliding_window=True, sliding_window=24, layer_types=types)),
            ("tiny_qwen3_upper", Qwen3Config(**common, num_hidden_layers=4, use_sliding_window=True, sliding_window=33,
                                             max_window_layers=1)),
            ("tiny_mistral", MistralConfig(**common, num_hidden_layers=3, sliding_window=20))):
        torch.manual_seed(21)
        random_golden(folder, name, AutoModelForCausalLM.from_config(config).float().eval(), 128, (200, 60, 1))


def mini(folder):
    words = Words()
    model = AutoModelForCausalLM.from_pretrained(HERE, dtype=torch.float32, attn_implementation="eager").eval()
    torch.manual_seed(20)
    chance = random.Random(20)
    prompts = []
    for task, length in (("needle_multiquery", 205), ("needle_multivalue", 97)):
        plan = evaluation_plan(task, length)
        group = build(words, plan, 1, length, chance, device="cpu")
        prompts.append(group.tokens[0, :group.start + 1].tolist())
    entries, tensors = model_goldens(model, prompts + [[BOS]], 100)
    for entry in entries["prompts"]:
        entry["text"] = " ".join(words.text[index] for index in entry["ids"])
        entry["greedy_text"] = " ".join(words.text[index] for index in entry["greedy"] if index < len(words.text))
        print(entry["text"][-60:], "->", entry["greedy_text"][:40])
    write_json(folder / "mini.json", entries)
    save_file(tensors, folder / "mini_logits.safetensors")


def cases(tokenizer, texts):
    """decoded: with special tokens; plain: without them."""
    result = []
    for text in texts:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        result.append({"text": text, "ids": encoding.ids, "decoded": tokenizer.decode(encoding.ids, skip_special_tokens=False),
                       "plain": tokenizer.decode(encoding.ids, skip_special_tokens=True)})
    return {"cases": result}


def byte_level(tokenizer, corpus):
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=1500, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def tokenizer_goldens(folder):
    corpus = TEXTS * 3 + [" ".join(Words().text)]
    qwen = Tokenizer(models.BPE())
    qwen.normalizer = normalizers.NFC()
    qwen.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    for name, tokenizer in (("bpe", qwen), ("gpt2_bpe", gpt2)):
        byte_level(tokenizer, corpus)
        (folder / name).mkdir(exist_ok=True)
        tokenizer.save(str(folder / name / "tokenizer.json"))
        write_json(folder / f"{name}.json", cases(tokenizer, TEXTS))
    write_json(folder / "wordlevel.json", cases(Tokenizer.from_file(str(HERE / "tokenizer.json")), WORD_TEXTS))


def main():
    folder, wanted = Path(sys.argv[1]), sys.argv[2:] or ["tiny", "windows", "tokenizers", "mini"]
    folder.mkdir(parents=True, exist_ok=True)
    makers = {"tiny": tiny, "windows": windows, "tokenizers": tokenizer_goldens, "mini": mini}
    for name in wanted:
        makers[name](folder)


if __name__ == "__main__":
    main()
