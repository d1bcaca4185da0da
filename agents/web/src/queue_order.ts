// The order in which the queue will be taken, as far as lists of submissions tell it.

import type { Summary } from './documents';

/** An agent with submissions that wait. */
interface Client {
  waiting: Summary[]; // the oldest last
  running: number;
  served: number; // when a submission of this agent was taken last: the larger, the later
}

/** When agents were served last. Of what has ended the end is told, not the start: the same order where one runs at a time. */
function lastServed(running: Summary[], ended: Summary[]): Map<string, number> {
  const served = new Map<string, number>();
  for (const { agent, updated, status } of [...running, ...ended]) {
    if (status !== 'cancelled') served.set(agent, Math.max(served.get(agent) ?? 0, Date.parse(updated)));
  }
  return served;
}

function isBefore(a: Client, b: Client): boolean {
  if (a.running !== b.running) return a.running < b.running;
  if (a.served !== b.served) return a.served < b.served;
  return (a.waiting.at(-1)?.id ?? Infinity) < (b.waiting.at(-1)?.id ?? Infinity);
}

/**
 * Those that wait, the next one first, if nothing new comes: agents take turns, first who has the fewest running, then who was
 * served longest ago; of one agent the oldest goes first. `ended` are those that ended last: who is not among them was served
 * before. Finals wait for all others. Priority comes before all that, but nothing can be handed in with one, and lists do not
 * tell it.
 */
export function inTurn(waiting: Summary[], running: Summary[], ended: Summary[]): Summary[] {
  const isLast = ({ final_of }: Summary) => typeof final_of === 'number';
  const first = turnsOf(waiting.filter((row) => !isLast(row)), running, ended);
  return [...first, ...turnsOf(waiting.filter(isLast), running, ended)];
}

function turnsOf(waiting: Summary[], running: Summary[], ended: Summary[]): Summary[] {
  const served = lastServed(running, ended);
  const clients = new Set(
    [...new Set(waiting.map(({ agent }) => agent))].map((name): Client => {
      const own = waiting.filter(({ agent }) => agent === name).sort((a, b) => b.id - a.id);
      const runs = running.filter(({ agent }) => agent === name).length;
      return { waiting: own, running: runs, served: served.get(name) ?? 0 };
    }),
  );
  const turns: Summary[] = [];
  let time = Math.max(0, ...served.values());
  while (clients.size > 0) {
    const next = [...clients].reduce((a, b) => (isBefore(b, a) ? b : a));
    turns.push(...next.waiting.splice(-1));
    next.running += 1;
    next.served = ++time;
    if (next.waiting.length === 0) clients.delete(next);
  }
  return turns;
}
