import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { becomes, column, kCount, pageTest, server, settled, visit, visitLive } from './site.mjs';

const kFlow = readFileSync(new URL('../../scripting/flows/block_topk.lua', import.meta.url), 'utf8');

const places = (page) =>
  page
    .locator('.layered .box')
    .evaluateAll((boxes) =>
      Object.fromEntries(boxes.map((box) => [box.dataset.id, box.querySelector('rect').getBoundingClientRect().left])),
    );

const kFamilies = kCount - 5; // six of the ten that the tests know are one family
const families = (page, header) => column(page, 'Families', header);

pageTest('without a number all families are there to choose from, the newest first', async (page) => {
  await visit(page, '#/lineage');
  await page.getByText(`${kFamilies} of ${kFamilies} families`).waitFor();
  const times = await families(page, 'Newest member');
  assert.equal(times.length, 50);
  assert.deepEqual(times, [...times].sort().reverse());
  await page.getByRole('button', { name: 'Last' }).click();
  assert.deepEqual((await families(page, 'Family of')).slice(-5), [
    'cancelled one',
    'crashing',
    'too slow',
    'wrong numbers',
    'quest',
  ]);
  assert.equal((await families(page, 'Status')).at(-2), 'incorrect numerical');
  await page.getByRole('link', { name: 'quest', exact: true }).press('Enter');
  await page.getByRole('heading', { name: 'Lineage of #1' }).waitFor();
  await page.getByRole('link', { name: 'All families' }).click();
  await page.getByText(`${kFamilies} of ${kFamilies} families`).waitFor();
});

pageTest('a family is found by any of its members', async (page) => {
  await visit(page, '#/lineage');
  const search = page.getByLabel('any member');
  for (const text of ['both parents', 'EVOLVER-17', '#4']) {
    await search.fill(text);
    await becomes(async () => (await families(page, 'Family of')).includes('quest'), true);
    assert.ok((await families(page, 'Family of')).length <= 2, text);
  }
  assert.deepEqual(await families(page, 'Descendants'), ['5']);
  assert.deepEqual(await families(page, 'Best score'), ['both parents']);
  assert.match((await families(page, 'Score (%)'))[0], /^97\.0/);
  await page.reload();
  await settled(page);
  assert.deepEqual(await families(page, 'Family of'), ['quest']);
  await search.fill('');
  await page.getByLabel('only with descendants').check();
  await becomes(async () => (await families(page, 'Descendants')).includes('0'), false);
  assert.ok((await families(page, 'Family of')).includes('quest'));
  assert.match(page.url(), /lineage\?related=yes$/);
  await search.fill('nobody');
  await page.getByText('No family is like that').waitFor();
});

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

/** Made of each other over many layers: lines from old to new ones lead past all between. */
const kEntangled = Array.from({ length: 40 }, (_, index) => {
  const id = index + 1;
  const from = [id - 1, id - 3, Math.floor(id / 2), (id * 7) % 11].filter((one) => one > 0 && one < id);
  return { id, from: [...new Set(from)] };
});

const kStep = 5; // pixels between points of a line that are looked at

/** Lines that are more than a pixel inside of a box, or leave the drawing. */
const faultsOfLines = (page) =>
  page.locator('.layered').evaluate((drawing, step) => {
    const inside = (area, { x, y }) =>
      x > area.x + 1 && x < area.x + area.width - 1 && y > area.y + 1 && y < area.y + area.height - 1;
    const boxes = [...drawing.querySelectorAll('.box')].map((box) => ({
      id: box.dataset.id,
      area: box.querySelector('rect').getBBox(),
    }));
    return [...drawing.querySelectorAll('.edge')].flatMap((edge) => {
      const points = Array.from({ length: Math.ceil(edge.getTotalLength() / step) }, (_, at) => edge.getPointAtLength(step * at));
      const behind = boxes.filter(({ area }) => points.some((point) => inside(area, point))).map(({ id }) => `behind ${id}`);
      const is_out = points.some((point) => !inside(drawing.viewBox.baseVal, point));
      return [...behind, ...(is_out ? ['out of the drawing'] : [])];
    });
  }, kStep);

