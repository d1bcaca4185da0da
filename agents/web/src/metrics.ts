// What is measured of a flow: a copy of agents/evaluation/metric_table.h, which that one's test writes (SLUICE_ACCEPT=1).

export interface Metric {
  name: string;
  title: string;
  form: 'share' | 'ratio' | 'nats';
  interval: boolean;
  better?: 'higher' | 'lower';
}

/** In the order in which they are read. */
export const kMetrics: readonly Metric[] = [
  { name: 'score', title: 'Score', form: 'share', interval: true, better: 'higher' },
  { name: 'accuracy', title: 'Accuracy', form: 'share', interval: true, better: 'higher' },
  { name: 'dense_accuracy', title: 'Dense accuracy', form: 'share', interval: true },
  { name: 'speedup', title: 'Speed', form: 'ratio', interval: true, better: 'higher' },
  { name: 'pages_read', title: 'Pages read', form: 'share', interval: false, better: 'lower' },
  { name: 'mass', title: 'Attention mass', form: 'share', interval: false, better: 'higher' },
  { name: 'loss', title: 'Loss above dense', form: 'nats', interval: true, better: 'lower' },
  { name: 'trace_mass', title: 'Mass on traces', form: 'share', interval: true, better: 'higher' },
  { name: 'trace_regret', title: 'Regret on traces', form: 'share', interval: true, better: 'lower' },
  { name: 'trace_error', title: 'Output error on traces', form: 'share', interval: true, better: 'lower' },
];

/** What confirmations have beside those. */
export const kConfirmedMetrics: readonly Metric[] = [
  { name: 'holdout_accuracy', title: 'Accuracy held out', form: 'share', interval: true, better: 'higher' },
];
