import assert from 'node:assert/strict';
import { column, pageTest, visit } from './site.mjs';

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
