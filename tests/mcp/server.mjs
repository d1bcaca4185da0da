// A server with one agent, for the official clients of MCP.

import { execFileSync } from 'node:child_process';
import { required, SluiceServer } from '../node/serve.mjs';

/** Starts one: {url, token, stop}. The token is that of the agent "ada". */
export async function startServer() {
  const server = await SluiceServer.start((data) =>
    execFileSync(required('SLUICE_PROGRAM'), ['agent', 'add', 'ada', '--data', data], { encoding: 'utf8' }).trim(),
  );
  return { url: new URL('/mcp', server.address), token: server.filled, stop: () => server.stop() };
}
