// A notice where results stand together that were measured in different ways, and do not compare.

import type { Summary } from './documents';
import { element, replace } from './dom';
import { keepPlaces } from './keep';

const kFields = { suite: 'suites', model: 'models', device: 'devices' } as const;
type Field = keyof typeof kFields;

/** The values of a setting, the most frequent first. */
function valuesOf(submissions: Summary[], field: Field): string[] {
  const counts = new Map<string, number>();
  for (const { settings } of submissions) {
    const value = settings[field];
    if (typeof value === 'string') counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return [...counts].sort(([, a], [, b]) => b - a).map(([value]) => value);
}

export class MixedNotice {
  readonly element = element('div', { class: 'notice', hidden: true });

  /** `choose` shows only what has this value of a setting; without it, all stays. */
  constructor(private readonly choose?: (field: Field, value: string) => void) {}

  /** Says so where those that were measured have several suites, models or devices. */
  show(submissions: Summary[]): void {
    const measured = submissions.filter(({ metrics }) => Object.keys(metrics).length > 0);
    const fields = Object.keys(kFields) as Field[];
    const mixed = fields.map((field) => ({ field, values: valuesOf(measured, field) })).filter(({ values }) => values.length > 1);
    const several = mixed.map(({ field }) => kFields[field]).join(', ');
    this.element.hidden = mixed.length === 0;
    keepPlaces(this.element, () =>
      replace(
        this.element,
        element(
          'p',
          {},
          element('strong', {}, `Measured with several ${several}: `),
          'such results do not compare; ranks, the front and what is best hold only within one.',
        ),
        ...(this.choose ? mixed.map(({ field, values }) => this.choices(field, values)) : []),
      ),
    );
  }

  private choices(field: Field, values: string[]): HTMLElement {
    const buttons = values.map((value) =>
      element('button', { type: 'button', onclick: () => this.choose?.(field, value) }, `${field} ${value}`),
    );
    return element('p', { class: 'actions' }, 'Show only', ...buttons);
  }
}
