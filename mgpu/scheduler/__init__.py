"""Slurm, asked through its own commands: with a limit, and with its refusals explained."""
