// Light or dark: what the system says, or what the reader chose.

const kKey = 'sluice.theme';
const listeners = new Set<() => void>();

// Browsers that block a site's data throw where storage is touched: the choice then lasts as long as the page.
function stored(): string {
  try {
    return localStorage.getItem(kKey) ?? '';
  } catch {
    return '';
  }
}

function store(choice: string): void {
  try {
    localStorage.setItem(kKey, choice);
  } catch {
    // As above.
  }
}

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
  select.value = stored();
  apply(select.value);
  select.addEventListener('change', () => {
    store(select.value);
    apply(select.value);
  });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => apply(select.value));
}
