// A graph in layers (Sugiyama's method, by dagre): ancestors before descendants, inputs before what is made of them.

import { graphlib, layout } from '@dagrejs/dagre';
import { svg } from './dom';

export interface GraphBox {
  id: string;
  title: string;
  detail: string;
  /** Its title: what is told where the rest of it is clipped, or not seen. */
  label: string;
  class: string;
  href?: string;
  /** Boxes of the layers before, from which lines lead here. */
  from: string[];
}

/** Boxes that a screen and the layout can take: dagre's time grows much faster than their number. */
export const kMostBoxes = 150;

const kBox = { width: 178, height: 44 };
const kMargin = 12;
const kLetters = 23; // that a box has room for

function clipped(text: string): string {
  const letters = [...text];
  return letters.length > kLetters ? `${letters.slice(0, kLetters - 1).join('')}…` : text;
}

/** Where layers follow each other: downwards, or to the right. */
export type Growth = 'down' | 'right';

function laidOut(boxes: GraphBox[], growth: Growth): graphlib.Graph {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: growth === 'down' ? 'TB' : 'LR', nodesep: 16, ranksep: 36, marginx: kMargin, marginy: kMargin });
  graph.setDefaultEdgeLabel(() => ({}));
  const known = new Set(boxes.map((box) => box.id));
  for (const box of boxes) graph.setNode(box.id, { ...kBox });
  for (const box of boxes) {
    for (const id of box.from) if (known.has(id)) graph.setEdge(id, box.id);
  }
  layout(graph);
  return graph;
}

interface Point {
  x: number;
  y: number;
}

/** Where a line leaves a box, or reaches it: the middle of a side. */
function port(box: Point, growth: Growth, end: 'first' | 'last'): Point {
  const sign = end === 'first' ? 1 : -1;
  return growth === 'down' ? { x: box.x, y: box.y + (sign * kBox.height) / 2 } : { x: box.x + (sign * kBox.width) / 2, y: box.y };
}

/** A curve that runs straight out of one layer and straight into the next. */
function pathOf(points: Point[], growth: Growth): string {
  const text = ({ x, y }: Point) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return points.reduce((path, point, index) => {
    const before = points[index - 1];
    if (!before) return `M${text(point)}`;
    const middle = { x: (before.x + point.x) / 2, y: (before.y + point.y) / 2 };
    const [leave, enter] =
      growth === 'down'
        ? [
            { x: before.x, y: middle.y },
            { x: point.x, y: middle.y },
          ]
        : [
            { x: middle.x, y: before.y },
            { x: middle.x, y: point.y },
          ];
    return `${path}C${text(leave)} ${text(enter)} ${text(point)}`;
  }, '');
}

function edgePath(graph: graphlib.Graph, edge: { v: string; w: string }, growth: Growth): string {
  // Dagre's points are on the borders of both boxes and, in turn, between layers and in them; the latter are what a line must keep to.
  const inLayers = (graph.edge(edge).points as Point[]).slice(1, -1).filter((_, index) => index % 2 === 1);
  return pathOf([port(graph.node(edge.v), growth, 'first'), ...inLayers, port(graph.node(edge.w), growth, 'last')], growth);
}

function drawn(box: GraphBox, at: Point): SVGElement {
  const left = at.x - kBox.width / 2;
  const top = at.y - kBox.height / 2;
  const inside = [
    svg('title', {}, box.label),
    svg('rect', { x: left, y: top, width: kBox.width, height: kBox.height, rx: 4 }),
    svg('text', { x: left + 9, y: top + 18, class: 'title' }, clipped(box.title)),
    svg('text', { x: left + 9, y: top + 35, class: 'detail' }, clipped(box.detail)),
  ];
  const attributes = { class: `box ${box.class}`, 'data-id': box.id };
  return box.href ? svg('a', { ...attributes, href: box.href }, ...inside) : svg('g', { ...attributes, role: 'img' }, ...inside);
}

const kLayerWeight = 8; // how much farther a box of the layer after next is than one aside
type Direction = 'ArrowUp' | 'ArrowDown' | 'ArrowLeft' | 'ArrowRight';

/** The nearest box in a direction: in the same layer, or in the next one the least aside. */
function neighbour(graph: graphlib.Graph, id: string, direction: Direction, growth: Growth): string | undefined {
  const here = graph.node(id);
  const vertical = direction === 'ArrowUp' || direction === 'ArrowDown';
  const sign = direction === 'ArrowUp' || direction === 'ArrowLeft' ? -1 : 1;
  let found: string | undefined;
  let least = Infinity;
  for (const other of graph.nodes()) {
    const there = graph.node(other);
    const along = sign * (vertical ? there.y - here.y : there.x - here.x);
    const aside = Math.abs(vertical ? there.x - here.x : there.y - here.y);
    const is_within_layer = vertical === (growth === 'right');
    if (along <= 1 || (is_within_layer && aside > 1)) continue;
    const distance = is_within_layer ? along : aside + kLayerWeight * along;
    if (distance < least) [found, least] = [other, distance];
  }
  return found;
}

/** Tab goes through the boxes in the order of `boxes`; arrow keys go where they point. */
export function layeredGraph(boxes: GraphBox[], growth: Growth, label: string): SVGSVGElement {
  const graph = laidOut(boxes, growth);
  const { width = 0, height = 0 } = graph.graph();
  const drawing = svg('svg', {
    class: 'layered',
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: 'group',
    'aria-label': label,
  });
  for (const edge of graph.edges()) drawing.append(svg('path', { class: 'edge', d: edgePath(graph, edge, growth) }));
  for (const box of boxes) drawing.append(drawn(box, graph.node(box.id)));
  drawing.addEventListener('keydown', (event) => {
    const id = (event.target as Element).getAttribute('data-id');
    if (!id || !event.key.startsWith('Arrow')) return;
    const next = neighbour(graph, id, event.key as Direction, growth);
    if (next === undefined) return;
    event.preventDefault();
    drawing.querySelector<SVGElement>(`[data-id="${CSS.escape(next)}"]`)?.focus();
  });
  return drawing;
}
