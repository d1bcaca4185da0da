import assert from 'node:assert/strict';
import { becomes, column, drawn, noteDrawing, pageTest, points, settled, visit } from './site.mjs';

const kTable = 'Score (%) by';

pageTest('progress shows every verdict and the best so far', async (page) => {
  await visit(page, '#/progress');
  await page.getByRole('img', { name: /125 verdicts by time, 124 of them passed; the best so far is 97.0 %/ }).waitFor();
  await page.getByRole('button', { name: 'Judged' }).click();
  const first = async (header) => (await column(page, kTable, header)).slice(0, 5);
  assert.deepEqual((await first('Score (%)')).map(Number.parseFloat), [95, 93, 41, 97, 80]);
  assert.deepEqual(await first('Status'), ['passed', 'passed', 'below threshold', 'passed', 'passed']);
  assert.deepEqual(await first('Suite'), ['full', 'quick', 'full', 'quick', 'quick']);
  assert.deepEqual(await first('Best so far'), ['95.0', '95.0', '95.0', '97.0', '97.0']);
});

pageTest('what did not pass is no best', async (page) => {
  await visit(page, '#/progress?status=below_threshold');
  await page.getByRole('img', { name: '1 verdict by time, 0 of them passed. The table' }).waitFor();
  assert.deepEqual(await column(page, kTable, 'Submission'), ['#4 tiny budget']);
  assert.deepEqual(await column(page, kTable, 'Best so far'), ['–']);
});

pageTest('a point tells its submission, status and suite', async (page) => {
  await noteDrawing(page);
  await visit(page, '#/progress?status=below_threshold');
  await page.locator('.drawing canvas').waitFor();
  await becomes(async () => (await points(page)).length > 0, true);
  const { x, y } = (await points(page)).at(-1);
  await page.mouse.move(x, y);
  const said = async (line) => (await drawn(page)).texts.includes(line);
  await becomes(() => said('#4 tiny budget'), true);
  await becomes(() => said('evolver-17 · below threshold · suite full'), true);
});

pageTest('another metric, by agent', async (page) => {
  await visit(page, '#/progress');
  await page.getByLabel('metric').selectOption('speedup');
  await page.getByRole('img', { name: /the best so far is 2.60 × dense/ }).waitFor();
  await page.getByLabel('agent').selectOption('evolver-17');
  await becomes(() => column(page, 'Speed', 'Submission'), ['#5 both parents', '#4 tiny budget']);
  assert.match(page.url(), /agent=evolver-17&metric=speedup/);
  await page.reload();
  await settled(page);
  await becomes(() => column(page, 'Speed', 'Submission'), ['#5 both parents', '#4 tiny budget']);
  await page.getByLabel('metric').selectOption('pages_read');
  await page.getByRole('img', { name: /the best so far is 12.5 %/ }).waitFor();
});

pageTest('progress over several suites says so, and can be kept to one', async (page) => {
  await visit(page, '#/progress');
  await page.getByText('Measured with several suites:').waitFor();
  await page.getByLabel('suite').selectOption('quick');
  await page.getByText('Measured with several suites:').waitFor({ state: 'hidden' });
  await becomes(async () => (await column(page, kTable, 'Submission')).includes('#1 quest'), false);
});
