"""`mgpu configure`: proposes a config for this machine, asks what the machine cannot tell, writes it."""
