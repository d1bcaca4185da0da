import assert from 'node:assert/strict';
import { becomes, column, holdEvents, pageTest, settled, visit, visitLive } from './site.mjs';

const kMostTabs = 200;

/** What has the focus, and whether one can see it. */
const focused = (page) =>
  page.evaluate(() => {
    const active = document.activeElement;
    const style = getComputedStyle(active);
    const rect = active.querySelector('rect');
    const seen = style.outlineStyle !== 'none' || (rect !== null && getComputedStyle(rect).strokeWidth === '4px');
    return {
      text:
        active.querySelector(':scope > title')?.textContent ??
        active.getAttribute('aria-label') ??
        active.labels?.[0]?.textContent ??
        active.textContent.trim(),
      seen,
    };
  });

/** Presses Tab until something called `name` has the focus; whatever has it on the way must show it. */
async function tabTo(page, name) {
  for (let i = 0; i < kMostTabs; ++i) {
    await page.keyboard.press('Tab');
    const { text, seen } = await focused(page);
    assert.ok(seen, `the focus on "${text}" cannot be seen`);
    if (name.test(text)) return;
  }
  assert.fail(`Tab does not lead to ${name}`);
}

pageTest('the content can be reached at once', async (page) => {
  await visit(page, '#/');
  await page.keyboard.press('Tab');
  assert.equal((await focused(page)).text, 'Skip to the content');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  await page.keyboard.press('Tab');
  assert.match((await focused(page)).text, /^agent/);
});

pageTest('the leaderboard works by keys alone', async (page) => {
  await visit(page, '#/');
  await tabTo(page, /^agent/);
  await page.keyboard.type('ev');
  await becomes(() => page.locator('.count').innerText(), '3 submissions');
  await tabTo(page, /^only the front$/);
  await page.keyboard.press('Space');
  await page.getByRole('img', { name: /Scatter of 1 submissions/ }).waitFor();
  await tabTo(page, /^Name$/);
  await page.keyboard.press('Enter');
  assert.deepEqual(await column(page, 'Submissions', 'Name'), ['both parents', 'crashing', 'tiny budget']);
  assert.equal((await focused(page)).text, 'Name');
  await tabTo(page, /^Compare 5, both parents$/);
  await page.keyboard.press('Space');
  await tabTo(page, /^Compare 4, tiny budget$/);
  await page.keyboard.press('Space');
  for (let i = 0; !/^Compare 2$/.test((await focused(page)).text); ++i) {
    assert.ok(i < kMostTabs);
    await page.keyboard.press('Shift+Tab');
  }
  await page.keyboard.press('Enter');
  await page.getByRole('columnheader', { name: '#4 tiny budget' }).waitFor();
  await settled(page);
  assert.equal((await focused(page)).text, 'Compare');
});

pageTest('pages of the table turn by keys, and the focus stays', async (page) => {
  await visit(page, '#/');
  const next = page.getByRole('button', { name: 'Next' });
  await next.focus();
  do {
    assert.equal((await focused(page)).text, 'Next');
    await page.keyboard.press('Enter');
  } while (await next.isEnabled());
  // There is no page after this one: the nearest button that is left has it.
  assert.equal((await focused(page)).text, 'Previous');
  const first = page.getByRole('button', { name: 'First' });
  await first.focus();
  await page.keyboard.press('Enter');
  assert.equal((await focused(page)).text, 'Next');
  // The first page is longer than the last: its buttons are in sight all the same.
  assert.ok(await first.evaluate((button) => button.getBoundingClientRect().bottom < window.innerHeight + 1));
});

pageTest('a table that is shown anew moves neither the focus on the buttons that turn its pages nor the page', async (page) => {
  const release = await holdEvents(page);
  await visit(page, '#/');
  await page.getByRole('button', { name: 'Next' }).focus();
  await page.evaluate(() => {
    for (const row of document.querySelectorAll('tbody tr')) row.dataset.old = 'yes';
    window.scrollTo(0, 0);
  });
  release();
  await becomes(() => page.locator('[data-old]').count(), 0);
  assert.equal((await focused(page)).text, 'Next');
  assert.equal(await page.evaluate(() => window.scrollY), 0);
});

pageTest('where a table has no more pages to turn, it has the focus itself', async (page) => {
  await visitLive(page, '#/');
  await settled(page);
  await page.getByRole('button', { name: 'Next' }).focus();
  await page.getByLabel('agent').evaluate((select) => {
    select.value = 'evolver-17';
    select.dispatchEvent(new Event('change', { bubbles: true }));
  });
  await becomes(() => page.locator('.count').innerText(), '3 submissions');
  assert.equal((await focused(page)).text, 'Submissions');
});

pageTest(
  'what is tried again in vain leaves the focus where it was pressed, and on the title once it is there',
  async (page) => {
    let refused = 2;
    await page.route('**/v1/front*', (route) =>
      refused-- > 0 ? route.fulfill({ status: 503, json: { title: 'busy', detail: `busy, ${refused}` } }) : route.continue(),
    );
    await visitLive(page, '#/');
    const again = page.getByRole('button', { name: 'Try again' });
    await again.focus();
    await page.keyboard.press('Enter');
    await page.getByText('busy, 0').waitFor();
    assert.equal((await focused(page)).text, 'Try again');
    await page.keyboard.press('Enter');
    await again.waitFor({ state: 'detached' });
    assert.equal((await focused(page)).text, 'Leaderboard');
  },
  { expects: [/503/] },
);

pageTest('arrows walk through a family', async (page) => {
  await visit(page, '#/lineage/2');
  await tabTo(page, /^1, quest/);
  await page.keyboard.press('ArrowRight');
  assert.match((await focused(page)).text, /^(?!1,)/);
  await page.keyboard.press('ArrowLeft');
  assert.match((await focused(page)).text, /^1, quest/);
  await tabTo(page, /^5, both parents/);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: '#5 both parents' }).waitFor();
});

pageTest('views open by keys, and their titles have the focus', async (page) => {
  await visit(page, '#/');
  for (const name of ['Progress', 'Compare', 'Queue']) {
    await page.locator('.brand').focus();
    await tabTo(page, new RegExp(`^${name}$`));
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name }).waitFor();
    await becomes(() => page.evaluate(() => document.activeElement.tagName), 'H1');
    assert.equal(await page.title(), `${name} · Sluice`);
    assert.equal(await page.getByRole('navigation', { name: 'Views' }).locator('[aria-current=page]').innerText(), name);
  }
});
