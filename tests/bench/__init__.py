"""Benchmarks, run by hand. Never timed asserts in the suite: they print ratios of one run on one machine."""
