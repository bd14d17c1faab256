"""Arithmetic on a training: batch and steps, memory, bandwidth, requirements of features, known GPU models."""
