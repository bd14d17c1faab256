"""Files of the user, read into facts: training scripts, job scripts, logs."""
