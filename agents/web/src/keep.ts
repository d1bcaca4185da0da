// What a reader has done with a part of the page outlives that it is made anew: the focus, opened details, scrolled regions.

const kFocusable = 'a, button, input, select, summary, [tabindex]';
const kSummary = 'details > summary';
const kScrollable = '.scroll';

/** What stays the same of an element when it is made anew: its name or where it leads, or its words and their section. */
function keyOf(found: Element): string {
  const own = found.getAttribute('aria-label') ?? found.getAttribute('href');
  return own ?? `${found.closest('section')?.getAttribute('aria-label') ?? ''}: ${found.textContent}`;
}

/** Several may have the same key; the order among them tells which one it is. */
interface Place {
  key: string;
  order: number;
}

function sameKey(within: Element, selector: string, key: string): HTMLElement[] {
  return [...within.querySelectorAll<HTMLElement>(selector)].filter((found) => keyOf(found) === key);
}

function placeOf(within: Element, selector: string, found: HTMLElement): Place {
  const key = keyOf(found);
  return { key, order: sameKey(within, selector, key).indexOf(found) };
}

function at(within: Element, selector: string, { key, order }: Place): HTMLElement | undefined {
  return sameKey(within, selector, key)[order];
}

function keepFocus(within: Element): () => void {
  const active = document.activeElement;
  if (!active?.matches(kFocusable) || !within.contains(active)) return () => {};
  const place = placeOf(within, kFocusable, active as HTMLElement);
  return () => {
    if (document.activeElement === active) return;
    const same = at(within, kFocusable, place);
    const usable = same && !same.matches(':disabled') ? same : document.querySelector<HTMLElement>('main h1');
    usable?.focus({ preventScroll: true });
  };
}

function keepDetails(within: Element): () => void {
  const opened = [...within.querySelectorAll<HTMLElement>(kSummary)]
    .filter((summary) => summary.closest('details')?.open)
    .map((summary) => placeOf(within, kSummary, summary));
  return () => {
    for (const place of opened) at(within, kSummary, place)?.closest('details')?.setAttribute('open', '');
  };
}

function keepScroll(within: Element): () => void {
  const scrolled = [...within.querySelectorAll<HTMLElement>(kScrollable)]
    .filter(({ scrollLeft, scrollTop }) => scrollLeft > 0 || scrollTop > 0)
    .map((region) => ({ ...placeOf(within, kScrollable, region), left: region.scrollLeft, top: region.scrollTop }));
  return () => {
    for (const { left, top, ...place } of scrolled) at(within, kScrollable, place)?.scrollTo({ left, top, behavior: 'instant' });
  };
}

/**
 * Runs `change`, which makes elements below `within` anew. What had the focus has it again, or the view's title where it is
 * gone; details that were open are; regions stand where they were scrolled to.
 */
export function keepPlaces(within: Element, change: () => void): void {
  const restores = [keepDetails(within), keepScroll(within), keepFocus(within)];
  change();
  for (const restore of restores) restore();
}
