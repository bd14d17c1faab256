"""Slurm, used through its own commands: with timeouts, and with its errors explained."""
