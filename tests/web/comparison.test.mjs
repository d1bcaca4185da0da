import assert from 'node:assert/strict';
import { becomes, column, pageTest, visit } from './site.mjs';

const cells = (page, row) =>
  page
    .locator('.compare tr', { has: page.getByRole('rowheader', { name: row, exact: true }) })
    .locator('td')
    .allInnerTexts();
const budget = (value) => `return sluice.topk(score, { k = ${value}, first = 1, last = 2 })`;

pageTest('a diff stands beside its parent, with the change of metrics', async (page) => {
  await visit(page, '#/submissions/2/diff');
  await page.getByRole('link', { name: '#1 quest' }).waitFor();
  const removed = await page.locator('.diff td.removed code').allInnerTexts();
  const added = await page.locator('.diff td.added code').allInnerTexts();
  assert.deepEqual(
    removed.map((line) => line.trim()),
    ['-- pages by their bounding box', budget(16)],
  );
  assert.deepEqual(
    added.map((line) => line.trim()),
    ['-- </script><script>alert(2)</script>', budget(12)],
  );
  // The same row of the table has both.
  const row = page.locator('.diff tr', { has: page.locator('td.removed', { hasText: budget(16) }) });
  assert.equal((await row.locator('td.added code').innerText()).trim(), budget(12));
  const changes = await column(page, 'Metrics before and after', 'Change');
  const metrics = await column(page, 'Metrics before and after', 'Metric');
  assert.equal(changes[metrics.indexOf('Speed (× dense)')], '+0.50 × dense');
  assert.ok(changes.includes('−2.0 points'));
  await page.getByText(/^On the same questions: −2\.0 points of accuracy \(95% −\d\.\d to \+\d\.\d\), p = 0\.5\.$/).waitFor();
  const speed = page.locator('tr', { has: page.getByRole('rowheader', { name: 'Speed (× dense)' }) });
  assert.match(await speed.locator('.change').getAttribute('class'), /better/);
});

pageTest('a diff with any other, in one column, with all lines', async (page) => {
  await visit(page, '#/submissions/2/diff');
  const lines = page.locator('.diff td code');
  await page.getByLabel('all lines').check();
  await page.getByLabel('one column').check();
  await page.locator('.diff.unified').waitFor();
  await becomes(() => lines.count(), 16); // fourteen, two of them twice
  await page.getByLabel('against #').fill('6');
  await page.getByLabel('against #').press('Enter');
  await page.locator('.diff td.removed', { hasText: budget(6) }).waitFor();
  assert.match(page.url(), /from=6&context=all&view=unified/);
  await page.reload();
  await page.locator('.diff.unified td.removed', { hasText: budget(6) }).waitFor();
  await page.getByRole('columnheader', { name: 'Setting' }).waitFor({ state: 'hidden' });
});

pageTest('a submission without parents is compared with nothing', async (page) => {
  await visit(page, '#/submissions/1/diff');
  await page.getByText('nothing (it has no parent)').waitFor();
  assert.equal(await page.locator('.diff td.removed').count(), 0);
});

pageTest('compare shows only what differs, or everything', async (page) => {
  await visit(page, '#/compare?ids=1,2,4');
  assert.deepEqual(
    (await page.locator('.compare thead th').allInnerTexts()).map((text) => text.trim()),
    ['#1 quest', '#2 <img src=x onerror=alert(1)>', '#4 tiny budget'],
  );
  assert.deepEqual(
    (await cells(page, 'Status')).map((text) => text.trim()),
    ['passed', 'passed', 'below threshold'],
  );
  assert.match((await cells(page, 'Speed (× dense)'))[2], /^2\.80\s*2\.75–2\.85\s*best$/);
  const paired = (await cells(page, 'On the same questions')).map((text) => text.trim());
  assert.equal(paired[0], 'beside this one');
  assert.match(paired[1], /^−2\.0 points of accuracy/);
  assert.match(paired[2], /^−54\.0 points of accuracy .*, p = 0\.0+\d+$/);
  assert.deepEqual(await cells(page, 'Pages read (%)'), []);
  await page.getByLabel('also what is the same').check();
  assert.deepEqual(
    (await cells(page, 'Pages read (%)')).map((text) => text.trim()),
    ['12.5', '12.5', '12.5'],
  );
  assert.match(page.url(), /show=all/);
  await page.getByLabel('submissions', { exact: true }).fill('7 8');
  await page.getByRole('button', { name: 'Compare' }).click();
  await page.getByRole('columnheader', { name: '#8 too slow' }).waitFor();
});

