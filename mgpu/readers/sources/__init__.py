"""What does the user's own source say about a line that failed? It is read where it lies beside a log.

A traceback has one line of each frame. The files show where the values of that line come from: `files.py` finds them
and makes sure that they are still as the log has them, `bindings.py` finds what gives a name its value, `options.py`
the options of a command line, `lookup.py` follows the names of a failed line through all of them, and `origins.py` adds
what it found to the log.
"""
