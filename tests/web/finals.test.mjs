import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Server } from './server.mjs';
import { column, openPage, settled } from './site.mjs';

const kBest = '<img src=x onerror=alert(1)>'; // on the final model

let own; // a server whose folder has finals

before(async () => {
  own = await Server.withFinals();
});
after(() => own?.stop());

/** A test with a page of that server. */
function finalsTest(name, hash, body) {
  test(name, async () => {
    const { page, faults, close } = await openPage({ at: own.address });
    try {
      await page.goto(`${own.address}/${hash}`);
      await settled(page);
      await body(page);
      assert.deepEqual(faults, []);
    } finally {
      await close();
    }
  });
}

finalsTest('the board goes by the final model, and has the scores of both', '#/', async (page) => {
  const names = await column(page, 'Submissions', 'Name');
  assert.deepEqual(names.slice(0, 3), [kBest, 'quest', 'both parents']);
  assert.match(names[3], /^averylongname/);
  const last = await column(page, 'Submissions', 'Score on smollm2 (%)');
  assert.match(last[0], /^81\.0/);
  assert.equal(last[3], 'below threshold');
  const first = await column(page, 'Submissions', 'Score on mini (%)');
  assert.match(first[2], /^97\.0/);
  assert.match(await page.locator('.count').first().innerText(), /^10 submissions/);
  await page.getByLabel('model').selectOption('smollm2');
  await page.getByText('4 submissions').waitFor();
  await page.getByLabel('model').selectOption('mini');
  await page.getByText('10 submissions').waitFor();
  assert.equal((await column(page, 'Submissions', 'Name'))[0], 'both parents');
  assert.match(page.url(), /model=mini/);
});

finalsTest('the board says where the models disagree', '#/', async (page) => {
  const section = page.locator('section', { has: page.getByRole('heading', { name: 'Where mini and smollm2 disagree' }) });
  await section.getByText('4 flows were judged on both models, 3 passed on both.').waitFor();
  assert.deepEqual(await column(page, 'In opposite order', 'Better on smollm2'), [kBest]); // the others have other suites
  assert.deepEqual(await column(page, 'In opposite order', 'Better on mini'), ['both parents']);
  assert.deepEqual(await column(page, 'Passed on one alone', 'smollm2'), ['below threshold']);
});

finalsTest('a submission shows what both models measured, and its final leads back', '#/submissions/5', async (page) => {
  const section = page.locator('section', { has: page.getByRole('heading', { name: 'Final', exact: true }) });
  await section.getByText('passed').first().waitFor();
  assert.match((await column(page, 'Both models', 'smollm2'))[0], /^52\.0/);
  assert.match((await column(page, 'Both models', 'mini'))[0], /^97\.0/);
  await section.getByRole('link').click();
  await page.getByText('Final of').waitFor();
  await page.getByRole('link', { name: '#5', exact: true }).first().click();
  await page.getByRole('heading', { name: /^#5 both parents/ }).waitFor();
});

finalsTest('the queue names finals', '#/queue', async (page) => {
  await page.getByText('final of #5 on smollm2').first().waitFor();
});
