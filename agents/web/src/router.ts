// Addresses of views: "#/submissions/12/diff?from=3". What a view shows can be shared and reloaded.

export interface Route {
  path: string[];
  query: URLSearchParams;
}

export function currentRoute(): Route {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  return { path: path.split('/').filter((segment) => segment !== ''), query: new URLSearchParams(query) };
}

export function hashOf(path: (string | number)[], query: Record<string, string | number | undefined> = {}): string {
  const parameters = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') parameters.set(key, String(value));
  }
  const text = parameters.toString();
  return `#/${path.join('/')}${text ? `?${text}` : ''}`;
}

export function submissionHash(id: number): string {
  return hashOf(['submissions', id]);
}

/** Keeps the address true while a view changes what it shows, without a new view or an entry in the history. */
export function keepQuery(query: Record<string, string | number | undefined>): void {
  history.replaceState(null, '', hashOf(currentRoute().path, query));
}
