"""accelerate, torchrun and python as data: argv, environment, port, GPU selection, run folder, verification record."""
