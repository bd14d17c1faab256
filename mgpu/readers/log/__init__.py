"""A log of a run, read as a stream into the fact `log`."""
