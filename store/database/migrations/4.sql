-- Experiments: a script may be tried many times, beside the one verdict that it has as a submission.

CREATE TABLE studies (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  agent INTEGER NOT NULL REFERENCES agents (id),
  name TEXT NOT NULL,
  goal TEXT NOT NULL,
  settings TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'closed')),
  created INTEGER NOT NULL,
  UNIQUE (agent, name)
) STRICT;
CREATE INDEX studies_of_agent ON studies (agent, created);

CREATE TABLE trials (
  id INTEGER PRIMARY KEY,
  study INTEGER NOT NULL REFERENCES studies (id),
  number INTEGER NOT NULL CHECK (number >= 0),
  agent INTEGER NOT NULL REFERENCES agents (id),
  submission INTEGER NOT NULL REFERENCES submissions (id),
  parameters TEXT NOT NULL,
  seed INTEGER CHECK (seed >= 0),
  state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'complete', 'failed', 'pruned')),
  told INTEGER NOT NULL DEFAULT 0 CHECK (told IN (0, 1)),
  evaluation INTEGER REFERENCES evaluations (id),
  created INTEGER NOT NULL,
  started INTEGER,
  finished INTEGER,
  UNIQUE (study, number),
  CHECK ((finished IS NULL) = (state IN ('waiting', 'running'))),
  CHECK (state <> 'waiting' OR started IS NULL),
  CHECK (state <> 'running' OR started IS NOT NULL),
  CHECK (told = 0 OR (finished IS NOT NULL AND evaluation IS NULL)),
  CHECK (evaluation IS NULL OR finished IS NOT NULL),
  CHECK (state NOT IN ('complete', 'pruned') OR told = 1 OR evaluation IS NOT NULL)
) STRICT;
CREATE INDEX trials_of_submission ON trials (submission);
CREATE INDEX followers_of_submission ON trials (submission) WHERE seed IS NULL AND finished IS NULL;
CREATE INDEX trials_by_state ON trials (study, state);
CREATE INDEX trials_of_agent ON trials (agent, created);
CREATE INDEX trials_of_evaluation ON trials (evaluation) WHERE evaluation IS NOT NULL;

CREATE TABLE told_values (
  trial INTEGER NOT NULL REFERENCES trials (id),
  name TEXT NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY (trial, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE trial_requests (
  study INTEGER NOT NULL REFERENCES studies (id),
  key TEXT NOT NULL,
  request_hash BLOB NOT NULL,
  first INTEGER NOT NULL,
  count INTEGER NOT NULL CHECK (count > 0),
  created INTEGER NOT NULL,
  PRIMARY KEY (study, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX trial_requests_by_age ON trial_requests (created);

-- Jobs and attempts are of a submission or of a trial. No ids are given anew: a lease is the id of an evaluation.
CREATE TABLE evaluations_4 (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  submission INTEGER NOT NULL REFERENCES submissions (id),
  trial INTEGER REFERENCES trials (id),
  attempt INTEGER NOT NULL,
  worker TEXT NOT NULL,
  started INTEGER NOT NULL,
  finished INTEGER,
  outcome TEXT CHECK (outcome IN ('judged', 'failed', 'expired', 'cancelled')),
  verdict TEXT CHECK (verdict IN ('passed', 'rejected_static', 'incorrect_numerical', 'below_threshold', 'timeout',
    'runtime_error', 'cancelled')),
  message TEXT NOT NULL DEFAULT '',
  hint TEXT NOT NULL DEFAULT '',
  seed TEXT NOT NULL DEFAULT '',
  CHECK ((finished IS NULL) = (outcome IS NULL))
) STRICT;
INSERT INTO sqlite_sequence (name, seq) SELECT 'evaluations_4', seq FROM sqlite_sequence WHERE name = 'evaluations';
INSERT INTO evaluations_4 (id, submission, attempt, worker, started, finished, outcome, verdict, message, hint, seed)
  SELECT id, submission, attempt, worker, started, finished, outcome, verdict, message, hint, seed FROM evaluations;
DROP TABLE evaluations;
ALTER TABLE evaluations_4 RENAME TO evaluations;
CREATE UNIQUE INDEX evaluations_of_job ON evaluations (submission, coalesce(trial, 0), attempt);

CREATE TABLE queue_4 (
  id INTEGER PRIMARY KEY,
  submission INTEGER NOT NULL REFERENCES submissions (id),
  trial INTEGER REFERENCES trials (id),
  agent INTEGER NOT NULL REFERENCES agents (id),
  priority INTEGER NOT NULL,
  available INTEGER NOT NULL,
  tries INTEGER NOT NULL DEFAULT 0,
  evaluation INTEGER REFERENCES evaluations (id),
  lease_owner TEXT,
  lease_expiry INTEGER,
  CHECK ((evaluation IS NULL) = (lease_owner IS NULL) AND (evaluation IS NULL) = (lease_expiry IS NULL))
) STRICT;
INSERT INTO queue_4 (submission, agent, priority, available, tries, evaluation, lease_owner, lease_expiry)
  SELECT submission, agent, priority, available, tries, evaluation, lease_owner, lease_expiry FROM queue ORDER BY submission;
DROP TABLE queue;
ALTER TABLE queue_4 RENAME TO queue;
CREATE UNIQUE INDEX queue_of_submission ON queue (submission) WHERE trial IS NULL;
CREATE UNIQUE INDEX queue_of_trial ON queue (trial) WHERE trial IS NOT NULL;
CREATE UNIQUE INDEX queue_of_lease ON queue (evaluation) WHERE evaluation IS NOT NULL;
CREATE INDEX queue_leases ON queue (agent) WHERE evaluation IS NOT NULL;
