import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { becomes, kBroken, pageTest, server, visit } from './site.mjs';

const kFlow = readFileSync(new URL('../../scripting/flows/block_topk.lua', import.meta.url), 'utf8');

/** Hands in a flow that is nobody else's; the server judges it by suite verify. */
const submit = (name, script = kFlow) => server.submit({ name, script: `-- ${name}\n${script}`, parents: [1] });

const log = (page, id) => page.locator('.log li', { has: page.getByRole('link', { name: `#${id}`, exact: true }) });
const rowIn = (page, title, name) => page.getByRole('region', { name: title }).getByRole('row', { name });

/** Waits until the stream of events has begun: from then on nothing is missed. */
const isLive = (page) => page.locator('.live.live').waitFor();

pageTest('the queue shows a submission as it comes, runs and ends', async (page) => {
  await visit(page, '#/queue');
  await isLive(page);
  const id = await submit('live one');
  await log(page, id).filter({ hasText: 'submitted' }).waitFor();
  await log(page, id).filter({ hasText: 'running' }).waitFor();
  await log(page, id).filter({ hasText: 'finished' }).waitFor();
  const { status } = await server.get(`/v1/submissions/${id}?wait=30`);
  assert.equal(status, 'passed');
  await rowIn(page, /^Ended last/, /live one/)
    .getByText('passed')
    .waitFor();
  await page.getByRole('region', { name: 'Waiting (0)' }).waitFor();
  await page.getByRole('region', { name: 'Running (0)' }).waitFor();
  assert.equal(await page.locator('.log').getAttribute('aria-live'), 'polite');
});

pageTest('the queue tells how far an evaluation has come', async (page) => {
  // Verifying ends before it could be seen: a submission is said to run, and its progress told, instead of by the server.
  const { submissions } = await server.get('/v1/submissions?limit=1');
  const running = { submissions: [{ ...submissions[0], status: 'running' }], next: '' };
  const event = { sequence: 1, time: submissions[0].updated, submission: submissions[0].id, kind: 'progress' };
  const data = JSON.stringify({ ...event, data: { stage: 'long', task: 'salad 4096', share: 0.719 } });
  await page.route(/status=running/, (route) => route.fulfill({ json: running }));
  await page.route('**/v1/events', (route) =>
    route.fulfill({ contentType: 'text/event-stream', body: `id: 1\nevent: progress\ndata: ${data}\n\n` }),
  );
  await visit(page, '#/queue');
  await page.getByRole('region', { name: 'Running (1)' }).getByRole('cell', { name: 'long, salad 4096, 71%' }).waitFor();
  assert.equal(await page.locator('.log li').count(), 0); // what is said every second would drown the rest
});

pageTest('the focus stays on a submission whose list is shown anew', async (page) => {
  await visit(page, '#/queue');
  await isLive(page);
  const link = page
    .getByRole('region', { name: /^Ended last/ })
    .getByRole('link')
    .first();
  const name = await link.innerText();
  await link.focus();
  await submit('ends meanwhile');
  await rowIn(page, /^Ended last/, /ends meanwhile/).waitFor();
  assert.notEqual(await link.innerText(), name); // another is the first now
  assert.equal(await page.evaluate(() => document.activeElement.textContent), name);
});

pageTest('a flow that does not compile ends with its reason', async (page) => {
  await visit(page, '#/queue');
  await isLive(page);
  const id = await submit('broken one', 'return nil -- ');
  await log(page, id).filter({ hasText: 'finished' }).waitFor();
  await rowIn(page, /^Ended last/, /broken one/)
    .getByText('rejected static')
    .waitFor();
  // For a moment it may stand among the running ones as well, whose list comes by itself.
  await rowIn(page, /^Ended last/, /broken one/).getByRole('link').first().click();
  await page.locator('.problem', { hasText: 'rejected static' }).waitFor();
});

pageTest('other views follow the same stream', async (page) => {
  await visit(page, '#/');
  await isLive(page);
  const count = async () => Number.parseInt(await page.locator('.count').innerText(), 10);
  const before = await count();
  const id = await submit('<u>fresh</u>');
  await becomes(count, before + 1);
  await visit(page, `#/submissions/${id}`);
  await page.locator('.facts .status.passed').waitFor();
  await visit(page, '#/lineage/1');
  await isLive(page);
  const child = await submit('born later');
  await page.locator(`.layered [data-id="${child}"]`).waitFor();
  await server.get(`/v1/submissions/${child}?wait=30`);
});

pageTest(
  'a stream that breaks before anything happened misses nothing either',
  async (page) => {
    await visit(page, '#/queue');
    await isLive(page);
    await server.restart(() => page.locator('.live.lost').waitFor());
    const id = await submit('before the stream is back');
    await server.get(`/v1/submissions/${id}?wait=30`);
    for (const kind of ['submitted', 'running', 'finished']) await log(page, id).filter({ hasText: kind }).waitFor();
  },
  { expects: kBroken },
);

