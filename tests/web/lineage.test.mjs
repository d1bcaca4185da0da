import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { column, pageTest, server, visit, visitLive } from './site.mjs';

const kFlow = readFileSync(new URL('../../scripting/flows/block_topk.lua', import.meta.url), 'utf8');

const places = (page) =>
  page
    .locator('.layered .box')
    .evaluateAll((boxes) =>
      Object.fromEntries(boxes.map((box) => [box.dataset.id, box.querySelector('rect').getBoundingClientRect().left])),
    );

pageTest('the family is drawn in layers, children after their parents', async (page) => {
  await visit(page, '#/lineage/2');
  const at = await places(page);
  assert.deepEqual(Object.keys(at), ['1', '2', '3', '4', '5', '6']);
  for (const [parent, child] of [
    [1, 2],
    [2, 3],
    [1, 4],
    [2, 5],
    [4, 5],
    [1, 6],
  ])
    assert.ok(at[parent] < at[child], `${parent} before ${child}`);
  assert.equal(await page.locator('.layered .edge').count(), 6);
  assert.equal(await page.locator('.layered .chosen').getAttribute('data-id'), '2');
  assert.deepEqual(await column(page, 'The family', 'Parents'), ['', '#1', '#2', '#1', '#2, #4', '#1']);
  await page.locator('.layered [data-id="5"]').click();
  await page.getByRole('heading', { name: '#5 both parents' }).waitFor();
});

pageTest('a family is asked for by number', async (page) => {
  await visit(page, '#/lineage/2');
  await page.getByLabel('Family of #').fill('7');
  await page.getByRole('button', { name: 'Show' }).click();
  await page.getByRole('heading', { name: 'Lineage of #7' }).waitFor();
  await page.getByText('1 related').waitFor();
});

pageTest('without a number it is the family of the newest', async (page) => {
  await visit(page, '#/lineage');
  await page.getByRole('heading', { name: /Lineage of #\d+/ }).waitFor();
});

const submit = (name, parents) => server.submit({ name, script: `-- ${name}\n${kFlow}`, parents });
const drawn = (page, id) => page.locator(`.layered [data-id="${id}"].passed`).waitFor();

pageTest('a family is not loaded again for strangers', async (page) => {
  await visitLive(page, '#/lineage/7');
  await page.locator('.layered [data-id="7"]').waitFor();
  let loads = 0;
  await page.route('**/lineage', (route) => {
    ++loads;
    return route.continue();
  });
  for (const name of ['a stranger', 'another stranger', 'a third stranger']) {
    const id = await submit(name, []);
    await server.get(`/v1/submissions/${id}?wait=30`);
  }
  assert.equal(loads, 0);
  await submit('no stranger', [7]);
  await page
    .getByRole('link', { name: /no stranger/ })
    .first()
    .waitFor();
  assert.ok(loads > 0);
});

pageTest('a family stands where it was when it grows', async (page) => {
  await page.setViewportSize({ width: 500, height: 500 });
  await visitLive(page, '#/lineage/7');
  await page.locator('.layered [data-id="7"]').waitFor();
  const child = await submit('a child of seven', [7]);
  await drawn(page, child);
  await drawn(page, await submit('a grandchild of seven', [child]));
  const region = page.getByRole('region', { name: 'Family of submission 7' });
  await page.locator(`.layered [data-id="${child}"]`).focus();
  const left = await region.evaluate((element) => {
    element.scrollTo({ left: 60, behavior: 'instant' });
    return element.scrollLeft;
  });
  assert.ok(left > 0);
  await drawn(page, await submit('another child of seven', [7]));
  assert.equal(await region.evaluate((element) => element.scrollLeft), left);
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('data-id')), String(child));
});
