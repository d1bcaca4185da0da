// Under what a speed was measured: what others did on the machine, and how fast a GPU ran.

import type { Clocks, Stage } from './documents';
import { element, type Child } from './dom';
import { durationText, words } from './format';

/** What is told here, of the members of a stage's details. */
export const kConditions = ['others_busy', 'cores', 'waited'];

function clocksText(clocks: Clocks): string {
  const { sm_mhz, sm_mhz_low, sm_mhz_limit, memory_mhz, held_by, other_processes } = clocks;
  const told = [
    `GPU at ${Math.round(sm_mhz)} of ${sm_mhz_limit} MHz on average, at least ${sm_mhz_low}`,
    `memory at ${memory_mhz} MHz`,
    held_by.length > 0 && `held down by ${held_by.map(words).join(', ')}`,
    other_processes !== null && other_processes > 0 && `other processes on it: ${other_processes}`,
  ];
  return told.filter(Boolean).join(' · ');
}

export function timingConditions({ details }: Stage): Child[] {
  const { quiet, others_busy, cores, waited, clocks } = details;
  const restless = quiet === false && typeof others_busy === 'number' && typeof cores === 'number';
  const had_to_wait = typeof waited === 'number' && waited > 0 ? `, after ${durationText(waited)} of waiting for quiet` : '';
  return [
    restless &&
      element(
        'p',
        { class: 'message' },
        `Others kept ${others_busy.toFixed(1)} of ${Number(cores.toPrecision(3))} cores busy while it was timed${had_to_wait}.`,
      ),
    clocks && element('p', { class: 'muted' }, clocksText(clocks)),
  ];
}
