import assert from 'node:assert/strict';
import { becomes, column, holdEvents, pageTest, server, visit, visitLive } from './site.mjs';

pageTest('a submission tells all that is known of it', async (page) => {
  await visit(page, '#/submissions/1');
  await page.getByRole('heading', { level: 1, name: '#1 quest' }).waitFor();
  const figures = await page.locator('.figures').innerText();
  for (const part of ['95.0 %', '91.0–99.0', '97.0 %', '1.40 × dense', '1.35–1.45', '12.5 %', '54.0 %'])
    assert.ok(figures.includes(part), part);
  const { script } = await server.get('/v1/submissions/1');
  assert.equal(await page.locator('.code code').textContent(), script);
  assert.ok((await page.locator('.code .hljs-keyword').count()) > 3);
  const tasks = await column(page, 'Tasks of stage screen', 'Flow (%)');
  assert.match(tasks[0], /^95\.0\s*89\.0–99\.0$/);
  assert.match((await column(page, 'Tasks of stage screen', 'Dense (%)'))[0], /^98\.0\s*93\.0–99\.5$/);
  assert.equal((await column(page, 'Tasks of stage screen', 'Change'))[0], '−3.0 points');
  await page.getByRole('img', { name: /Bars of 8 layers, from 44.0 % to 90.0 %/ }).waitFor();
  await page.getByText('As a table').first().click();
  assert.deepEqual((await column(page, 'Share of the dense attention mass', 'Mass (%)')).slice(0, 2), ['90.0', '72.0']);
  assert.equal(await page.locator('.layered .box').count(), 6);
  assert.equal(await page.locator('.layered .edge').count(), 5); // one of them from the value that the cache stage keeps
  await page.getByRole('img', { name: '%1 = max %0 over token: f32 [dim 64], of stage cache' }).waitFor();
  await page.getByText('refresh: %0 %1').waitFor();
  const metrics = await column(page, 'All metrics', 'Metric');
  assert.equal(metrics.length, 8);
  assert.deepEqual(await column(page, 'Attempts', 'Outcome'), ['judged']);
});

pageTest('what others did while a flow was timed stands with its speed', async (page) => {
  const conditions = { quiet: true, others_busy: 0.02, cores: 2, waited: 0.1, clocks: null };
  await page.route('**/v1/submissions/1', async (route) => {
    const response = await route.fetch();
    const submission = await response.json();
    Object.assign(submission.evaluation.stages.at(-1).details, conditions);
    await route.fulfill({ response, json: submission });
  });
  await visit(page, '#/submissions/1');
  const speed = page.locator('.stages > li').last();
  await speed.getByText('ratio 1.4').waitFor();
  assert.doesNotMatch(await speed.innerText(), /busy|waited|GPU/);
  const clocks = { samples: 9, sm_mhz: 1410.4, sm_mhz_low: 1395, sm_mhz_limit: 1980, memory_mhz: 2619 };
  Object.assign(conditions, { quiet: false, others_busy: 1.31, waited: 3 });
  conditions.clocks = { ...clocks, held_by: ['power_cap', 'hw_slowdown'], other_processes: 1 };
  await page.reload();
  await speed.getByText('Others kept 1.3 of 2 cores busy while it was timed, after 3.0 s of waiting for quiet.').waitFor();
  await speed
    .getByText(
      'GPU at 1410 of 1980 MHz on average, at least 1395 · memory at 2619 MHz · held down by power cap, hw slowdown · ' +
        'other processes on it: 1',
    )
    .waitFor();
});

pageTest('what was judged stands beside what was confirmed, and by how much it flattered', async (page) => {
  await visit(page, '#/submissions/2');
  const region = page.getByRole('region', { name: 'Confirmation', exact: true });
  await region.getByText('confirmed', { exact: true }).waitFor();
  await region.getByText('asked for by ada, 4 times the samples, try 1').waitFor();
  assert.equal((await column(page, 'Judged and confirmed', 'Metric'))[0], 'Score (%)');
  assert.match((await column(page, 'Judged and confirmed', 'Judged'))[0], /^93\.0\s*90\.0–96\.0$/);
  assert.match((await column(page, 'Judged and confirmed', 'Confirmed'))[0], /^88\.0\s*85\.0–91\.0$/);
  await region.getByText('flattered the flow by 5.0 points (2.0–8.0)').waitFor();
  const { confirmation } = await server.get('/v1/submissions/2');
  await region.getByText(confirmation.seed).waitFor();
  await visit(page, '#/submissions/1');
  assert.equal(await page.getByRole('region', { name: 'Confirmation', exact: true }).count(), 0);
});

