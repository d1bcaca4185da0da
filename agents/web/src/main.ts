// Starts the page: theme, the stream of events, and a view for each address.

import { ApiError } from './api';
import { element, replace } from './dom';
import { Live, type LiveState } from './live';
import { problemPanel } from './loader';
import { currentRoute, hashOf, type Route } from './router';
import { startTheme } from './theme';
import type { View } from './view';
import { compareView } from './views/compare';
import { diffView } from './views/diff';
import { familiesView } from './views/families';
import { leaderboardView } from './views/leaderboard';
import { lineageView } from './views/lineage';
import { progressView } from './views/progress';
import { queueView } from './views/queue';
import { submissionView } from './views/submission';

// The browser refuses strings where markup is wanted. ECharts empties its element by innerHTML = '': nothing else is let through.
interface TrustedTypes {
  createPolicy(name: string, rules: { createHTML: (text: string) => string | null }): unknown;
}
(window as unknown as { trustedTypes?: TrustedTypes }).trustedTypes?.createPolicy('default', {
  createHTML: (text) => (text === '' ? '' : null),
});

const kViews: { title: string; path: string[] }[] = [
  { title: 'Leaderboard', path: [] },
  { title: 'Progress', path: ['progress'] },
  { title: 'Lineage', path: ['lineage'] },
  { title: 'Compare', path: ['compare'] },
  { title: 'Queue', path: ['queue'] },
];
const kLiveWords: Record<LiveState, string> = { connecting: 'connecting', live: 'live', lost: 'connection lost, trying again' };

function viewOf({ path }: Route): View {
  const [first, second, third] = path;
  if (first === undefined) return leaderboardView;
  if (first === 'progress' && !second) return progressView;
  if (first === 'queue' && !second) return queueView;
  if (first === 'compare' && !second) return compareView;
  if (first === 'lineage' && !third) return second ? lineageView : familiesView;
  if (first === 'submissions' && second && !third) return submissionView;
  if (first === 'submissions' && third === 'diff') return diffView;
  return async () => {
    throw new ApiError(404, 'there is no view at this address', 'the views are named at the top of the page');
  };
}

function required<E extends Element>(id: string): E {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no #${id}`);
  return found as unknown as E;
}

const main = required<HTMLElement>('main');
const navigation = required<HTMLElement>('views');
const live = new Live();
let current = new AbortController();

function markNavigation(route: Route): void {
  const here = route.path[0] === 'submissions' ? undefined : hashOf(route.path.slice(0, 1));
  replace(
    navigation,
    ...kViews.map(({ title, path }) => {
      const href = hashOf(path);
      return element('a', { href, 'aria-current': href === here && 'page' }, title);
    }),
  );
}

async function show(moveFocus: boolean): Promise<void> {
  current.abort();
  current = new AbortController();
  const { signal } = current;
  const route = currentRoute();
  markNavigation(route);
  replace(main);
  document.title = 'Sluice';
  window.scrollTo(0, 0);
  const shown = viewOf(route)({ route, live, signal, main }).catch((error) => {
    if (signal.aborted) return;
    if (!(error instanceof ApiError)) console.error(error);
    replace(
      main,
      element('h1', { tabindex: -1 }, 'Sluice'),
      problemPanel(error, () => void show(true)),
    );
  });
  main.setAttribute('aria-busy', 'true');
  await shown;
  if (signal.aborted) return;
  main.removeAttribute('aria-busy');
  if (moveFocus) (main.querySelector<HTMLElement>('h1') ?? main).focus({ preventScroll: true });
}

document.querySelector('.skip')?.addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
startTheme(required<HTMLSelectElement>('theme'));
live.onState((state) => {
  const place = required<HTMLElement>('live');
  place.className = `live ${state}`;
  replace(place, kLiveWords[state]);
});
live.start();
window.addEventListener('hashchange', () => void show(true));
void show(false);
