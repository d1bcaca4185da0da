// Loading what a view shows, and saying so where it cannot be had.

import { ApiError } from './api';
import { element, replace } from './dom';
import { keepPlaces } from './keep';

export function problemPanel(error: unknown, retry: () => void): HTMLElement {
  const problem = error instanceof ApiError ? error : new ApiError(0, `the page is at fault: ${error}`);
  return element(
    'div',
    { class: 'problem', role: 'alert' },
    element('p', {}, element('strong', {}, problem.status === 404 ? 'Not found: ' : 'This did not work: '), problem.message),
    problem.hint && element('p', {}, `Hint: ${problem.hint}`),
    element('button', { type: 'button', onclick: retry }, 'Try again'),
  );
}

/** Loads what a view shows. While it cannot, `place` says why and offers to try again. */
export class Loader {
  readonly place = element('div');
  private current = new AbortController();
  private running = Promise.resolve();
  private concealed: HTMLElement[] = [];

  constructor(
    private readonly signal: AbortSignal,
    private readonly load: (signal: AbortSignal) => Promise<void>,
  ) {}

  /** Hides what shows the data until some are there (`reveal`): below an error it would speak of data that nobody knows. */
  conceal(...elements: HTMLElement[]): HTMLElement[] {
    this.concealed.push(...elements);
    for (const one of elements) one.hidden = true;
    return elements;
  }

  reveal(): void {
    for (const one of this.concealed.splice(0)) one.hidden = false;
  }

  /** A newer call takes the place of one that still runs. Never throws. */
  run(): Promise<void> {
    this.running = this.attempt();
    return this.running;
  }

  /** When nothing is being loaded. */
  async idle(): Promise<void> {
    let seen;
    do {
      seen = this.running;
      await seen;
    } while (seen !== this.running);
  }

  private async attempt(): Promise<void> {
    this.current.abort();
    this.current = new AbortController();
    const signal = AbortSignal.any([this.signal, this.current.signal]);
    try {
      await this.load(signal);
      if (!signal.aborted) keepPlaces(this.place, () => replace(this.place));
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) console.error(error);
      const panel = problemPanel(error, () => void this.run());
      keepPlaces(this.place, () => replace(this.place, panel));
    }
  }
}