pageTest('artifacts are downloaded, not shown', async (page) => {
  await visit(page, '#/submissions/1');
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'report.json' }).click()]);
  assert.equal(download.suggestedFilename(), 'report.json');
});

pageTest('what stopped a flow stands there with its hint', async (page) => {
  await visit(page, '#/submissions/3');
  const problem = await page.locator('.problem').innerText();
  assert.match(problem, /rejected static: input 11:10: topk: the budget is <i>empty<\/i>/);
  assert.match(problem, /Hint: give k or ratio/);
});

pageTest('every attempt is listed', async (page) => {
  await visit(page, '#/submissions/9');
  assert.deepEqual(await column(page, 'Attempts', 'Outcome'), ['failed', 'failed', 'failed']);
  assert.deepEqual(await column(page, 'Attempts', 'Message'), Array(3).fill('the worker was killed by signal 11'));
});

pageTest('what agents wrote is text, whatever it looks like', async (page) => {
  await visit(page, '#/submissions/2');
  await page.getByRole('heading', { level: 1, name: '#2 <img src=x onerror=alert(1)>' }).waitFor();
  await page.getByText('<b onmouseover=alert(3)>notes</b> {a|b}').hover();
  assert.match(await page.locator('.code code').textContent(), /^-- <\/script><script>alert\(2\)<\/script>\n/);
  assert.equal(await page.locator('main img, main script, main b').count(), 0);
});

pageTest('characters that are not seen are marked with their numbers', async (page) => {
  await page.route('**/v1/submissions/2', async (route) => {
    const response = await route.fetch();
    const submission = await response.json();
    const script = `-- \u{202e}evil\u{2066}\u{200b}\r\n${submission.script}`;
    await route.fulfill({ response, json: { ...submission, script, notes: 'a\u{200b}b\u{e0041} \u{202e}c' } });
  });
  await visit(page, '#/submissions/2');
  await page.getByText('a\\u{200b}b\\u{e0041} \\u{202e}c').waitFor();
  const code = await page.locator('.code code').textContent();
  assert.ok(code.startsWith('-- \\u{202e}evil\\u{2066}\\u{200b}\\u{d}\n'), code);
  assert.equal(await page.locator('.code .unseen').count(), 4);
  assert.doesNotMatch(await page.locator('main').textContent(), /[\u202a-\u202e\u2066-\u2069\u200b]/);
});

pageTest(
  'the browser itself refuses markup',
  async (page) => {
    await visit(page, '#/submissions/2');
    const refused = await page.evaluate(() => {
      try {
        document.querySelector('main').innerHTML = '<p>markup</p>';
        return 'taken';
      } catch (error) {
        return error.name;
      }
    });
    assert.equal(refused, 'TypeError');
  },
  { expects: [/refused by the policy: require-trusted-types-for/, /TrustedHTML/] },
);

pageTest('its relatives are a click away', async (page) => {
  await visit(page, '#/submissions/2');
  await page.locator('.facts').getByRole('link', { name: '#1', exact: true }).click();
  await page.getByRole('heading', { name: '#1 quest' }).waitFor();
  const children = page.locator('.facts div', { hasText: 'Children' });
  assert.equal((await children.innerText()).replace(/\s+/g, ' '), 'Children #2, #4, #6');
  await page.getByRole('link', { name: 'Lineage' }).last().click();
  await page.getByRole('heading', { name: 'Lineage of #1' }).waitFor();
});

/** Answers for an artifact instead of the server. */
const answer = (page, name, response) => page.route(`**/artifacts/${name}`, (route) => route.fulfill(response));

