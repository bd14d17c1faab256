"""`mgpu configure`: proposes a config for this machine, asks for what it cannot detect, and writes the file."""
