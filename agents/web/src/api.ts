// Reads documents of the server. Everything the page shows comes through here or through live.ts.

import type { Page, Summary } from './documents';

/** What the server said, or that it said nothing. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint = '',
  ) {
    super(message);
  }
}

export type Query = Record<string, string | number | undefined>;

export function addressOf(path: string, query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') parameters.set(key, String(value));
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

async function problemOf(response: Response): Promise<ApiError> {
  try {
    const problem = await response.json();
    return new ApiError(response.status, problem.detail ?? problem.title ?? response.statusText, problem.hint ?? '');
  } catch {
    return new ApiError(response.status, `the server answered ${response.status} ${response.statusText}`);
  }
}

async function answered(path: string, query: Query, signal: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(addressOf(path, query), { signal });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError(0, 'the server cannot be reached', 'is it still running?');
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function get<T>(path: string, query: Query, signal: AbortSignal): Promise<T> {
  const response = await answered(path, query, signal);
  try {
    return await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError(response.status, `what the server answered at ${path} is no JSON`);
  }
}

export async function getText(path: string, signal: AbortSignal): Promise<string> {
  return (await answered(path, {}, signal)).text();
}

/** Submissions that the server gives at once. */
const kMostOfPage = 200;

/** All submissions that a filter lets through, the newest first; `progress` is told after every page but the last. */
export async function allSubmissions(
  filter: Query,
  signal: AbortSignal,
  progress?: (so_far: Summary[]) => void,
): Promise<Summary[]> {
  const submissions: Summary[] = [];
  for (let cursor = ''; ;) {
    const page: Page = await get('/v1/submissions', { ...filter, cursor, limit: kMostOfPage }, signal);
    submissions.push(...page.submissions);
    cursor = page.next;
    if (!cursor) return submissions;
    progress?.(submissions);
  }
}
