// The graph that a script was traced to: drawn, and as a table; of a large one there is the table alone.

import type { FlowGraph, GraphNode } from './documents';
import { element, scrollable, tableHead } from './dom';
import { kMostBoxes, layeredGraph, type GraphBox } from './layered_graph';

/** "min %2 over token": a node's line without its number and shape. */
function operationOf({ text, op }: GraphNode): string {
  return text.replace(/^%\d+ = /, '').replace(/\s+(\[.*\])?$/, '') || op;
}

/** The values of which a node is made. A field that the index stage reads is the value that the cache stage kept. */
function originsOf(node: GraphNode, { fields }: FlowGraph): number[] {
  const kept = node.op === 'field' && fields.find(({ name }) => operationOf(node) === `field ${name}`);
  return kept ? [kept.node] : node.inputs;
}

function boxOf(node: GraphNode, graph: FlowGraph): GraphBox {
  const type = `${node.type} ${node.shape}`.trim();
  return {
    id: String(node.id),
    title: `%${node.id} ${operationOf(node)}`,
    detail: type,
    label: `%${node.id} = ${operationOf(node)}: ${type}, of stage ${node.stage}`,
    class: `node stage-of-${node.stage}`,
    from: originsOf(node, graph).map(String),
  };
}

function nodeRow(node: GraphNode): HTMLElement {
  return element(
    'tr',
    {},
    element('th', { scope: 'row', class: 'number' }, `%${node.id}`),
    element('td', {}, node.stage),
    element('td', {}, element('code', {}, operationOf(node))),
    element('td', {}, node.type),
    element('td', {}, node.shape),
  );
}

function nodeTable(graph: FlowGraph): HTMLElement {
  return scrollable(
    'Operations',
    element(
      'table',
      {},
      element('caption', {}, 'Operations'),
      tableHead('Value', 'Stage', 'Operation', 'Type', 'Shape'),
      element('tbody', {}, ...graph.nodes.map(nodeRow)),
    ),
  );
}

export function flowGraph(graph: FlowGraph): HTMLElement {
  const count = graph.nodes.length;
  if (count > kMostBoxes) {
    const note = `${count} operations are too many to draw (at most ${kMostBoxes}).`;
    return element('div', { class: 'flow-graph' }, element('p', { class: 'muted' }, note), nodeTable(graph));
  }
  const label = `Graph of ${count} operations; the table of operations below says the same`;
  const drawing = layeredGraph(
    graph.nodes.map((node) => boxOf(node, graph)),
    'down',
    label,
  );
  return element(
    'div',
    {},
    element('div', { class: 'flow-graph' }, scrollable(label, drawing)),
    element('details', {}, element('summary', {}, 'As a table'), nodeTable(graph)),
  );
}
