import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
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

/** Files that a source imports, types alone included. */
const imports = (path) => [...code(path).matchAll(/from '(\.[^']+)'/g)].map(([, name]) => `${join(dirname(path), name)}.ts`);

test('no sources import each other', () => {
  const done = new Set();
  const visit = (path, importers) => {
    const chain = [...importers, path];
    assert.ok(!importers.includes(path), chain.map((one) => relative(kSources, one)).join(' > '));
    if (done.has(path)) return;
    for (const imported of imports(path)) visit(imported, chain);
    done.add(path);
  };
  visit(join(kSources, 'main.ts'), []);
  assert.ok(done.size > 30);
});
