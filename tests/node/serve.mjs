// `sluice serve` for the tests that Node runs: on a free port, with a data folder that goes with it.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const kStarting = 60_000; // ms: on a busy machine
const kStopping = 20_000;

/** A variable that ctest sets. */
export function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; run this by ctest`);
  return value;
}

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
    server.once('error', reject);
    server.once('exit', (code) => reject(new Error(`sluice serve ended with ${code}`)));
  });
}

export class SluiceServer {
  /** `fill` is given the path of the data folder before the server has it; what it returns is kept as `filled`. */
  static async start(fill = () => undefined) {
    const server = new this();
    server.folder = mkdtempSync(join(tmpdir(), 'sluice-node-'));
    try {
      server.data = join(server.folder, 'data');
      server.filled = fill(server.data);
      await server.run('0');
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  async run(port) {
    const options = ['serve', '--data', this.data, '--port', port, '--suite', 'verify', '--threads', '1', '--quiet'];
    this.process = spawn(required('SLUICE_PROGRAM'), options, { stdio: ['ignore', 'pipe', 'inherit'] });
    this.ended = new Promise((resolve) => this.process.once('close', resolve));
    this.address = await withDeadline(addressOf(this.process), kStarting, 'starting');
  }

  /** Ends it and starts another at the same port, with the same data. */
  async restart(between = async () => {}) {
    const { port } = new URL(this.address);
    await this.end();
    await between();
    await this.run(port);
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
}
