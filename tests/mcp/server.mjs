// A running `sluice serve --data` in a folder of its own, for one test file.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const program = process.env.SLUICE_PROGRAM;

function withDeadline(promise, milliseconds, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${milliseconds} ms`)), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Starts the server at a free port: {url, token, stop}. The token is that of the agent "ada". */
export async function startServer() {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-mcp-'));
  const data = join(folder, 'data');
  const token = execFileSync(program, ['agent', 'add', 'ada', '--data', data], { encoding: 'utf8' }).trim();
  const server = spawn(program, ['serve', '--data', data, '--port', '0', '--suite', 'verify', '--threads', '1', '--quiet'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise((resolve) => server.once('exit', resolve));
  const address = new Promise((resolve, reject) => {
    let text = '';
    server.stdout.setEncoding('utf8').on('data', (piece) => {
      text += piece;
      const found = / at (http:\S+)\n/.exec(text);
      if (found) resolve(found[1]);
    });
    ended.then((code) => reject(new Error(`the server ended with ${code}: ${text}`)));
  });
  const stop = async () => {
    server.kill('SIGTERM');
    await withDeadline(ended, 20_000, 'stopping').catch(() => server.kill('SIGKILL'));
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    return { url: new URL('/mcp', await withDeadline(address, 60_000, 'starting')), token, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
