"""What does the user's own source say about a line that failed? It is read where it lies beside a log.

A traceback has one line of each frame. The files show where the values of that line come from. `source_files.py` finds
them, and makes sure that they are still as the log has them. `bindings.py` finds what gives a name its value,
`option_definitions.py` the options of a command line, `classes.py` what a class derives from. `lookup.py` follows the
names of a failed line through all of them, `message_subjects.py` those of its message. `value_origins.py` adds what was
found to the log.
"""
