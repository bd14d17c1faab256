"""The folder in front of the ranks' PYTHONPATH."""
