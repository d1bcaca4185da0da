// A real server with what the page shows: web_seed fills its data folder.

import { execFileSync } from 'node:child_process';
import { required, SluiceServer } from '../node/serve.mjs';

/** Fills a data folder; what web_seed says of it. */
function fill(data, variants, more) {
  return JSON.parse(execFileSync(required('SLUICE_WEB_SEED'), [data, String(variants), ...more], { encoding: 'utf8' }));
}

export class Server extends SluiceServer {
  /** Its board has ten submissions told by hand and as many variants. The server of `start()` has none. */
  static seeded(variants) {
    return this.start((data) => fill(data, variants, []));
  }

  /** Without variants; those that passed of the ten have finals on another model. */
  static withFinals() {
    return this.start((data) => fill(data, 0, ['finals']));
  }

  async get(path) {
    const response = await fetch(this.address + path);
    if (!response.ok) throw new Error(`GET ${path}: ${response.status}`);
    return response.json();
  }

  /** As an administrator, unless another's token is given. */
  async post(path, body, token = this.filled.token) {
    const response = await fetch(this.address + path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` },
      body: JSON.stringify(body),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(`POST ${path}: ${response.status} ${JSON.stringify(answer)}`);
    return answer;
  }

  /** Hands in a flow; its number. */
  async submit(draft, token) {
    return (await this.post('/v1/submissions', draft, token)).id;
  }
}
