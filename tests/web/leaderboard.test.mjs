import assert from 'node:assert/strict';
import { becomes, column, drawn, kCount, noteDrawing, pageTest, points, settled, visit } from './site.mjs';

const kTable = 'Submissions';
const names = (page) => column(page, kTable, 'Name');
const count = (page) => page.locator('.count').innerText();

pageTest('the leaderboard shows every attempt, the best score first, failed ones at the end', async (page) => {
  await visit(page, '#/');
  assert.equal(await count(page), `${kCount} submissions`);
  assert.deepEqual((await names(page)).slice(0, 3), ['both parents', 'quest', '<img src=x onerror=alert(1)>']);
  assert.match((await column(page, kTable, 'Accuracy (%)'))[0], /^97\.0\s*93\.0–100\.0$/);
  await page.getByRole('button', { name: 'Last' }).click();
  const statuses = await column(page, kTable, 'Status');
  for (const status of ['rejected static', 'incorrect numerical', 'timeout', 'runtime error', 'cancelled'])
    assert.ok(statuses.includes(status), status);
});

pageTest('what is confirmed is said in words, and its confirmed figures stand in tables and on the front', async (page) => {
  await visit(page, '#/');
  const [listed, bases, scores] = await Promise.all([names(page), column(page, kTable, 'Basis'), column(page, kTable, 'Score (%)')]);
  const place = listed.indexOf('<img src=x onerror=alert(1)>');
  assert.equal(bases[place], 'confirmed');
  assert.equal(bases[listed.indexOf('quest')], 'judged');
  assert.match(scores[place], /^88\.0\s*85\.0–91\.0$/);
  const front = await column(page, 'The front', 'Basis');
  assert.deepEqual(front, ['judged', 'judged', 'confirmed', 'judged']);
  assert.match((await column(page, 'The front', 'Score (%)'))[2], /^88\.0/);
});

pageTest('headers sort, say so, and the address keeps it', async (page) => {
  await visit(page, '#/');
  const header = (name) => page.locator('thead th', { has: page.getByRole('button', { name, exact: true }) }).last();
  await page.getByRole('button', { name: 'Speed (× dense)' }).click();
  assert.equal(await header('Speed (× dense)').getAttribute('aria-sort'), 'descending');
  assert.equal(await header('Accuracy (%)').getAttribute('aria-sort'), null);
  assert.equal((await names(page))[0], 'tiny budget');
  await page.getByRole('button', { name: 'Speed (× dense)' }).click();
  assert.equal(await header('Speed (× dense)').getAttribute('aria-sort'), 'ascending');
  const speeds = (await column(page, kTable, 'Speed (× dense)')).map(Number.parseFloat);
  assert.deepEqual(
    speeds,
    [...speeds].sort((a, b) => a - b),
  );
  await page.reload();
  await settled(page);
  assert.equal(await header('Speed (× dense)').getAttribute('aria-sort'), 'ascending');
  for (const name of ['#', 'Name', 'Agent', 'Status', 'Handed in']) {
    await page.getByRole('button', { name, exact: true }).click();
    assert.notEqual(await header(name).getAttribute('aria-sort'), null, name);
  }
});

pageTest('filters by agent, status, model, device, suite and text', async (page) => {
  await visit(page, '#/');
  await page.getByLabel('agent').selectOption('evolver-17');
  await becomes(() => count(page), '3 submissions');
  await page.getByLabel('status').selectOption('below_threshold');
  await becomes(() => count(page), '1 submission');
  assert.deepEqual(await names(page), ['tiny budget']);
  assert.match(page.url(), /agent=evolver-17&status=below_threshold/);
  await page.getByRole('button', { name: 'Clear' }).click();
  await becomes(() => count(page), `${kCount} submissions`);
  await page.getByLabel('text').fill('pages by their bounding box');
  await page.getByLabel('text').press('Enter');
  await becomes(() => count(page), `${kCount - 1} submissions`); // one has another comment in its script
  await page.getByLabel('text').fill('crashing');
  await page.getByLabel('text').press('Enter');
  await becomes(() => names(page), ['crashing']);
  await page.reload();
  await becomes(() => names(page), ['crashing']);
  await visit(page, '#/?suite=full&device=cpu&model=mini');
  const all = await column(page, kTable, 'Suite');
  assert.ok(all.length > 0 && all.every((suite) => suite === 'full'));
  await visit(page, '#/?model=other');
  await becomes(() => count(page), '0 submissions');
  await page.getByText('No submission is like that').waitFor();
});

