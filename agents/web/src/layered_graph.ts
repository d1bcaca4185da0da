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
const kGap = { down: 36, right: 56 }; // between layers: lines bend there, and are long where boxes are beneath each other
const kLetters = 23; // that a box has room for

function clipped(text: string): string {
  const letters = [...text];
  return letters.length > kLetters ? `${letters.slice(0, kLetters - 1).join('')}…` : text;
}

/** Where layers follow each other: downwards, or to the right. */
export type Growth = 'down' | 'right';

function laidOut(boxes: GraphBox[], growth: Growth): graphlib.Graph {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: growth === 'down' ? 'TB' : 'LR', nodesep: 16, edgesep: 12, ranksep: kGap[growth] });
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

/** Where a line leaves what lies around `middle` in a layer, or comes to it: the middle of a side of a box. */
function port(middle: Point, growth: Growth, end: 'first' | 'last'): Point {
  const sign = end === 'first' ? 1 : -1;
  return growth === 'down'
    ? { x: middle.x, y: middle.y + (sign * kBox.height) / 2 }
    : { x: middle.x + (sign * kBox.width) / 2, y: middle.y };
}

const coordinates = ({ x, y }: Point) => `${x.toFixed(1)} ${y.toFixed(1)}`;

/** Through the gap between two layers, straight out of the one and straight into the other. */
function curve(from: Point, to: Point, growth: Growth): string {
  const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
  const [leave, enter] =
    growth === 'down'
      ? [
          { x: from.x, y: middle.y },
          { x: to.x, y: middle.y },
        ]
      : [
          { x: middle.x, y: from.y },
          { x: middle.x, y: to.y },
        ];
  return `C${coordinates(leave)} ${coordinates(enter)} ${coordinates(to)}`;
}

type EdgeName = { v: string; w: string };

/** Where the line crosses layers between those of its boxes: room that dagre has kept free for it. */
function crossings(graph: graphlib.Graph, edge: EdgeName, growth: Growth): Point[] {
  const along = ({ x, y }: Point) => Math.round(growth === 'down' ? y : x);
  const layers = new Set(graph.nodes().map((id) => along(graph.node(id))));
  // Dagre's other points are in the gaps, or at the ends on the borders of both boxes.
  return (graph.edge(edge).points as Point[]).slice(1, -1).filter((point) => layers.has(along(point)));
}

/** Straight through layers and bent in the gaps between them, so that it runs behind no box. */
function edgePath(graph: graphlib.Graph, edge: EdgeName, growth: Growth): string {
  let at = port(graph.node(edge.v), growth, 'first');
  let path = `M${coordinates(at)}`;
  for (const crossing of crossings(graph, edge, growth)) {
    path += curve(at, port(crossing, growth, 'last'), growth);
    at = port(crossing, growth, 'first');
    path += `L${coordinates(at)}`;
  }
  return path + curve(at, port(graph.node(edge.w), growth, 'last'), growth);
}

interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** What boxes and lines take. Dagre's own size is that of the boxes; lines may run around them. */
function frameOf(graph: graphlib.Graph): Frame {
  const boxes: Point[] = graph.nodes().map((id) => graph.node(id));
  const bends = graph.edges().flatMap((edge) => graph.edge(edge).points as Point[]);
  const ends = (key: 'x' | 'y', half: number) => {
    const values = boxes.flatMap((box) => [box[key] - half, box[key] + half]).concat(bends.map((bend) => bend[key]));
    const least = values.reduce((a, b) => Math.min(a, b), 0) - kMargin;
    return { least, size: values.reduce((a, b) => Math.max(a, b), 0) + kMargin - least };
  };
  const [across, down] = [ends('x', kBox.width / 2), ends('y', kBox.height / 2)];
  return { left: across.least, top: down.least, width: across.size, height: down.size };
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
  const { left, top, width, height } = frameOf(graph);
  const drawing = svg('svg', {
    class: 'layered',
    width,
    height,
    viewBox: `${left} ${top} ${width} ${height}`,
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
