// What a second model says of flows that passed on the first, and where both disagree.

import type { Final, Finalist, FinalsComparison, Summary } from './documents';
import { element, replace, section, type Child } from './dom';
import { measuredCell, metricTitle, words } from './format';
import { submissionHash } from './router';
import { isRefuted, standing } from './standing';
import { DataTable, type Column } from './table';

/** What became of a final, in words. */
export function outcomeText({ status, confirmed }: Final): string {
  if (status !== 'passed' || !confirmed) return words(status);
  return confirmed === 'passed' ? 'passed, confirmed' : `refuted: ${words(confirmed)}`;
}

/** The models that judge first and at last, of the first submission that has a final. */
export function modelsOf(rows: Summary[]): { first: string; last: string } | undefined {
  const found = rows.find(({ final }) => final);
  if (!found) return undefined;
  return { first: found.settings.model ?? 'the first model', last: found.final?.settings.model ?? 'the final model' };
}

const isOpen = ({ status }: Final) => status === 'queued' || status === 'running';

/**
 * By which a board goes where there are finals, the highest first: what passed its final by that score, then what has no verdict
 * there yet by the first model's, then what did not pass it. Scores lie between 0 and 1. Of what did not pass the first model
 * there is nothing to say.
 */
export function placeOf(summary: Summary): number | undefined {
  const { final, status } = summary;
  if (status !== 'passed' || isRefuted(summary)) return undefined;
  const last = final?.passed ? final.metrics.score : undefined;
  if (last) return 4 + last.value;
  const first = standing(summary, 'score')?.value ?? 0;
  return !final || isOpen(final) || final.passed ? 2 + first : first;
}

function finalCell({ final }: Summary): Node {
  if (!final) return measuredCell('score', undefined);
  if (final.passed) return measuredCell('score', final.metrics.score);
  return element('span', { class: 'muted' }, outcomeText(final));
}

/** The score of the model that judges at last, by which the board goes. */
export function finalColumn(model: string): Column<Summary> {
  return { key: 'final', title: `Score on ${model} (%)`, numeric: true, value: placeOf, cell: finalCell };
}

const flowLink = ({ name, first: { id } }: Finalist) => element('a', { href: submissionHash(id), class: 'name', title: name }, name);

type Pair = FinalsComparison['reversed'][number];

function pairTable(pairs: Pair[], first: string, last: string): HTMLElement {
  const side = (which: keyof Pair, model: string): Column<Pair>[] => [
    { key: which, title: `Better on ${model}`, heads: which === 'better_by_final', cell: (pair) => flowLink(pair[which]) },
    { key: `${which} first`, title: first, numeric: true, cell: (pair) => measuredCell('score', pair[which].first.score ?? undefined) },
    { key: `${which} last`, title: last, numeric: true, cell: (pair) => measuredCell('score', pair[which].final.score ?? undefined) },
  ];
  const table = new DataTable<Pair>({
    caption: 'In opposite order, by more than their intervals: scores (%)',
    columns: [...side('better_by_final', last), ...side('better_by_first', first)],
    rowKey: ({ better_by_final, better_by_first }) => `${better_by_final.first.id} ${better_by_first.first.id}`,
    empty: 'No pair.',
  });
  table.show(pairs);
  return table.element;
}

function dividedTable(flows: Finalist[], first: string, last: string): HTMLElement {
  const table = new DataTable<Finalist>({
    caption: 'Passed on one alone',
    columns: [
      { key: 'name', title: 'Name', heads: true, cell: flowLink },
      { key: 'first', title: first, cell: (flow) => words(flow.first.status) },
      { key: 'last', title: last, cell: (flow) => words(flow.final.status) },
    ],
    rowKey: (flow) => flow.first.id,
    empty: 'No flow.',
  });
  table.show(flows);
  return table.element;
}

function summaryText({ flows, passed_both, agreement }: FinalsComparison): string {
  const judged = `${flows} ${flows === 1 ? 'flow was' : 'flows were'} judged on both models, ${passed_both} passed on both`;
  return agreement === null ? judged : `${judged}; Kendall's tau of their scores is ${agreement.toFixed(2)}`;
}

/** Where two models disagree; hidden as long as no flow has a verdict of both. */
export class Disagreements {
  readonly element = element('div', { class: 'below', hidden: true });

  show(comparison: FinalsComparison | undefined, models: { first: string; last: string } | undefined): void {
    this.element.hidden = !comparison || comparison.flows === 0 || !models;
    if (!comparison || !models) return;
    const { first, last } = models;
    const { reversed, reversed_total, divided, divided_total } = comparison;
    const more = (shown: number, total: number): Child => total > shown && element('p', { class: 'count' }, `${shown} of ${total}`);
    replace(
      this.element,
      section(
        `Where ${first} and ${last} disagree`,
        element('p', {}, `${summaryText(comparison)}.`),
        element(
          'div',
          { class: 'beside' },
          element('div', {}, pairTable(reversed, first, last), more(reversed.length, reversed_total)),
          element('div', {}, dividedTable(divided, first, last), more(divided.length, divided_total)),
        ),
      ),
    );
  }
}

/** Of one submission: what both models measured, as far as the final is. */
export function finalSection({ final, metrics, settings }: Summary, names: string[]): HTMLElement | false {
  if (!final) return false;
  const last = final.settings.model ?? 'the final model';
  const table = new DataTable<string>({
    caption: 'Both models',
    rowKey: (name) => name,
    empty: 'Nothing was measured.',
    columns: [
      { key: 'metric', title: 'Metric', heads: true, cell: (name) => metricTitle(name) },
      { key: 'first', title: settings.model ?? 'First', numeric: true, cell: (name) => measuredCell(name, metrics[name]) },
      { key: 'last', title: last, numeric: true, cell: (name) => measuredCell(name, final.metrics[name]) },
    ],
  });
  const rows = names.filter((name) => final.metrics[name]);
  table.show(rows);
  return section(
    'Final',
    element(
      'p',
      {},
      element('strong', {}, outcomeText(final)),
      ` on ${last} by suite ${final.settings.suite ?? '–'}: `,
      element('a', { href: submissionHash(final.id) }, `#${final.id}`),
    ),
    rows.length > 0 && table.element,
  );
}