pageTest(
  'after a broken connection the stream goes on where it was',
  async (page) => {
    await visit(page, '#/queue');
    await isLive(page);
    const first = await submit('before the break');
    await log(page, first).filter({ hasText: 'finished' }).waitFor();
    await server.restart(() => page.locator('.live.lost').waitFor());
    // The page waits a while before it comes back: this happens without it.
    const second = await submit('during the break');
    await isLive(page);
    for (const kind of ['submitted', 'running', 'finished']) await log(page, second).filter({ hasText: kind }).waitFor();
    assert.equal(await log(page, first).filter({ hasText: 'finished' }).count(), 1);
  },
  { expects: kBroken },
);

pageTest('what waits stands in the order in which it will be taken', async (page) => {
  const { submissions } = await server.get('/v1/submissions?limit=1');
  const of = (id, agent, status, updated) => ({ ...submissions[0], id, name: `flow ${id}`, agent, status, updated });
  const all = [
    of(64, 'grace', 'queued', '2026-05-28T20:09:00Z'),
    of(63, 'evolver-17', 'queued', '2026-05-28T20:08:00Z'),
    of(62, 'grace', 'queued', '2026-05-28T20:07:00Z'),
    of(61, 'ada', 'queued', '2026-05-28T20:06:00Z'),
    of(60, 'ada', 'queued', '2026-05-28T20:05:00Z'),
    of(59, 'ada', 'running', '2026-05-28T20:04:00Z'),
    of(58, 'grace', 'passed', '2026-05-28T20:03:00Z'),
    of(57, 'evolver-17', 'cancelled', '2026-05-28T20:03:30Z'), // was never taken
    of(56, 'evolver-17', 'passed', '2026-05-28T20:02:00Z'),
  ];
  await page.route('**/v1/submissions?*', (route) => {
    const status = new URL(route.request().url()).searchParams.get('status');
    return route.fulfill({ json: { submissions: all.filter((one) => one.status === status), next: '' } });
  });
  await visit(page, '#/queue');
  const rows = page.getByRole('region', { name: 'Waiting (5)' }).locator('tbody tr');
  // Nothing of evolver-17 runs, and it was served longest ago; ada has one running, and comes after the others.
  assert.deepEqual(await rows.locator('td:first-child').allInnerTexts(), ['63', '62', '60', '64', '61']);
});

pageTest('what waits is taken in the order in which it stands', async (page) => {
  const newcomer = async (name) => (await server.post('/v1/agents', { name })).token;
  const [mary, joan] = [await newcomer('mary'), await newcomer('joan')];
  const handIn = (name, token, suite = 'verify') =>
    server.submit({ name, script: `-- ${name}\n${kFlow}`, settings: { suite } }, token);
  const first = await handIn('first of mary', mary);
  await server.get(`/v1/submissions/${first}?wait=30`);
  const long = await handIn('keeps the worker busy', undefined, 'full');
  await visit(page, '#/queue');
  await rowIn(page, 'Running', /keeps the worker busy/).waitFor();
  const waiting = [];
  for (const token of [mary, mary, undefined, undefined, joan, joan])
    waiting.push(await handIn(`waits ${waiting.length}`, token));
  await page.getByRole('region', { name: 'Waiting (6)' }).waitFor();
  const shown = await page.getByRole('region', { name: 'Waiting (6)' }).locator('td:first-child').allInnerTexts();
  await server.post(`/v1/submissions/${long}/cancel`);
  const taken = [];
  for (const id of waiting) {
    let judged;
    do {
      judged = await server.get(`/v1/submissions/${id}?wait=30`);
    } while (['queued', 'running'].includes(judged.status));
    taken.push({ id: String(id), started: judged.evaluation.started });
  }
  taken.sort((a, b) => a.started.localeCompare(b.started));
  assert.deepEqual(
    shown,
    taken.map(({ id }) => id),
  );
  assert.notDeepEqual(shown, [...shown].sort());
});

pageTest('of very many that wait the first are shown, and what has ended all the same', async (page) => {
  const { submissions } = await server.get('/v1/submissions?limit=1');
  const waiting = Array.from({ length: 450 }, (_, index) => {
    const id = 1000450 - index;
    return { ...submissions[0], id, name: `waits ${id}`, status: 'queued' };
  });
  await page.route(/status=queued/, (route) => {
    const cursor = Number(new URL(route.request().url()).searchParams.get('cursor') ?? 0);
    const next = cursor + 200 < waiting.length ? String(cursor + 200) : '';
    return route.fulfill({ json: { submissions: waiting.slice(cursor, cursor + 200), next } });
  });
  await visit(page, '#/queue');
  const rows = page.getByRole('region', { name: 'Waiting (first 200 of 450)' }).locator('tbody tr');
  assert.equal(await rows.count(), 200);
  assert.match(await rows.first().innerText(), /^1000001\s+waits 1000001/);
  assert.equal(await page.getByRole('region', { name: 'Ended last (20)' }).locator('tbody tr').count(), 20);
});
