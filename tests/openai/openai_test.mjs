// OpenAI's own client against a real server on the mini model, and what lm-evaluation-harness asks of one.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';

import OpenAI from 'openai';

import { required, SluiceServer } from '../node/serve.mjs';

const kPrompt = '<bos> key acorn = 11 22 33 44 ; key album = 5 6 7 8 ; ask acorn =';
let server;
let client;

before(async () => {
  server = await SluiceServer.start((data) =>
    execFileSync(required('SLUICE_PROGRAM'), ['agent', 'add', 'ada', '--data', data], { encoding: 'utf8' }).trim(),
  );
  client = new OpenAI({ baseURL: new URL('/v1', server.address).href, apiKey: server.filled, maxRetries: 0 });
});
after(async () => {
  await server?.stop();
});

const greedy = { model: 'mini', temperature: 0, max_tokens: 4 };
const chat = { ...greedy, messages: [{ role: 'user', content: kPrompt }], logprobs: true, top_logprobs: 2 };

test('chats tell log-probabilities, in streams as well', async () => {
  const { choices } = await client.chat.completions.create(chat);
  const { content, refusal } = choices[0].logprobs;
  assert.equal(refusal, null);
  assert.equal(choices[0].message.refusal, null);
  assert.equal(content.length, 4);
  for (const { token, logprob, bytes, top_logprobs: likely } of content) {
    assert.equal(Buffer.from(bytes).toString(), token);
    assert.ok(logprob <= 0);
    assert.deepEqual(likely[0], { token, logprob, bytes });
    assert.ok(likely.length === 2 && likely[1].logprob <= logprob);
  }
  const streamed = [];
  let text = '';
  for await (const chunk of await client.chat.completions.create({ ...chat, stream: true })) {
    text += chunk.choices[0].delta.content ?? '';
    streamed.push(...(chunk.choices[0].logprobs?.content ?? []));
  }
  assert.equal(text, choices[0].message.content);
  assert.deepEqual(streamed, content);
});

test("the client's helper for streams gathers them", async () => {
  const { choices } = await client.chat.completions.create(chat);
  const final = await client.chat.completions.stream(chat).finalChatCompletion();
  assert.deepEqual(final.choices[0].logprobs, choices[0].logprobs);
});

test('completions repeat prompts with log-probabilities', async () => {
  const answer = await client.completions.create({ ...greedy, prompt: kPrompt, echo: true, logprobs: 1, max_tokens: 0 });
  const [{ text, logprobs, finish_reason: reason }] = answer.choices;
  assert.equal(text, kPrompt);
  assert.equal(reason, 'length');
  assert.equal(answer.usage.completion_tokens, 0);
  assert.equal(logprobs.token_logprobs[0], null);
  assert.equal(logprobs.prompt_attention, 'dense');
  logprobs.tokens.forEach((token, i) => {
    if (token !== '<unk>') assert.equal(text.substr(logprobs.text_offset[i], token.length), token);
  });
});

/** What local-completions makes of answers (lm_eval/models/openai_completions.py, parse_logprobs): [sum, whether greedy]. */
function parseLogprobs(answer, contexts) {
  const choices = [...answer.choices].sort((a, b) => a.index - b.index);
  return choices.map(({ logprobs }, i) => {
    const values = logprobs.token_logprobs.slice(contexts[i], -1);
    const tops = logprobs.top_logprobs.slice(contexts[i], -1);
    const tokens = logprobs.tokens.slice(contexts[i], -1);
    const best = (top) => Object.keys(top).reduce((a, b) => (top[b] > top[a] ? b : a));
    assert.deepEqual(values.map((value, at) => value === Math.max(...Object.values(tops[at]))),
                     tokens.map((token, at) => token === best(tops[at])), 'both versions of the harness agree');
    return [values.reduce((a, b) => a + b, 0), tokens.every((token, at) => token === best(tops[at]))];
  });
}

test('lm-evaluation-harness reads the likelihood of what may follow', async () => {
  const context = [1, 4, 27, 13];
  const asked = { model: 'mini', temperature: 0, max_tokens: 1, logprobs: 1, seed: 1234, echo: true };
  const follows = [];
  for (let token = 0; token < 40; token += 1) follows.push([...context, token]);
  const answer = await client.completions.create({ ...asked, prompt: follows });
  const read = parseLogprobs(answer, follows.map(() => context.length));
  const best = read.map(([sum]) => sum).indexOf(Math.max(...read.map(([sum]) => sum)));
  for (const [i, [sum, isGreedy]] of read.entries()) {
    assert.ok(sum < 0);
    if (isGreedy) assert.equal(i, best);
  }
  const alone = await client.completions.create({ ...asked, prompt: [follows[best]] });
  const [[sum]] = parseLogprobs(alone, [context.length]);
  assert.ok(Math.abs(sum - read[best][0]) < 1e-4);
});

test('the shortest request of the harness is answered', async () => {
  const answer = await client.completions.create({
    model: 'mini', prompt: [[17, 42]], max_tokens: 1, logprobs: 1, echo: true,
  });
  assert.equal(answer.choices[0].logprobs.tokens.length, 3);
});

test('what may not be asked is refused by name', async () => {
  const refused = async (call, param) => {
    await assert.rejects(call, (error) => error instanceof OpenAI.BadRequestError && error.param === param);
  };
  await refused(client.chat.completions.create({ ...chat, top_logprobs: 21 }), 'top_logprobs');
  await refused(client.chat.completions.create({ ...chat, logprobs: false }), 'top_logprobs');
  await refused(client.completions.create({ ...greedy, prompt: kPrompt, logprobs: 21 }), 'logprobs');
  await refused(client.completions.create({ ...greedy, prompt: kPrompt, max_tokens: 0 }), 'max_tokens');
});
