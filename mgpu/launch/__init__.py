"""`mgpu launch` and everything that starts a launcher: argv and environment as data, supervision, hand-off."""
