// What every view is given, and what all of them begin with.

import { ApiError } from './api';
import { element } from './dom';
import type { Live } from './live';
import type { Route } from './router';
import { seenText } from './unseen';

export interface Context {
  route: Route;
  live: Live;
  /** Aborted when another view takes its place: requests, timers and listeners end with it. */
  signal: AbortSignal;
  /** Empty at first. */
  main: HTMLElement;
}

export type View = (context: Context) => Promise<void>;

export function heading(title: string, ...more: (Node | string | false | undefined)[]): HTMLElement {
  document.title = `${seenText(title)} · Sluice`;
  return element(
    'div',
    { class: 'heading' },
    element('h1', { tabindex: -1 }, title),
    ...more.filter((one) => one !== false && one !== undefined),
  );
}

/** A submission's number out of an address. Throws ApiError. */
export function idOf(text: string | null | undefined): number {
  if (!/^[1-9][0-9]{0,15}$/.test(text ?? '')) throw new ApiError(404, `"${text ?? ''}" is not the number of a submission`);
  return Number(text);
}
