import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';

const kSources = fileURLToPath(new URL('../../agents/web/src', import.meta.url));
const kMarkup =
  /\b(innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|srcdoc|setHTML\w*|eval)\b|document\.write|new Function/;

function filesBelow(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

/** Without comments, which may name what the code must not use. */
const code = (path) => readFileSync(path, 'utf8').replace(/\/\*[^]*?\*\/|\/\/ .*/g, '');

test('no source makes markup of strings', () => {
  const scripts = filesBelow(kSources).filter((path) => path.endsWith('.ts'));
  assert.ok(scripts.length > 10);
  assert.deepEqual(
    scripts.filter((path) => kMarkup.test(code(path))),
    [],
  );
});

test('no source names another host', () => {
  const named = filesBelow(kSources).filter((path) => /https?:\/\/(?!www\.w3\.org\/2000\/svg)/.test(readFileSync(path, 'utf8')));
  assert.deepEqual(named, []);
});
