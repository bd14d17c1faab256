"""Reads a job script into the fact `job_script`: its #SBATCH options and the programs it starts."""