pageTest('lines of a family run behind no box', async (page) => {
  const { submissions } = await server.get('/v1/submissions?limit=1');
  const nodes = kEntangled.map(({ id, from }) => ({ ...submissions[0], id, name: `member ${id}`, parents: from }));
  await page.route(/\/lineage(\?|$)/, (route) => route.fulfill({ json: { nodes, total: nodes.length, next: '' } }));
  await visit(page, '#/lineage/7');
  assert.ok((await page.locator('.layered .edge').count()) > 80);
  assert.deepEqual(await faultsOfLines(page), []);
});

pageTest('lines of a flow run behind no box', async (page) => {
  const nodes = kEntangled.map(({ id, from }) => ({
    id,
    op: 'mul',
    stage: 'index',
    type: 'f32',
    shape: '',
    inputs: from,
    text: '',
  }));
  await page.route('**/artifacts/graph.json', (route) => route.fulfill({ json: { nodes, fields: [] } }));
  await visit(page, '#/submissions/1');
  assert.ok((await page.locator('.layered .edge').count()) > 80);
  assert.deepEqual(await faultsOfLines(page), []);
});

pageTest('a family is asked for by number', async (page) => {
  await visit(page, '#/lineage/2');
  await page.getByLabel('Family of #').fill('7');
  await page.getByRole('button', { name: 'Show' }).click();
  await page.getByRole('heading', { name: 'Lineage of #7' }).waitFor();
  await page.getByText('1 related').waitFor();
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

/** Waits until a page that is told of events has been told that a submission has ended. */
const told = (page, id) =>
  page.evaluate(
    ({ id }) =>
      new Promise((resolve) => {
        const events = new EventSource('/v1/events?after=0');
        events.addEventListener('finished', ({ data }) => {
          if (JSON.parse(data).submission !== id) return;
          events.close();
          setTimeout(resolve, 500); // the page has a stream of its own
        });
      }),
    { id },
  );

/** The next family that is asked for arrives as it was before what `meanwhile` does. What that gives. */
async function duringNextLoad(page, meanwhile) {
  return new Promise((resolve, reject) =>
    page
      .route(
        '**/lineage',
        async (route) => {
          const response = await route.fetch();
          await meanwhile().then(resolve, reject);
          await route.fulfill({ response });
        },
        { times: 1 },
      )
      .catch(reject),
  );
}

pageTest('what happens while a family is on its way is not missed', async (page) => {
  // The first time: a child is handed in and ends.
  const whole = duringNextLoad(page, async () => {
    const id = await submit('a child meanwhile', [7]);
    await told(page, id);
    return id;
  });
  await visitLive(page, '#/lineage/7');
  const child = await whole;
  await drawn(page, child);
  // Later: what comes is a child of one that is on its way itself.
  const grandchild = duringNextLoad(page, async () => {
    const id = await submit('a grandchild meanwhile', [await another]);
    await told(page, id);
    return id;
  });
  const another = submit('another child meanwhile', [7]);
  await drawn(page, await grandchild);
});

pageTest(
  'what happens while a family is tried again is not missed',
  async (page) => {
    const refused = { status: 503, json: { title: 'busy', detail: 'too many requests', hint: 'wait' } };
    await page.route('**/lineage', (route) => route.fulfill(refused), { times: 1 });
    await visitLive(page, '#/lineage/7');
    await page.getByRole('alert').waitFor();
    const child = duringNextLoad(page, async () => {
      const id = await submit('a child of a second try', [7]);
      await told(page, id);
      return id;
    });
    await page.getByRole('button', { name: 'Try again' }).click();
    await drawn(page, await child);
  },
  { expects: [/503/] },
);

pageTest(
  'one that cannot be looked up may be of the family',
  async (page) => {
    await visitLive(page, '#/lineage/7');
    await page.locator('.layered [data-id="7"]').waitFor();
    await page.route(/submissions\/\d+$/, (route) => route.fulfill({ status: 503, json: { title: 'busy', detail: 'busy' } }));
    await drawn(page, await submit('a child that nobody can look up', [7]));
  },
  { expects: [/503/] },
);

pageTest('families grow and become one while they are looked at', async (page) => {
  await visitLive(page, '#/lineage');
  await settled(page);
  await submit('a child of eight', [8]);
  await becomes(async () => (await families(page, 'Family of'))[0], 'too slow');
  assert.equal((await families(page, 'Descendants'))[0], '1');
  await submit('a child of eight and nine', [8, 9]);
  await becomes(async () => (await families(page, 'Family of'))[0], 'too slow and 1 more');
  assert.equal((await families(page, 'Descendants'))[0], '2');
});
