// Who is made of whom, as events come in.

import { get } from './api';
import type { HarnessEvent, Submission } from './documents';

/** The parents of a submission of which `event` says that it was just handed in. An event does not name them: they are asked for. */
export async function parentsOfNew({ submission, kind }: HarnessEvent, signal: AbortSignal): Promise<number[]> {
  if (kind !== 'submitted' || submission === null) return [];
  // One that cannot be read is in no family that can be shown.
  const found = await get<Submission>(`/v1/submissions/${submission}`, {}, signal).catch(() => undefined);
  return found?.parents ?? [];
}
