// Hugging Face's own readers beside ours: @huggingface/gguf for metadata and where tensors lie, @huggingface/tokenizers for texts.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { GGMLQuantizationType, gguf, GGUFValueType } from '@huggingface/gguf';
import { Tokenizer } from '@huggingface/tokenizers';

const view = process.env.SLUICE_GGUF_VIEW;
const models = process.env.SLUICE_REAL_MODEL_DIR ?? new URL('../../../shared/models', import.meta.url).pathname;
const real = join(models, 'SmolLM2-135M-Instruct.Q4_1.gguf');
const folder = mkdtempSync(join(tmpdir(), 'sluice-gguf-'));
after(() => rmSync(folder, { recursive: true }));

// Bytes of a block, and its elements.
const blocks = { F32: [4, 1], F16: [2, 1], BF16: [2, 1], Q4_1: [20, 32], Q8_0: [34, 32], Q6_K: [210, 256] };

const texts = [
  '', ' ', 'a', 'abc ab c', 'Hello, world!', "it's they'll I'D", '  two  spaces ', 'tabs\tand\n\nlines\r\n', '0123456789 3.14 1,000',
  'naïve café Größe', '日本語のテキスト', 'Ελληνικά и русский', '🙂👩‍👩‍👧 emoji', 'e\u0301 \u00e9', 'x = y_1 + foo(bar)[3]; // comment', '\u0000\u0001\u007f',
  'مرحبا بالعالم', 'ﬁ ﬂ Ⅳ ² ½', '<|im_start|>user\nhi<|im_end|>', 'a<|end|>b', '\u200b\u00a0\u3000.', 'CamelCaseAndSHOUTING', "don''t 'quoted'",
];

function kindOf(type, subType) {
  const integers = ['UINT8', 'INT8', 'UINT16', 'INT16', 'UINT32', 'INT32', 'UINT64', 'INT64'].map((name) => GGUFValueType[name]);
  if (integers.includes(type)) return 'integer';
  if (type === GGUFValueType.FLOAT32 || type === GGUFValueType.FLOAT64) return 'number';
  if (type === GGUFValueType.BOOL) return 'boolean';
  if (type === GGUFValueType.STRING) return 'text';
  return subType === GGUFValueType.STRING ? 'texts' : 'integers';
}

// The same number whether it is a BigInt or not.
const plain = (value) => (Array.isArray(value) ? value.map(plain) : typeof value === 'bigint' ? Number(value) : value);

async function judge(file, { unlike = [] } = {}) {
  const { typedMetadata, tensorInfos, tensorDataOffset } = await gguf(file, { allowLocalFile: true, typedMetadata: true });
  const own = ['version', 'tensor_count', 'kv_count']; // of the header
  const entries = Object.entries(typedMetadata).filter(([key]) => !own.includes(key));
  const request = { keys: entries.map(([key, { type, subType }]) => [key, kindOf(type, subType)]), texts };
  const seen = JSON.parse(execFileSync(view, [file], { input: JSON.stringify(request), maxBuffer: 1 << 28 }));

  entries.forEach(([key, { value }], i) => assert.deepEqual(seen.values[i], plain(value), key));
  assert.equal(Object.keys(seen.tensors).length, tensorInfos.length);
  for (const { name, shape, dtype, offset } of tensorInfos) {
    const tensor = seen.tensors[name];
    const type = GGMLQuantizationType[dtype];
    assert.deepEqual(tensor.shape, shape.map(Number).reverse(), name);
    assert.equal(tensor.type, type, name);
    assert.equal(tensor.begin, Number(tensorDataOffset + offset), name);
    const [bytes, elements] = blocks[type];
    assert.equal(tensor.bytes, (shape.map(Number).reduce((a, b) => a * b) / elements) * bytes, name);
    assert.ok(tensor.begin + tensor.bytes <= statSync(file).size, name);
  }

  const tokenizer = new Tokenizer(seen.tokenizer, {});
  texts.forEach((text, i) => {
    if (unlike.includes(text)) return;
    assert.deepEqual(seen.ids[i], tokenizer.encode(text).ids, JSON.stringify(text));
  });
}

test('a small file', async () => {
  const file = join(folder, 'small.gguf');
  execFileSync(view, ['--small', file]);
  await judge(file);
});

test('SmolLM2', { skip: existsSync(real) ? false : `${real} is not there` }, async () => {
  // Digits of other scripts are none to the JavaScript library; to that in Rust, whose tokenizers models come with, they are.
  await judge(real, { unlike: ['ﬁ ﬂ Ⅳ ² ½'] });
  const expected = JSON.parse(readFileSync(join(models, 'smollm2.json')));
  const request = { keys: [], texts: expected.tokens.map(({ text }) => text) };
  const seen = JSON.parse(execFileSync(view, [real], { input: JSON.stringify(request), maxBuffer: 1 << 28 }));
  expected.tokens.forEach(({ ids }, i) => assert.deepEqual(seen.ids[i], ids));
});
