// A submission's script, and what became of it: the graph that it was traced to, and the plan of that.

import { ApiError, get, getText } from '../api';
import { codeBlock } from '../code';
import type { Artifact, FlowGraph, Submission } from '../documents';
import { element, scrollable, section, type Child } from '../dom';
import { flowGraph } from '../flow_graph';
import { patternPictures } from '../pattern_picture';

export function artifactAddress(id: number, name: string): string {
  return `/v1/submissions/${id}/artifacts/${encodeURIComponent(name)}`;
}

/** Says in its place why an artifact is not shown: one that was cut or cannot be read takes nothing else away. */
function noteOf(name: string, error: unknown): HTMLElement {
  if (!(error instanceof ApiError)) console.error(error);
  const reason = error instanceof ApiError ? error.message : 'it is no such document';
  const hint = error instanceof ApiError && error.hint ? ` (${error.hint})` : '';
  return element('p', { class: 'muted' }, `${name} cannot be shown: ${reason}${hint}`);
}

/** What `show` makes of an artifact, or why it does not; nothing where the evaluation left none of this name. */
async function shownArtifact(
  artifacts: Artifact[],
  name: string,
  stop: AbortSignal,
  show: () => Promise<Node>,
): Promise<Node | undefined> {
  const artifact = artifacts.find((one) => one.name === name);
  if (!artifact) return undefined;
  try {
    return await show();
  } catch (error) {
    if (stop.aborted) throw error;
    return noteOf(name, error);
  }
}

export async function flowSections({ id, script }: Submission, artifacts: Artifact[], stop: AbortSignal): Promise<Child[]> {
  const [graph, plan] = await Promise.all([
    shownArtifact(artifacts, 'graph.json', stop, async () => {
      const graph = await get<FlowGraph>(artifactAddress(id, 'graph.json'), {}, stop);
      const pictures = graph.patterns?.length ? patternPictures(graph.patterns) : undefined;
      // A flow that is a pattern alone has no operations to draw.
      return element('div', {}, pictures, (graph.nodes.length > 0 || !pictures) && flowGraph(graph));
    }),
    shownArtifact(artifacts, 'plan.txt', stop, async () =>
      scrollable('Plan', element('pre', {}, await getText(artifactAddress(id, 'plan.txt'), stop))),
    ),
  ]);
  const code = section('Script', codeBlock(script, `Script of submission ${id}`));
  return [graph ? element('div', { class: 'beside even' }, code, section('Graph', graph)) : code, plan && section('Plan', plan)];
}