pageTest('static patterns are drawn', async (page) => {
  const pattern = (role, text) => ({
    text,
    role,
    layers: 8,
    tokens: 8192,
    kept: 516,
    any_size: '516 tokens, whatever the length',
    pages_read: 34,
    dense_prefill: false,
    blind: 3,
    area: 0.126,
    area_exact: role === 'alone',
    shares: [[1], [0.5, 0.25], [0, 0.5, 1]],
  });
  const patterns = [pattern('alone', 'sink(4) | window(512)'), pattern('beside', 'window(<b>9)')];
  await answer(page, 'graph.json', { json: { nodes: [], fields: [], patterns } });
  await visit(page, '#/submissions/1');
  const graph = page.getByRole('region', { name: 'Graph' });
  const first = graph.getByRole('img', { name: 'Which keys each of 8192 queries sees under sink(4) | window(512)' });
  await first.waitFor();
  assert.equal(await first.locator('rect.seen').count(), 5);
  assert.equal(await first.locator('rect.seen').nth(1).getAttribute('fill-opacity'), '0.57');
  const captions = (await graph.locator('figcaption').allInnerTexts()).map((text) => text.replace(/\s+/g, ' '));
  assert.equal(
    captions[0],
    'Pattern: sink(4) | window(512) (8 layers, 12.6% of what dense attention sees, keeps 516 tokens, whatever the length, ' +
      '34 pages in the last of 8192 steps, 3 queries see nothing)',
  );
  assert.match(captions[1], /^Tokens beside the selection: window\(<b>9\) \(8 layers, about 12\.6%/);
});

pageTest('an artifact that was cut takes nothing else away', async (page) => {
  await answer(page, 'graph.json', { contentType: 'text/plain', body: '{"nodes": [{"id": 0, "op": "ke' });
  await visit(page, '#/submissions/1');
  await page.getByRole('region', { name: 'Graph' }).getByText('graph.json cannot be shown').waitFor();
  await page.locator('.facts .status.passed').waitFor();
  assert.match(await page.locator('.code code').textContent(), /return sluice.topk/);
  await page.getByText('refresh: %0 %1').waitFor();
});

pageTest(
  'an artifact that cannot be read says why in its place',
  async (page) => {
    await answer(page, 'plan.txt', { status: 503, json: { title: 'busy', detail: 'too many requests', hint: 'wait' } });
    await visit(page, '#/submissions/1');
    await page.getByRole('region', { name: 'Plan' }).getByText('plan.txt cannot be shown: too many requests (wait)').waitFor();
    assert.equal(await page.locator('.layered .box').count(), 6);
  },
  { expects: [/503/] },
);

pageTest('a large graph is told in its table alone', async (page) => {
  const node = (id) => ({
    id,
    op: 'neg',
    stage: 'index',
    type: 'f32',
    shape: '[dim 64]',
    inputs: id > 0 ? [id - 1] : [],
    text: `%${id} = neg %${id - 1}`,
  });
  const nodes = Array.from({ length: 4096 }, (_, id) => node(id));
  await answer(page, 'graph.json', { json: { nodes, fields: [] } });
  await visit(page, '#/submissions/1');
  await page.getByText('4096 operations are too many to draw').waitFor();
  assert.equal(await page.locator('.layered').count(), 0);
  assert.equal((await column(page, 'Operations', 'Value')).length, 4096);
});

pageTest('what was opened stays open, and the focus where it is, when a child comes', async (page) => {
  await visitLive(page, '#/submissions/50');
  const summary = page.getByRole('region', { name: 'Graph' }).getByText('As a table');
  await summary.click();
  const children = page.locator('.facts div', { hasText: 'Children' }).getByRole('link');
  const before = await children.count();
  let families = 0;
  await page.route('**/lineage?**', (route) => {
    ++families;
    return route.continue();
  });
  const { script } = await server.get('/v1/submissions/50');
  await server.submit({ name: 'another child', script: `-- another child\n${script}`, parents: [50] });
  await becomes(() => children.count(), before + 1);
  assert.ok(
    await page
      .getByRole('region', { name: 'Graph' })
      .locator('details')
      .evaluate((details) => details.open),
  );
  assert.ok(await summary.evaluate((element) => element === document.activeElement));
  assert.equal(families, 0); // the rest of the family is not read again
});

for (const [later, what] of [
  [60, 'a table stays at its page, and the focus on what turns it, when all is made anew'],
  [10, 'where what turned the pages of a table is gone, the title has the focus'],
]) {
  pageTest(what, async (page) => {
    const release = await holdEvents(page);
    let count = 60;
    await page.route('**/v1/submissions/50', async (route) => {
      const response = await route.fetch();
      const submission = await response.json();
      const metrics = Array.from({ length: count }, (_, i) => ({ name: 'accuracy', task: `task ${i}`, tokens: 1024, value: 0.5 }));
      await route.fulfill({ response, json: { ...submission, evaluation: { ...submission.evaluation, metrics } } });
    });
    await visit(page, '#/submissions/50');
    const pages = page.getByRole('navigation', { name: /All metrics/ });
    await pages.getByRole('button', { name: 'Next' }).press('Enter');
    assert.equal(await pages.getByRole('status').innerText(), '51–60 of 60');
    await page.evaluate(() => (document.querySelector('main h1').dataset.old = 'yes'));
    count = later;
    release();
    await becomes(() => page.locator('[data-old]').count(), 0);
    const focused = await page.evaluate(() => document.activeElement.textContent);
    if (later === 60) {
      assert.equal(focused, 'Previous');
      assert.equal(await pages.getByRole('status').innerText(), '51–60 of 60');
    } else {
      assert.match(focused, /^#50 /);
    }
  });
}
