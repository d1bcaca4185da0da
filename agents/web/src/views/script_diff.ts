// The scripts of a diff, in two columns or one, with their syntax in colours.

import type { Diff, DiffLine } from '../documents';
import { element, scrollable, section, tableHead } from '../dom';

const kMostLines = 3000; // of which rows are made

interface Pair {
  left?: DiffLine;
  right?: DiffLine;
}

/** Lines of a hunk side by side: removed ones beside the added ones that took their place. */
function paired(lines: DiffLine[]): Pair[] {
  const pairs: Pair[] = [];
  let removed: DiffLine[] = [];
  let added: DiffLine[] = [];
  const flush = () => {
    for (let index = 0; index < Math.max(removed.length, added.length); ++index) {
      pairs.push({ left: removed[index], right: added[index] });
    }
    [removed, added] = [[], []];
  };
  for (const line of lines) {
    if (line.kind === 'removed') {
      if (added.length > 0) flush();
      removed.push(line);
    } else if (line.kind === 'added') {
      added.push(line);
    } else {
      flush();
      pairs.push({ left: line, right: line });
    }
  }
  flush();
  return pairs;
}

const kSigns = { context: ' ', added: '+', removed: '−' };
const kSaid = { context: '', added: 'added', removed: 'removed' };

/** Both scripts whole, by lines and in colours: what a line is depends on those before it, which a diff may leave out. */
export interface Scripts {
  old: DocumentFragment[];
  new: DocumentFragment[];
}

/** A line of one of the scripts. */
function codeCell(line: DiffLine | undefined, side: 'old' | 'new', scripts: Scripts): HTMLElement {
  if (!line) return element('td', { class: 'blank' });
  const coloured = scripts[side][(line[side] ?? 0) - 1];
  return element(
    'td',
    { class: line.kind },
    line.kind !== 'context' && element('span', { class: 'hidden' }, `${kSaid[line.kind]}: `),
    element('code', {}, coloured?.cloneNode(true) ?? line.text.replace(/\n$/, '')),
  );
}

function numberCell(line: DiffLine | undefined, number: number | null | undefined): HTMLElement {
  return element('td', { class: `number ${line?.kind ?? 'blank'}` }, number ? String(number) : '');
}

type Hunk = Diff['hunks'][number];

/** The first hunks, the last of them cut where there are more lines than a page can take. */
function firstLines(hunks: Hunk[], most: number): Hunk[] {
  let room = most;
  const kept: Hunk[] = [];
  for (const hunk of hunks) {
    if (room <= 0) break;
    kept.push({ ...hunk, lines: hunk.lines.slice(0, room) });
    room -= hunk.lines.length;
  }
  return kept;
}

function hunkRows(hunks: Hunk[], rowsOf: (lines: DiffLine[]) => HTMLElement[]): HTMLElement[] {
  return hunks.flatMap(({ header, lines }) => [
    element('tr', { class: 'hunk' }, element('td', { colspan: 4 }, header)),
    ...rowsOf(lines),
  ]);
}

function splitTable(hunks: Hunk[], { from, to }: Diff, scripts: Scripts): HTMLElement {
  const rows = hunkRows(hunks, (lines) =>
    paired(lines).map(({ left, right }) =>
      element(
        'tr',
        {},
        numberCell(left, left?.old),
        codeCell(left, 'old', scripts),
        numberCell(right, right?.new),
        codeCell(right, 'new', scripts),
      ),
    ),
  );
  const head = tableHead('Line', from ? `#${from.id}` : 'nothing', 'Line', `#${to.id}`);
  return element('table', { class: 'diff split' }, head, element('tbody', {}, ...rows));
}

function unifiedTable(hunks: Hunk[], scripts: Scripts): HTMLElement {
  const rows = hunkRows(hunks, (lines) =>
    lines.map((line) =>
      element(
        'tr',
        {},
        numberCell(line, line.old),
        numberCell(line, line.new),
        element('td', { class: line.kind, 'aria-hidden': 'true' }, kSigns[line.kind]),
        codeCell(line, line.kind === 'removed' ? 'old' : 'new', scripts),
      ),
    ),
  );
  const head = tableHead('Before', 'After', '±', 'Script');
  return element('table', { class: 'diff unified' }, head, element('tbody', {}, ...rows));
}

export function scriptSection(diff: Diff, scripts: Scripts, unified: boolean): HTMLElement {
  const { hunks, from, to } = diff;
  if (hunks.length === 0) return section('Script', element('p', { class: 'empty' }, 'The scripts are the same.'));
  const count = hunks.reduce((sum, { lines }) => sum + lines.length, 0);
  const first = firstLines(hunks, kMostLines);
  return section(
    'Script',
    count > kMostLines &&
      element('p', { class: 'muted' }, `The first ${kMostLines} of ${count} lines; each submission's page has its whole script.`),
    scrollable(
      `Script of #${to.id} beside ${from ? `#${from.id}` : 'nothing'}`,
      unified ? unifiedTable(first, scripts) : splitTable(first, diff, scripts),
    ),
  );
}
