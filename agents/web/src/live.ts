// What happens on the server, as server-sent events. One stream for the whole page; it goes on where it broke off.

import type { HarnessEvent } from './documents';
import type { Loader } from './loader';

const kKinds = ['submitted', 'running', 'progress', 'retried', 'finished', 'cancelled', 'confirmation'];
const kFirstPause = 1000; // ms before a stream that the server refused is tried again
const kLongestPause = 30000;

export type LiveState = 'connecting' | 'live' | 'lost';

export class Live {
  state: LiveState = 'connecting';
  private source: EventSource | undefined;
  private last: string | undefined;
  private pause = kFirstPause;
  private timer: number | undefined;
  private readonly states = new Set<(state: LiveState) => void>();
  private readonly listeners = new Set<(event: HarnessEvent) => void>();
  private readonly gaps = new Set<() => void>();

  /** A browser has few connections for a server: a tab that nobody looks at gives its own back. */
  start(): void {
    document.addEventListener('visibilitychange', () => (document.hidden ? this.close() : this.connect()));
    if (!document.hidden) this.connect();
  }

  onState(listener: (state: LiveState) => void): void {
    this.states.add(listener);
    listener(this.state);
  }

  /** `listener` hears of every event until `signal` says stop. */
  onEvent(signal: AbortSignal, listener: (event: HarnessEvent) => void): void {
    this.listeners.add(listener);
    signal.addEventListener('abort', () => this.listeners.delete(listener));
  }

  /** `listener` is told whenever the stream begins anew without saying what was missed. */
  onGap(signal: AbortSignal, listener: () => void): void {
    this.gaps.add(listener);
    signal.addEventListener('abort', () => this.gaps.delete(listener));
  }

  private connect(): void {
    this.close();
    this.enter('connecting');
    const source = new EventSource(this.last === undefined ? '/v1/events' : `/v1/events?after=${this.last}`);
    this.source = source;
    source.onopen = () => {
      const is_new = this.last === undefined;
      this.pause = kFirstPause;
      this.enter('live');
      if (is_new) for (const listener of this.gaps) listener();
    };
    source.onerror = () => {
      this.enter('lost');
      // The browser tries again by itself, unless the answer was no stream.
      if (source.readyState !== EventSource.CLOSED) return;
      this.timer = window.setTimeout(() => this.connect(), this.pause);
      this.pause = Math.min(2 * this.pause, kLongestPause);
    };
    for (const kind of kKinds) source.addEventListener(kind, (message) => this.take(message));
  }

  private close(): void {
    window.clearTimeout(this.timer);
    this.source?.close();
    this.source = undefined;
  }

  private take(message: MessageEvent<string>): void {
    this.last = message.lastEventId;
    const event: HarnessEvent = JSON.parse(message.data);
    for (const listener of this.listeners) listener(event);
  }

  private enter(state: LiveState): void {
    this.state = state;
    for (const listener of this.states) listener(state);
  }
}

const kShortestTurn = 300; // ms between an event and what it changes on the screen
const kLongestTurn = 30000;
const kShare = 4; // a view waits this many times as long as its last load took

/**
 * Runs `loader` now, and soon after events that `concerns` says do: one run at a time and, where they take long, seldom.
 *
 * No event is missed: what comes while something is loaded is asked about afterwards, when the view knows what it was told. Events
 * are asked about one after the other, so that `concerns`, which must not throw, knows of each what it learnt of those before it.
 *
 * @return when the first run has ended.
 */
export async function follow(
  live: Live,
  signal: AbortSignal,
  loader: Loader,
  concerns: (event: HarnessEvent) => boolean | Promise<boolean>,
): Promise<void> {
  let wanted = false;
  let waiting = true;
  let pause = kShortestTurn;
  let timer: number | undefined;
  const schedule = () => {
    wanted = true;
    if (waiting || signal.aborted) return;
    waiting = true;
    timer = window.setTimeout(turn, pause);
  };
  const rest = () => {
    waiting = false;
    if (wanted) schedule();
  };
  const turn = async () => {
    wanted = false;
    const begun = performance.now();
    await loader.run();
    pause = Math.min(Math.max(kShortestTurn, kShare * (performance.now() - begun)), kLongestTurn);
    rest();
  };
  signal.addEventListener('abort', () => window.clearTimeout(timer));
  const first = loader.run();
  let taken = Promise.resolve();
  live.onEvent(signal, (event) => {
    taken = taken.then(async () => {
      await loader.idle();
      if (!signal.aborted && (await concerns(event))) schedule();
    });
  });
  live.onGap(signal, schedule);
  await first;
  rest();
}
