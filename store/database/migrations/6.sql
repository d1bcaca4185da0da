-- Scripts that turn out to be the same flow share a verdict.

ALTER TABLE submissions ADD COLUMN fingerprint BLOB;
ALTER TABLE submissions ADD COLUMN same_as INTEGER REFERENCES submissions (id);
CREATE INDEX submissions_by_fingerprint ON submissions (fingerprint) WHERE fingerprint IS NOT NULL;
CREATE INDEX submissions_of_same ON submissions (same_as) WHERE same_as IS NOT NULL;
