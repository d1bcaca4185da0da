// Who is made of whom, as events come in.

import { ApiError, get } from './api';
import type { HarnessEvent, Submission } from './documents';

const kPatience = 10000; // ms: other events wait meanwhile

/**
 * The parents of a submission of which `event` says that it was just handed in; undefined if they cannot be known now. An event
 * does not name them: they are asked for. Never throws.
 */
export async function parentsOfNew({ submission, kind }: HarnessEvent, signal: AbortSignal): Promise<number[] | undefined> {
  if (kind !== 'submitted' || submission === null) return [];
  try {
    const patience = AbortSignal.any([signal, AbortSignal.timeout(kPatience)]);
    return (await get<Submission>(`/v1/submissions/${submission}`, {}, patience)).parents;
  } catch (error) {
    return error instanceof ApiError && error.status === 404 ? [] : undefined;
  }
}
