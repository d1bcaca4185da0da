// What the tests share: the server, the browser, and pages that are watched for what must not happen.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';
import { Server } from './server.mjs';

const kPatience = 30000; // ms: how long a state may take on a busy machine
const kVariants = 120; // beside the ten submissions that the tests know by heart
export const kCount = kVariants + 10;

/** What a browser says of a server that went away, for tests that expect it. */
export const kBroken = [/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/];

const kFlags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'];
const kMoreFlags = ['--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'];

export let server;
let browser;

before(async () => {
  server = await Server.seeded(kVariants);
  // Its profile is a folder of its own, which goes with it.
  browser = await chromium.launch({
    executablePath: process.env.SLUICE_CHROMIUM,
    headless: true,
    args: [...kFlags, ...kMoreFlags],
  });
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** A page of its own in a fresh context, of the server `at`. Anything on its console, any dialog and any request elsewhere is noted in `faults`. */
export async function openPage({ at = server.address, ...options } = {}) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    timezoneId: 'UTC',
    reducedMotion: 'reduce',
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(kPatience);
  const faults = [];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && faults.push(`console: ${message.text()}`));
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
  page.on('dialog', (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  await context.route('**/*', (route) => {
    const address = route.request().url();
    if (address.startsWith(at)) return route.continue();
    faults.push(`request to ${address}`);
    return route.abort();
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) =>
      console.error(`refused by the policy: ${event.violatedDirective}`),
    );
  });
  const close = async () => {
    // A view that loads once more may still ask: what answers in the server's place finds its page gone.
    await Promise.all([page, context].map((routed) => routed.unrouteAll({ behavior: 'ignoreErrors' })));
    await context.close();
  };
  return { page, faults, close };
}

/** Goes to a view and waits until it is there. */
export async function visit(page, hash) {
  await page.goto(`${server.address}/${hash}`);
  await settled(page);
}

/** Goes to a view from another that has the stream of events, so that its beginning does not make the view load once more. */
export async function visitLive(page, hash) {
  await visit(page, '#/queue');
  await page.locator('.live.live').waitFor();
  await page.goto(`${server.address}/${hash}`);
}

/** Keeps the stream of events from beginning until what it returns is called. A view that is there by then loads once more. */
export async function holdEvents(page) {
  let release;
  const released = new Promise((resolve) => (release = resolve));
  await page.route('**/v1/events*', async (route) => {
    await released;
    await route.continue();
  });
  return release;
}

export async function settled(page) {
  await page.locator('main:not([aria-busy]) h1').waitFor();
}

/** What somebody would see who looked at a page. */
async function seenOn(page) {
  const [state, text] = await Promise.all([page.locator('#live').innerText(), page.locator('main').innerText()]);
  return `${page.url()} (${state}):\n${text.slice(0, 3000)}`;
}

/** A test with a page, in which nothing may have gone wrong at its end except what it `expects`. Where it fails it tells what was seen. */
export function pageTest(name, body, options = {}) {
  const { expects = [], ...context } = options;
  test(name, async (t) => {
    const opened = await openPage(context);
    try {
      await body(opened.page);
      assert.deepEqual(
        opened.faults.filter((fault) => !expects.some((pattern) => pattern.test(fault))),
        [],
      );
    } catch (error) {
      t.diagnostic(await seenOn(opened.page).catch((reason) => String(reason)));
      for (const fault of opened.faults) t.diagnostic(fault);
      throw error;
    } finally {
      await opened.close();
    }
  });
}

/** Waits until `read` gives `wanted`; fails with both. */
export async function becomes(read, wanted) {
  const deadline = Date.now() + kPatience;
  let value = await read();
  while (JSON.stringify(value) !== JSON.stringify(wanted) && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    value = await read();
  }
  assert.deepEqual(value, wanted);
}

/** Points of the chart, on the screen: wherever the mouse finds something to click on. Its legend is among them. */
export function points(page) {
  return page.locator('.drawing').evaluate((drawing) => {
    const target = drawing.querySelector('canvas');
    const box = target.getBoundingClientRect();
    const found = [];
    for (let y = box.top + 2; y < box.bottom; y += 4) {
      for (let x = box.left + 2; x < box.right; x += 4) {
        target.dispatchEvent(new MouseEvent('mousemove', { bubbles: true, clientX: x, clientY: y }));
        if (target.parentElement.style.cursor === 'pointer') found.push({ x, y });
      }
    }
    return found;
  });
}

/** From now on, views of the page note what they draw on canvases: `drawn` tells it. */
export function noteDrawing(page) {
  return page.addInitScript(() => {
    const drawn = { texts: [], strokes: [] };
    globalThis.drawn = drawn;
    const { fillText, stroke } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
      drawn.texts.push(text);
      return fillText.call(this, text, ...more);
    };
    CanvasRenderingContext2D.prototype.stroke = function (...more) {
      drawn.strokes.push({ colour: this.strokeStyle, width: this.lineWidth });
      return stroke.call(this, ...more);
    };
  });
}

/** {texts, strokes: {colour, width}} since the page was opened. */
export const drawn = (page) => page.evaluate(() => globalThis.drawn);

/**
 * Texts of a column of the table with this caption, by its header. They are read at once: of a table that a view has replaced
 * meanwhile, a browser would tell the texts as if there were no styles.
 */
export async function column(page, caption, header) {
  const table = page.locator('table', { has: page.locator('caption', { hasText: caption }) }).first();
  for (;;) {
    const rows = await table.evaluate(({ isConnected, rows }) =>
      isConnected ? Array.from(rows, ({ cells }) => Array.from(cells, (cell) => cell.innerText.trim())) : null,
    );
    if (rows === null) continue;
    const [titles, ...body] = rows;
    const index = titles.indexOf(header);
    assert.notEqual(index, -1, `${caption} has no column ${header}: ${titles}`);
    return body.flatMap((cells) => cells.slice(index, index + 1)); // none of a row that says that there are none
  }
}
