"""Reads a training script into the fact `script`: its imports, calls and rank conditions."""
