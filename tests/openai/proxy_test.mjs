// Clients behind Debian's nginx, with the lines that README shows, and nginx's own defaults: HTTP/1.0 to the server, and bodies
// that it has gathered; and with HTTP/1.1 and bodies that it hands on in chunks.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import OpenAI from 'openai';

import { required, SluiceServer } from '../node/serve.mjs';

const kPrompt = '<bos> key acorn = 11 22 33 44 ; key album = 5 6 7 8 ; ask acorn =';
const kTokens = 24;

/** One that is free now. */
function freePort() {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

/** The server block of README, for this port and this server, without TLS, and with `more` for its location. */
function serverBlock(port, address, more) {
  const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
  const block = readme.match(/```nginx\n([^]*?)```/)[1];
  return block
    .replace('listen 443 ssl;', `listen 127.0.0.1:${port};`)
    .replace(/^.*ssl_certificate.*\n/gm, '')
    .replace('http://127.0.0.1:8080', address)
    .replace('proxy_read_timeout', `${more} proxy_read_timeout`);
}

class Proxy {
  static async start(address, more = '') {
    const proxy = new this();
    proxy.folder = mkdtempSync(join(tmpdir(), 'sluice-nginx-'));
    const port = await freePort();
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${name};`).join(' ');
    writeFileSync(
      join(proxy.folder, 'nginx.conf'),
      `daemon off; master_process off; pid nginx.pid; error_log stderr; events {}
       http { access_log off; ${temporary} ${serverBlock(port, address, more)} }`,
    );
    const program = required('SLUICE_NGINX');
    proxy.process = spawn(program, ['-p', proxy.folder, '-c', 'nginx.conf', '-e', 'stderr'], { stdio: ['ignore', 'ignore', 'inherit'] });
    proxy.ended = new Promise((resolve) => proxy.process.once('close', resolve));
    proxy.address = `http://127.0.0.1:${port}`;
    for (let i = 0; ; ++i) {
      try {
        await fetch(`${proxy.address}/health`);
        return proxy;
      } catch (error) {
        if (i === 100) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  }

  async stop() {
    this.process.kill('SIGTERM');
    await this.ended;
    rmSync(this.folder, { recursive: true });
  }
}

const kKinds = { 'as README has it': '', 'HTTP/1.1 and chunks': 'proxy_http_version 1.1; proxy_request_buffering off;' };
const proxies = {};
let server;

before(async () => {
  server = await SluiceServer.start((data) =>
    execFileSync(required('SLUICE_PROGRAM'), ['agent', 'add', 'ada', '--data', data], { encoding: 'utf8' }).trim(),
  );
  for (const [kind, more] of Object.entries(kKinds)) proxies[kind] = await Proxy.start(server.address, more);
});
after(async () => {
  for (const proxy of Object.values(proxies)) await proxy.stop();
  await server?.stop();
});

for (const kind of Object.keys(kKinds)) {
  const request = { model: 'mini', messages: [{ role: 'user', content: kPrompt }], max_tokens: kTokens, temperature: 0,
                    ignore_eos: true };
  const clientOf = (address) =>
    new OpenAI({ baseURL: `${address}/v1`, apiKey: server.filled, maxRetries: 0 });

  test(`${kind}: chats come whole and as streams, piece by piece`, async () => {
    const direct = await clientOf(server.address).chat.completions.create(request);
    const client = clientOf(proxies[kind].address);
    const whole = await client.chat.completions.create(request);
    assert.equal(whole.choices[0].message.content, direct.choices[0].message.content);
    let text = '';
    const times = [];
    for await (const chunk of await client.chat.completions.create({ ...request, max_tokens: 200, stream: true })) {
      text += chunk.choices[0].delta.content ?? '';
      times.push(performance.now());
    }
    assert.ok(text.startsWith(whole.choices[0].message.content));
    assert.ok(new Set(times.map((time) => Math.round(time))).size > 5, 'nothing gathers them');
  });

  test(`${kind}: a body without a length is taken`, async () => {
    const body = new ReadableStream({
      start(controller) {
        const bytes = new TextEncoder().encode(JSON.stringify(request));
        for (let at = 0; at < bytes.length; at += 11) controller.enqueue(bytes.slice(at, at + 11));
        controller.close();
      },
    });
    const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${server.filled}` };
    const answer = await fetch(`${proxies[kind].address}/v1/chat/completions`, { method: 'POST', headers, body, duplex: 'half' });
    assert.equal(answer.status, 200);
    assert.equal((await answer.json()).usage.completion_tokens, kTokens);
  });

  test(`${kind}: errors keep their words`, async () => {
    const client = clientOf(proxies[kind].address);
    const long = { ...request, messages: [{ role: 'user', content: 'key '.repeat(40_000) }] };
    await assert.rejects(client.chat.completions.create(long), (error) => {
      assert.equal(error.status, 400);
      assert.equal(error.code, 'context_length_exceeded');
      return /This model's maximum context length is/.test(error.message);
    });
    await assert.rejects(client.files.list(), (error) => error.status === 404 && /there is nothing/.test(error.message));
  });
}
