"""Other programs: how they are started, supervised, signaled and logged, and what they leave behind."""
