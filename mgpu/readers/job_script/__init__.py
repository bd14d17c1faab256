"""A job script as the fact `job`: its #SBATCH options and the programs that it starts."""
