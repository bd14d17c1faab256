"""Readers of the user's files: training scripts, job scripts and logs, each of which becomes a fact."""
