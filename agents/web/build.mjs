// Bundles the page and writes it as a C++ source, so that the program holds it: node build.mjs FOLDER
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2];
if (!folder) throw new Error('usage: node build.mjs FOLDER');
mkdirSync(folder, { recursive: true });

const { metafile } = await build({
  entryPoints: { app: join(here, 'src/main.ts'), style: join(here, 'src/style.css') },
  outdir: folder,
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  charset: 'utf8',
  legalComments: 'eof',
  logLevel: 'warning',
  metafile: true,
});

/** The licenses of all packages of which something is in the bundle. */
function licenses() {
  const inputs = Object.keys(metafile.inputs).map((path) => path.match(/^.*node_modules\/((@[^/]+\/)?[^/]+)/));
  const packages = new Map(inputs.filter((found) => found).map((found) => [found[1], resolve(found[0])]));
  return [...packages].sort().map(([name, path]) => {
    const file = readdirSync(path).find((entry) => /^licen[cs]e/i.test(entry));
    const { version, license } = JSON.parse(readFileSync(join(path, 'package.json')));
    return `${name} ${version}, ${license}\n\n${file ? readFileSync(join(path, file), 'utf8').trim() : ''}\n`;
  });
}
writeFileSync(join(folder, 'licenses.txt'), licenses().join(`\n${'-'.repeat(80)}\n\n`));

/** By their addresses; the bundles from the folder, the rest as it stands in the sources. */
const files = [
  { address: '/', mediaType: 'text/html; charset=utf-8', path: join(here, 'src/index.html') },
  { address: '/web/app.js', mediaType: 'text/javascript; charset=utf-8', path: join(folder, 'app.js') },
  { address: '/web/style.css', mediaType: 'text/css; charset=utf-8', path: join(folder, 'style.css') },
  { address: '/web/licenses.txt', mediaType: 'text/plain; charset=utf-8', path: join(folder, 'licenses.txt') },
  { address: '/web/icon.svg', mediaType: 'image/svg+xml', path: join(here, 'src/icon.svg') },
];

/** A C++ string literal; octal escapes end after three digits, so that what follows is never part of them. */
function literal(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 4096) {
    let line = '';
    for (const byte of bytes.subarray(at, at + 4096)) {
      const plain = byte >= 32 && byte < 127 && byte !== 34 && byte !== 63 && byte !== 92; // no quote, trigraph, backslash
      line += plain ? String.fromCharCode(byte) : '\\' + byte.toString(8).padStart(3, '0');
    }
    lines.push(`    "${line}"`);
  }
  return lines.join('\n');
}

const entries = files.map(({ address, mediaType, path }) => {
  const bytes = readFileSync(path);
  const tag = createHash('sha256').update(bytes).digest('hex').slice(0, 32);
  return `  {"${address}", "${mediaType}", "\\"${tag}\\"", std::string_view(\n${literal(bytes)},\n    ${bytes.length})},\n`;
});

writeFileSync(
  join(folder, 'web_files.cpp'),
  `// Written by agents/web/build.mjs.
#include "agents/web/web_files.h"

namespace sluice {

std::span<const WebFile> web_files() {
  static constexpr WebFile kFiles[] = {
${entries.join('')}  };
  return kFiles;
}

}  // namespace sluice
`,
);