pageTest('results of several suites are said not to compare, and one suite is a click away', async (page) => {
  await visit(page, '#/');
  const notice = page.getByText('Measured with several suites:');
  await notice.waitFor();
  await page.getByRole('button', { name: 'suite full' }).click();
  await notice.waitFor({ state: 'hidden' });
  assert.match(page.url(), /suite=full/);
  assert.ok((await column(page, kTable, 'Suite')).every((suite) => suite === 'full'));
  assert.equal(await page.evaluate(() => document.activeElement.name), 'suite');
});

pageTest('pages turn, and the address keeps the page', async (page) => {
  await visit(page, '#/?sort=id');
  assert.equal((await names(page)).length, 50);
  await page.getByRole('button', { name: 'Next' }).click();
  await page.getByText(`51–100 of ${kCount}`).waitFor();
  assert.equal((await column(page, kTable, '#'))[0], String(kCount - 50));
  await page.reload();
  await page.getByText(`51–100 of ${kCount}`).waitFor();
  await page.getByRole('button', { name: 'Last' }).click();
  await page.getByText(`101–${kCount} of ${kCount}`).waitFor();
  assert.ok(await page.getByRole('button', { name: 'Next' }).isDisabled());
});

pageTest('the front stands beside the points, and follows the filters', async (page) => {
  await visit(page, '#/');
  const front = () => column(page, 'The front', 'Name');
  assert.deepEqual((await front()).slice(0, 3), ['both parents', 'quest', '<img src=x onerror=alert(1)>']);
  assert.equal((await front()).length, 4);
  await page.getByLabel('agent').selectOption('evolver-17');
  await becomes(front, ['both parents']);
});

/** A colour of the theme, as a canvas names it. */
const colour = (page, name) =>
  page.evaluate((variable) => {
    const probe = document.body.appendChild(document.createElement('span'));
    probe.style.color = `var(--${variable})`;
    const context = document.createElement('canvas').getContext('2d');
    context.fillStyle = getComputedStyle(probe).color;
    probe.remove();
    return context.fillStyle;
  }, name);

for (const colorScheme of ['light', 'dark']) {
  pageTest(
    `intervals are not taken for the front, in ${colorScheme}`,
    async (page) => {
      await noteDrawing(page);
      await visit(page, '#/');
      await becomes(async () => (await drawn(page)).texts.includes('95% interval'), true);
      assert.ok((await drawn(page)).texts.includes('line of the front'));
      const { strokes } = await drawn(page);
      const widths = (wanted) => strokes.filter((stroke) => stroke.colour === wanted).map(({ width }) => width);
      const front = widths(await colour(page, 'accent'));
      const whiskers = widths(await colour(page, 'text'));
      assert.ok(front.length > 0 && whiskers.length > 0, JSON.stringify(strokes));
      assert.ok(Math.min(...front) >= 3 * Math.max(...whiskers), `${front} and ${whiskers}`);
    },
    { colorScheme },
  );
}

pageTest('a click on a point opens its submission; dominated points can be hidden', async (page) => {
  await visit(page, '#/');
  await page.locator('.drawing canvas').waitFor();
  const drawing = page.getByRole('img', { name: /Scatter of \d+ submissions/ });
  assert.match(await drawing.getAttribute('aria-label'), /Scatter of 125 submissions .* 4 of them on the front/);
  await becomes(async () => (await points(page)).length > 4, true); // more than the legend's
  const all = await points(page);
  await page.getByLabel('only the front').check();
  assert.match(await drawing.getAttribute('aria-label'), /Scatter of 4 submissions/);
  assert.match(page.url(), /points=front/);
  const front = await points(page);
  assert.ok(front.length > 4 && front.length < all.length, `${front.length} of ${all.length}`);
  // The lowest, since entries of the legend can be clicked, too; in its middle.
  const lowest = front.filter(({ x, y }) => Math.hypot(x - front.at(-1).x, y - front.at(-1).y) < 12);
  const middle = (key) => lowest.reduce((sum, point) => sum + point[key], 0) / lowest.length;
  await page.mouse.click(middle('x'), middle('y'));
  await page.getByRole('heading', { name: /^#6 averylongname/ }).waitFor();
});

pageTest('ticked submissions are compared', async (page) => {
  await visit(page, '#/');
  await page.getByLabel('Compare 5, both parents').check();
  await page.getByText('Tick two to six').waitFor();
  await page.getByLabel('Compare 1, quest').check();
  await page.getByRole('link', { name: 'Compare 2' }).click();
  await page.getByRole('columnheader', { name: '#5 both parents' }).waitFor();
  await page.getByRole('columnheader', { name: '#1 quest' }).waitFor();
});
