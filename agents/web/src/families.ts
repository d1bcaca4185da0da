// Who belongs together: submissions that were made of each other, over however many others.

import type { Summary } from './documents';
import { isRefuted, standing } from './standing';

export interface Family {
  /** The oldest member; there are more roots where members were made of several. */
  root: Summary;
  roots: number;
  newest: Summary;
  /** Of those that passed. */
  best: Summary | undefined;
  members: Summary[];
}

/** For each submission the oldest of its family (by union of sets). */
function oldestRelatives(submissions: Summary[]): (id: number) => number {
  const nearer = new Map(submissions.map(({ id }) => [id, id]));
  const oldest = (id: number): number => {
    for (let at = id; ;) {
      const next = nearer.get(at) ?? at;
      if (next === at) return at;
      nearer.set(at, nearer.get(next) ?? next); // the way is half as long for who comes next
      at = next;
    }
  };
  for (const { id, parents } of submissions) {
    for (const parent of parents.filter((one) => nearer.has(one))) {
      const [a, b] = [oldest(id), oldest(parent)];
      nearer.set(Math.max(a, b), Math.min(a, b));
    }
  }
  return oldest;
}

function scoreOf(submission: Summary | undefined): number {
  if (submission?.status !== 'passed' || isRefuted(submission)) return -Infinity;
  return standing(submission, 'score')?.value ?? -Infinity;
}

/** The families of all submissions, that with the newest member first. */
export function familiesOf(submissions: Summary[]): Family[] {
  const oldest = oldestRelatives(submissions);
  const families = new Map<number, Family>();
  for (const member of [...submissions].sort((a, b) => a.id - b.id)) {
    const number = oldest(member.id);
    const family = families.get(number) ?? { root: member, roots: 0, newest: member, best: undefined, members: [] };
    families.set(number, family);
    family.members.push(member);
    family.newest = member;
    if (member.parents.length === 0) family.roots += 1;
    if (scoreOf(member) > scoreOf(family.best)) family.best = member;
  }
  return [...families.values()].sort((a, b) => b.newest.id - a.newest.id);
}

/** Whether a member has `sought` in its name or its agent's, or has this number ("#12"). */
export function hasMember({ members }: Family, sought: string): boolean {
  const text = sought.trim().toLowerCase();
  return members.some(({ id, name, agent }) => `#${id}` === text || `${name}\n${agent}`.toLowerCase().includes(text));
}
