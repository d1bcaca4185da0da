// A submission's family: who was made of whom, drawn in layers and told in a table.

import { get } from '../api';
import type { Summary } from '../documents';
import { element, replace, scrollable, section } from '../dom';
import { metricText, words } from '../format';
import { keepPlaces } from '../keep';
import { kMostBoxes, layeredGraph, type GraphBox } from '../layered_graph';
import { follow } from '../live';
import { Loader } from '../loader';
import { parentsOfNew } from '../relatives';
import { hashOf, submissionHash } from '../router';
import { kAgentColumn, kMetricColumns, kNameColumn, kNumberColumn, kStatusColumn } from '../summary_columns';
import { DataTable, type Column } from '../table';
import { heading, idOf, type View } from '../view';

const kParentsColumn: Column<Summary> = {
  key: 'parents',
  title: 'Parents',
  cell: ({ parents }) =>
    element(
      'span',
      {},
      ...parents.flatMap((id, index) => [index > 0 && ', ', element('a', { href: submissionHash(id) }, `#${id}`)]),
    ),
};

function boxOf(node: Summary, chosen: number): GraphBox {
  const { score, speedup } = node.metrics;
  const measured = [score && metricText('score', score.value), speedup && `${speedup.value.toFixed(2)}×`].filter(
    Boolean,
  );
  const detail = measured.length > 0 ? measured.join(' · ') : words(node.status);
  return {
    id: String(node.id),
    title: `#${node.id} ${node.name}`,
    detail: `${detail} · ${node.agent}`,
    label: `${node.id}, ${node.name}, by ${node.agent}, ${words(node.status)}${measured.length > 0 ? `, ${measured.join(', ')}` : ''}`,
    class: `${node.status}${node.id === chosen ? ' chosen' : ''}`,
    href: submissionHash(node.id),
    from: node.parents.map(String),
  };
}

/** The relatives nearest to a submission, at most as many as are drawn. */
export function nearest(nodes: Summary[], chosen: number): Summary[] {
  if (nodes.length <= kMostBoxes) return nodes;
  const relatives = new Map<number, number[]>(nodes.map(({ id }) => [id, []]));
  for (const { id, parents } of nodes) {
    for (const parent of parents) {
      relatives.get(parent)?.push(id);
      relatives.get(id)?.push(parent);
    }
  }
  const kept = new Set([chosen]);
  for (const id of kept) {
    for (const relative of relatives.get(id) ?? []) if (kept.size < kMostBoxes) kept.add(relative);
  }
  return nodes.filter(({ id }) => kept.has(id));
}

/** Scrolls `box` to the middle of what it lies in, and nothing else. */
function toMiddle(box: Element | null, around: Element | null): void {
  if (!box || !around) return;
  const [inner, outer] = [box.getBoundingClientRect(), around.getBoundingClientRect()];
  around.scrollBy(
    inner.left - outer.left - (outer.width - inner.width) / 2,
    inner.top - outer.top - (outer.height - inner.height) / 2,
  );
}

function chooser(chosen: number): HTMLElement {
  const input = element('input', { type: 'text', inputmode: 'numeric', name: 'id', value: chosen, size: 8, maxlength: 16 });
  const go = (event: Event) => {
    event.preventDefault();
    location.hash = hashOf(['lineage', input.value.trim()]);
  };
  return element(
    'form',
    { class: 'inline', onsubmit: go },
    element('label', {}, 'Family of #', input),
    element('button', {}, 'Show'),
  );
}

interface Relatives {
  nodes: Summary[];
  total: number;
  next: string;
}

const kMostRead = 10000; // of a family

/** The nearest relatives, by number, and how many there are. */
async function familyOf(chosen: number, stop: AbortSignal): Promise<{ nodes: Summary[]; total: number }> {
  const nodes = new Map<number, Summary>(); // one that is handed in meanwhile may push another onto the next page, too
  let page: Relatives;
  let cursor = '';
  do {
    page = await get<Relatives>(`/v1/submissions/${chosen}/lineage`, { cursor }, stop);
    for (const node of page.nodes) nodes.set(node.id, node);
    cursor = page.next;
  } while (cursor !== '' && nodes.size < kMostRead);
  return { nodes: [...nodes.values()].sort((a, b) => a.id - b.id), total: page.total };
}

export const lineageView: View = async ({ route, live, signal, main }) => {
  const chosen = idOf(route.path[1]);
  const drawing = element('div', { class: 'family' });
  const note = element('p', { class: 'count', role: 'status' });
  const table = new DataTable<Summary>({
    caption: 'The family',
    columns: [kNumberColumn, kNameColumn, kParentsColumn, kAgentColumn, kStatusColumn, ...kMetricColumns],
    rowKey: ({ id }) => id,
    rowClass: ({ id }) => (id === chosen ? 'chosen' : ''),
    empty: '',
    wide: true,
  });
  const family = new Set<number>(); // as it is drawn, and who is known to have joined it since
  const load = async (stop: AbortSignal) => {
    const { nodes, total } = await familyOf(chosen, stop);
    loader.reveal();
    const drawn = nearest(nodes, chosen);
    note.textContent =
      `${Math.max(total, nodes.length)} related, the oldest at the left` +
      (drawn.length < nodes.length ? `; the nearest ${drawn.length} are drawn, the table has ` : '') +
      (drawn.length === nodes.length ? '' : nodes.length < total ? `the nearest ${nodes.length}; choose one of them for those near it` : 'all') +
      '. Arrow keys go from box to box.';
    const label = `Family of submission ${chosen}`;
    const graph = layeredGraph(
      drawn.map((node) => boxOf(node, chosen)),
      'right',
      label,
    );
    keepPlaces(drawing, () => replace(drawing, scrollable(label, graph)));
    if (family.size === 0) toMiddle(graph.querySelector('.chosen'), drawing.firstElementChild);
    for (const { id } of nodes) family.add(id);
    table.show(nodes);
  };
  const loader = new Loader(signal, load);
  main.append(
    heading(`Lineage of #${chosen}`, element('a', { href: hashOf(['lineage']) }, 'All families'), chooser(chosen)),
    loader.place,
    ...loader.conceal(section('Who was made of whom', note, drawing), section('The same as a table', table.element)),
  );
  await follow(live, signal, loader, async (event) => {
    if (event.kind === 'progress' || event.submission === null) return false;
    const parents = await parentsOfNew(event, signal);
    // One of which nothing can be known now may have joined it.
    if (!parents || parents.some((id) => family.has(id))) family.add(event.submission);
    return family.has(event.submission);
  });
};