pageTest('all that cannot be told from the best are marked, where there is a better at all', async (page) => {
  await visit(page, '#/compare?ids=1,2,4');
  const best = async (row) => (await cells(page, row)).map((text) => /best$/.test(text.trim()));
  assert.deepEqual(await best('Accuracy (%)'), [true, true, false]); // 91–99 and 89–97, but 37–45
  assert.deepEqual(await best('Speed (× dense)'), [false, false, true]);
  await page.getByText('Measured with several suites:').waitFor();
  const unknown = { name: 'odd_thing', value: 1 };
  await page.route(/v1\/submissions\/[12]$/, async (route) => {
    const response = await route.fetch();
    const submission = await response.json();
    submission.evaluation.metrics.push({ ...unknown, value: submission.id });
    return route.fulfill({ response, json: submission });
  });
  await visit(page, '#/compare?ids=1,2');
  await page.reload();
  await page.getByRole('rowheader', { name: 'odd thing' }).waitFor();
  assert.deepEqual(await best('odd thing'), [false, false]);
  assert.deepEqual(await best('Accuracy (%)'), [false, false]);
});

/** A diff and two scripts, instead of what the server has. */
async function tellScripts(page, from, to, lines) {
  await page.route(/v1\/submissions\/2\/diff/, async (route) => {
    const response = await route.fetch();
    const diff = await response.json();
    return route.fulfill({ response, json: { ...diff, hunks: [{ header: '@@', lines }] } });
  });
  for (const [id, script] of [
    [1, from],
    [2, to],
  ]) {
    await page.route(new RegExp(`v1/submissions/${id}$`), async (route) => {
      const response = await route.fetch();
      return route.fulfill({ response, json: { ...(await response.json()), script } });
    });
  }
}

pageTest('a line of a diff has the colours that it has in its script', async (page) => {
  await tellScripts(page, '--[[\nlocal x\n]]\n', '-- a\nlocal x\n-- b\n', [
    { kind: 'removed', old: 1, new: null, text: '--[[\n' },
    { kind: 'added', old: null, new: 1, text: '-- a\n' },
    { kind: 'context', old: 2, new: 2, text: 'local x\n' },
  ]);
  await visit(page, '#/submissions/2/diff');
  const row = page.locator('.diff tbody tr').last();
  assert.deepEqual(await row.locator('code').allInnerTexts(), ['local x', 'local x']);
  assert.equal(await row.locator('code').first().locator('.hljs-comment').count(), 1);
  assert.equal(await row.locator('code').last().locator('.hljs-comment').count(), 0);
  assert.equal(await row.locator('code').last().locator('.hljs-keyword').count(), 1);
});

pageTest('of a very long diff the first lines are shown', async (page) => {
  const count = 1 << 16;
  const lines = Array.from({ length: count }, (_, index) => ({ kind: 'added', old: null, new: index + 1, text: '\n' }));
  await tellScripts(page, '', '\n'.repeat(count), lines);
  await visit(page, '#/submissions/2/diff');
  await page.getByText(`The first 3000 of ${count} lines`).waitFor();
  assert.equal(await page.locator('.diff td.added code').count(), 3000);
});

pageTest('a change within the intervals is neither better nor worse', async (page) => {
  await visit(page, '#/submissions/2/diff');
  const change = (metric) =>
    page
      .locator('tr', { has: page.getByRole('rowheader', { name: metric, exact: true }) })
      .first()
      .locator('.change')
      .getAttribute('class');
  assert.equal(await change('Accuracy (%)'), 'change same'); // 91–99 before, 89–97 after
  assert.equal(await change('Speed (× dense)'), 'change better');
  await page.getByText('Measured with several suites:').waitFor();
  await visit(page, '#/submissions/4/diff');
  assert.equal(await change('Accuracy (%)'), 'change worse');
  assert.ok(await page.getByText('Measured with several').isHidden());
});

pageTest('compare wants two to six that exist', async (page) => {
  await visit(page, '#/compare?ids=1');
  await page.getByText('Name two to 6 submissions').waitFor();
  await visit(page, '#/compare?ids=1,x');
  await page.getByRole('alert').getByText('"x" is not the number of a submission').waitFor();
});
