// Light or dark: what the system says, or what the reader chose.

const kKey = 'sluice.theme';
const listeners = new Set<() => void>();

function apply(choice: string): void {
  document.documentElement.dataset.theme = choice;
  for (const listener of listeners) listener();
}

/** `listener` is told when colours have changed. */
export function onTheme(signal: AbortSignal, listener: () => void): void {
  listeners.add(listener);
  signal.addEventListener('abort', () => listeners.delete(listener));
}

export function startTheme(select: HTMLSelectElement): void {
  select.value = localStorage.getItem(kKey) ?? '';
  apply(select.value);
  select.addEventListener('change', () => {
    localStorage.setItem(kKey, select.value);
    apply(select.value);
  });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => apply(select.value));
}
