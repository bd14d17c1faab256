"""Other programs: how they are started, supervised, signaled and logged, and which files they leave behind."""
