"""Arithmetic for a training run: batch and steps, memory, bandwidth, requirements of features, known GPU models."""
