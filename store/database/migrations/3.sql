-- Flows that ended without a verdict can be handed in again, which counts as new ones do.

CREATE TABLE resubmissions (
  agent INTEGER NOT NULL REFERENCES agents (id),
  time INTEGER NOT NULL,
  submission INTEGER NOT NULL REFERENCES submissions (id)
) STRICT;
CREATE INDEX resubmissions_of_agent ON resubmissions (agent, time);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created);
