// The official clients against a real server: version 1 of the SDK, which begins with a handshake, and version 2, which speaks
// 2026-07-28. What they get is checked by their own schemas, structured content by the schemas that the tools declare.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as LegacyTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

import { startServer } from './server.mjs';

const info = { name: 'sluice-tests', version: '1.0.0' };
const tools = [
  'guide', 'operators', 'shipped_flows', 'check_flow', 'submit_flow', 'wait_result', 'get_submission', 'cancel_submission',
  'confirm_submission', 'list_submissions', 'leaderboard', 'finals', 'front', 'lineage', 'diff',
];
let server;

before(async () => {
  server = await startServer();
});
after(async () => {
  await server?.stop();
});

function headers(token) {
  return token ? { requestInit: { headers: { Authorization: `Bearer ${token}` } } } : {};
}

async function connectLegacy(token) {
  const client = new LegacyClient(info);
  await client.connect(new LegacyTransport(server.url, headers(token)));
  return client;
}

async function connectModern(token, mode = { pin: '2026-07-28' }) {
  const client = new Client(info, { versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(server.url, headers(token)));
  return client;
}

async function call(client, name, args = {}) {
  const result = await client.callTool({ name, arguments: args });
  assert.equal(result.content[0].type, 'text');
  return result;
}

/** The structured content of a call that must go well. */
async function ask(client, name, args) {
  const result = await call(client, name, args);
  assert.ok(!result.isError, result.content[0].text);
  return result.structuredContent;
}

async function text(client, name, args) {
  const result = await call(client, name, args);
  assert.ok(!result.isError, result.content[0].text);
  return result.content[0].text;
}

/** The submission once it is judged, however long a busy machine takes: the test as a whole has a time limit. */
async function verdict(client, id) {
  for (;;) {
    const submission = await ask(client, 'wait_result', { id });
    if (!['queued', 'running'].includes(submission.status)) return submission;
    assert.match(submission.next_step, /wait_result/);
  }
}

/** What an agent does from the first call to the comparison of its flows. `mark` makes its scripts other ones than before. */
async function workAsAnAgent(client, mark) {
  const list = await client.listTools();
  assert.deepEqual(list.tools.map((tool) => tool.name), tools);
  assert.match(await text(client, 'guide'), /sluice\.flow/);
  assert.match(await text(client, 'operators', { name: 'topk' }), /topk\(/);

  const script = `-- ${mark}\n` + (await text(client, 'shipped_flows', { name: 'quest' }));
  const checked = await ask(client, 'check_flow', { script });
  assert.equal(checked.name, 'quest');
  const refused = await call(client, 'check_flow', { script: 'local flow = sluice.flow {}\nreturn flow' });
  assert.equal(refused.isError, true);
  assert.match(refused.content[0].text, /hint: /);

  const first = await ask(client, 'submit_flow', { name: 'first', script, notes: 'größer 世界' });
  assert.equal(first.is_new, true);
  const second = await ask(client, 'submit_flow', {
    name: 'second',
    script: script.replace('last = 2', 'last = 4'),
    parents: [first.id],
  });
  const broken = await ask(client, 'submit_flow', { name: 'broken', script: `-- ${mark}\nreturn 5` });
  for (const { id } of [first, second]) {
    assert.equal((await verdict(client, id)).status, 'passed');
  }
  const rejected = await verdict(client, broken.id);
  assert.equal(rejected.status, 'rejected_static');
  assert.match(rejected.message, /returned the number 5/);

  assert.equal((await ask(client, 'get_submission', { id: first.id })).notes, 'größer 世界');
  const passed = (await ask(client, 'list_submissions', { status: 'passed' })).submissions;
  assert.ok(passed.some(({ id }) => id === second.id));
  assert.ok(Array.isArray((await ask(client, 'leaderboard', { metric: 'accuracy' })).entries));
  assert.ok(Array.isArray((await ask(client, 'front')).points));
  const { nodes } = await ask(client, 'lineage', { id: second.id });
  assert.deepEqual(nodes.map(({ id }) => id), [second.id, first.id]); // the nearest relatives first
  const diff = await text(client, 'diff', { id: second.id });
  assert.match(diff, /^\+.*last = 4/m);
  assert.match(diff, /^-.*last = 2/m);

  const ended = await call(client, 'cancel_submission', { id: first.id });
  assert.equal(ended.isError, true);
  const wrong = await call(client, 'wait_result', { id: 'one' });
  assert.match(wrong.content[0].text, /id is "one"; an integer is wanted/);
  await assert.rejects(client.callTool({ name: 'nothing', arguments: {} }));
}

test('an agent works through version 1 of the SDK', async () => {
  const client = await connectLegacy(server.token);
  assert.equal(client.getServerVersion().name, 'sluice');
  assert.deepEqual(client.getServerCapabilities(), { tools: {} });
  assert.match(client.getInstructions(), /guide/);
  await client.ping();
  await workAsAnAgent(client, 'legacy');
  await client.close();
});

test('an agent works through version 2 of the SDK, at 2026-07-28', async () => {
  const client = await connectModern(server.token);
  assert.equal(client.getNegotiatedProtocolVersion(), '2026-07-28');
  assert.equal(client.getServerVersion().name, 'sluice');
  assert.match(client.getInstructions(), /guide/);
  await workAsAnAgent(client, 'modern');
  await client.close();
});

test('version 2 finds out by itself what the server speaks', async () => {
  const probing = await connectModern(undefined, 'auto');
  assert.equal(probing.getNegotiatedProtocolVersion(), '2026-07-28');
  await probing.close();
  const legacy = await connectModern(undefined, 'legacy');
  assert.equal(legacy.getNegotiatedProtocolVersion(), '2025-11-25');
  assert.equal((await legacy.listTools()).tools.length, tools.length);
  await legacy.close();
});

test('without a token one may read, and is told how to get one', async () => {
  for (const connect of [connectLegacy, connectModern]) {
    const client = await connect();
    assert.match(await text(client, 'guide'), /sluice\.flow/);
    const refused = await call(client, 'submit_flow', { name: 'a', script: 'return 1' });
    assert.equal(refused.isError, true);
    assert.match(refused.content[0].text, /needs a token.*\n.*sluice agent add/);
    await client.close();
  }
});

test('a wait ends when its client leaves, and the server goes on', async () => {
  const client = await connectModern(server.token);
  const { id } = await ask(client, 'submit_flow', {
    name: 'slow',
    script: '-- slow\n' + (await text(client, 'shipped_flows', { name: 'h2o' })),
    suite: 'full',
  });
  const leave = new AbortController();
  const wait = client.callTool({ name: 'wait_result', arguments: { id } }, { signal: leave.signal });
  setTimeout(() => leave.abort(), 200);
  await assert.rejects(wait);
  const answered = await ask(client, 'wait_result', { id, seconds: 0 });
  assert.ok(['queued', 'running'].includes(answered.status), answered.status);
  assert.equal((await ask(client, 'cancel_submission', { id })).status, 'cancelled');
  await client.close();
});
