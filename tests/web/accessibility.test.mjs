import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { becomes, pageTest, visit } from './site.mjs';

const kAxe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const kViews = [
  '#/',
  '#/?text=nothing',
  '#/submissions/1',
  '#/submissions/3',
  '#/lineage',
  '#/lineage/2',
  '#/submissions/2/diff',
  '#/submissions/2/diff?view=unified',
  '#/compare?ids=1,2,4&show=all',
  '#/progress',
  '#/queue',
  '#/nowhere',
];

/** Rules that the page breaks so that somebody cannot use it. */
async function serious(page) {
  await page.evaluate(kAxe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html)}`);
}

for (const colorScheme of ['light', 'dark']) {
  // axe looks at colours with a canvas and needs no markup; it is no part of the page, which the policy would refuse.
  pageTest(
    `nobody is kept out, in ${colorScheme}`,
    async (page) => {
      for (const view of kViews) {
        await visit(page, view);
        assert.deepEqual(await serious(page), [], view);
      }
    },
    { colorScheme, bypassCSP: true },
  );
}

pageTest(
  'every view fits a screen of 320 pixels',
  async (page) => {
    for (const view of [...kViews, '#/submissions/6', '#/lineage/6', '#/compare?ids=1,2,3,4,5,6']) {
      await visit(page, view);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(over, 0, view);
    }
  },
  { viewport: { width: 320, height: 640 } },
);

pageTest('the theme follows the system until one is chosen, and the choice stays', async (page) => {
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  await visit(page, '#/');
  const light = await ground();
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await ground();
  assert.notEqual(dark, light);
  await page.getByLabel('Theme').selectOption('light');
  await becomes(ground, light);
  await page.reload();
  await becomes(ground, light);
  await page.getByLabel('Theme').selectOption('dark');
  await page.emulateMedia({ colorScheme: 'light' });
  await becomes(ground, dark);
});
