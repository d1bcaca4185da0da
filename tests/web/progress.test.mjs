import assert from 'node:assert/strict';
import { becomes, column, pageTest, settled, visit } from './site.mjs';

pageTest('progress shows every verdict and the best so far', async (page) => {
  await visit(page, '#/progress');
  await page.getByRole('img', { name: /124 verdicts by time; the best so far is 97.0 %/ }).waitFor();
  await page.getByRole('button', { name: 'Judged' }).click();
  assert.deepEqual((await column(page, 'Accuracy (%) by', 'Accuracy (%)')).slice(0, 4), ['95.0', '93.0', '97.0', '80.0']);
  assert.deepEqual((await column(page, 'Accuracy (%) by', 'Best so far')).slice(0, 4), ['95.0', '95.0', '97.0', '97.0']);
});

pageTest('another metric, by agent', async (page) => {
  await visit(page, '#/progress');
  await page.getByLabel('metric').selectOption('speedup');
  await page.getByRole('img', { name: /the best so far is 2.60 × dense/ }).waitFor();
  await page.getByLabel('agent').selectOption('evolver-17');
  await becomes(() => column(page, 'Speed', 'Submission'), ['#5 both parents']);
  assert.match(page.url(), /agent=evolver-17&metric=speedup/);
  await page.reload();
  await settled(page);
  await becomes(() => column(page, 'Speed', 'Submission'), ['#5 both parents']);
  await page.getByLabel('metric').selectOption('pages_read');
  await page.getByRole('img', { name: /the best so far is 12.5 %/ }).waitFor();
});

pageTest('progress over several suites says so, and can be kept to one', async (page) => {
  await visit(page, '#/progress');
  await page.getByText('Measured with several suites:').waitFor();
  await page.getByLabel('suite').selectOption('quick');
  await page.getByText('Measured with several suites:').waitFor({ state: 'hidden' });
  await becomes(async () => (await column(page, 'Accuracy (%) by', 'Submission')).includes('#1 quest'), false);
});
