"""Does a job script for Slurm start the training it means to start?"""
