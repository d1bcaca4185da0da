// A real server on a free port, with a data folder that web_seed has filled.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; run this by ctest`);
  return value;
}

const kStarting = 60_000; // ms: on a busy machine
const kStopping = 20_000;

function withDeadline(promise, milliseconds, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${milliseconds} ms`)), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Resolves once the server takes requests. */
function addressOf(server) {
  return new Promise((resolve, reject) => {
    createInterface({ input: server.stdout }).on('line', (line) => {
      const found = line.match(/^serving .* at (http:\S+)$/);
      if (found) resolve(found[1]);
    });
    server.once('exit', (code) => reject(new Error(`sluice serve ended with ${code}`)));
  });
}

/** Fills a data folder; what web_seed says of it. */
function seeded(data, variants) {
  return JSON.parse(execFileSync(required('SLUICE_WEB_SEED'), [data, String(variants)], { encoding: 'utf8' }));
}

export class Server {
  static async start(variants) {
    const server = new Server();
    server.folder = mkdtempSync(join(tmpdir(), 'sluice-web-'));
    try {
      const data = join(server.folder, 'data');
      if (variants !== undefined) server.token = seeded(data, variants).token;
      await server.run(data, '0');
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  async run(data, port) {
    this.data = data;
    const options = ['serve', '--data', data, '--port', port, '--suite', 'verify', '--threads', '1', '--quiet'];
    this.process = spawn(required('SLUICE_PROGRAM'), options, { stdio: ['ignore', 'pipe', 'inherit'] });
    this.ended = new Promise((resolve) => this.process.once('exit', resolve));
    this.address = await withDeadline(addressOf(this.process), kStarting, 'starting');
  }

  /** Ends it and starts another at the same port, with the same data. */
  async restart(between = async () => {}) {
    const { port } = new URL(this.address);
    await this.end();
    await between();
    await this.run(this.data, port);
  }

  /** One that does not stop is ended the hard way, and the test fails. */
  async end() {
    this.process.kill('SIGTERM');
    try {
      await withDeadline(this.ended, kStopping, 'stopping');
    } catch (error) {
      this.process.kill('SIGKILL');
      await this.ended;
      throw error;
    }
  }

  async stop() {
    try {
      if (this.process) await this.end();
    } finally {
      rmSync(this.folder, { recursive: true, force: true });
    }
  }

  async get(path) {
    const response = await fetch(this.address + path);
    if (!response.ok) throw new Error(`GET ${path}: ${response.status}`);
    return response.json();
  }

  /** Hands in a flow; its number. */
  async submit(draft) {
    const response = await fetch(`${this.address}/v1/submissions`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${this.token}` },
      body: JSON.stringify(draft),
    });
    const submission = await response.json();
    if (!response.ok) throw new Error(`POST: ${response.status} ${JSON.stringify(submission)}`);
    return submission.id;
  }
}
