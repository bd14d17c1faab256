"""Reads the logs of a run, as a stream, into the fact `log`."""
