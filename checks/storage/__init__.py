"""Can the run write its output, is there enough space, and do its caches work for many ranks?

* filesystems: do the file systems respond, and fast enough for many ranks?
* output: can the run write to its current and configured folders, and are they persistent?
* temporary: does the folder for temporary files work?
* caches: do the caches of models and compiled kernels work for many ranks?
* _folders: kinds of file systems, and texts about a folder.
"""

ORDER = ("filesystems", "output", "temporary", "caches")
