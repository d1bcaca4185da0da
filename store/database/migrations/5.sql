-- Passed submissions may be judged once more, by questions that nobody could know before.

CREATE TABLE confirmations (
  id INTEGER PRIMARY KEY,
  submission INTEGER NOT NULL REFERENCES submissions (id),
  judged INTEGER NOT NULL UNIQUE REFERENCES evaluations (id),
  agent INTEGER NOT NULL REFERENCES agents (id),
  automatic INTEGER NOT NULL CHECK (automatic IN (0, 1)),
  state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed')),
  tries INTEGER NOT NULL CHECK (tries > 0),
  factor INTEGER NOT NULL CHECK (factor > 0),
  seed BLOB NOT NULL UNIQUE CHECK (length(seed) = 32),
  evaluation INTEGER REFERENCES evaluations (id),
  created INTEGER NOT NULL,
  finished INTEGER,
  CHECK ((finished IS NULL) = (state IN ('queued', 'running'))),
  CHECK (evaluation IS NULL OR finished IS NOT NULL),
  CHECK (state <> 'done' OR evaluation IS NOT NULL)
) STRICT;
CREATE INDEX confirmations_of_submission ON confirmations (submission);
CREATE INDEX confirmations_of_agent ON confirmations (agent, created);
CREATE INDEX confirmations_of_evaluation ON confirmations (evaluation) WHERE evaluation IS NOT NULL;

-- Jobs and attempts are of a submission, of a trial or of a confirmation.
ALTER TABLE evaluations ADD COLUMN
  confirmation INTEGER REFERENCES confirmations (id) CHECK (trial IS NULL OR confirmation IS NULL);
DROP INDEX evaluations_of_job;
CREATE UNIQUE INDEX evaluations_of_job ON evaluations (submission, coalesce(trial, 0), coalesce(confirmation, 0), attempt);

ALTER TABLE queue ADD COLUMN
  confirmation INTEGER REFERENCES confirmations (id) CHECK (trial IS NULL OR confirmation IS NULL);
DROP INDEX queue_of_submission;
CREATE UNIQUE INDEX queue_of_submission ON queue (submission) WHERE trial IS NULL AND confirmation IS NULL;
CREATE UNIQUE INDEX queue_of_confirmation ON queue (confirmation) WHERE confirmation IS NOT NULL;
