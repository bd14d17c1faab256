"""A case: all facts of a machine and of one run, redacted, as one document and as one archive."""
