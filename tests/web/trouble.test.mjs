import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { Server } from './server.mjs';
import { kBroken, pageTest, server, settled, visit } from './site.mjs';

const kRefused = [/404 \(Not Found\)|400 \(Bad Request\)|422 \(Unprocessable Entity\)/];

pageTest(
  'what is not there is said to be missing',
  async (page) => {
    await visit(page, '#/nowhere');
    await page.getByRole('alert').getByText('there is no view at this address').waitFor();
    await visit(page, '#/submissions/99999');
    await page.getByRole('alert').getByText('99999').waitFor();
    await visit(page, '#/lineage/99999');
    await page.getByRole('alert').getByText('99999').waitFor();
    assert.equal(await page.getByRole('table').count(), 0);
    await visit(page, '#/?status=bogus');
    await page.getByRole('alert').getByText('bogus').waitFor();
    assert.equal(await page.getByText('Nothing has passed').isVisible(), false);
    assert.equal(await page.getByRole('table').count(), 0);
    await visit(page, '#/submissions/abc');
    await page.getByRole('alert').getByText('"abc" is not the number of a submission').waitFor();
    await visit(page, '#/submissions/1/diff?from=99999');
    await page.getByRole('alert').getByText('99999').waitFor();
  },
  { expects: kRefused },
);

pageTest(
  'a server that is away is said to be, and tried again when asked',
  async (page) => {
    await visit(page, '#/');
    await server.restart(async () => {
      await page.getByRole('navigation').getByRole('link', { name: 'Progress' }).click();
      await page.getByRole('alert').getByText('the server cannot be reached').waitFor();
    });
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('img', { name: /verdicts by time/ }).waitFor();
    assert.equal(await page.getByRole('alert').count(), 0);
  },
  { expects: kBroken },
);

pageTest('a browser that blocks the data of sites shows the page all the same', async (page) => {
  await page.addInitScript(() =>
    Object.defineProperty(window, 'localStorage', {
      get() {
        throw new DOMException('Access is denied for this document.', 'SecurityError');
      },
    }),
  );
  await visit(page, '#/');
  await page.getByLabel('Theme').selectOption('dark');
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
});

let empty;
before(async () => {
  empty = await Server.start();
});
after(() => empty?.stop());

pageTest('an empty board says so in every view', async (page) => {
  await page.context().unrouteAll();
  const said = {
    '': 'No submission is like that',
    progress: 'Nothing was measured',
    lineage: 'There is no submission yet',
    queue: 'Nothing waits',
    compare: 'Name two to 6',
  };
  for (const [view, words] of Object.entries(said)) {
    await page.goto(`${empty.address}/#/${view}`);
    await settled(page);
    await page.getByText(words).first().waitFor();
  }
});
