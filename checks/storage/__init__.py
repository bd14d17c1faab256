"""Can the run write where it will, is there room, and are its caches in places that work for many ranks?

* filesystems: do the file systems answer, and fast enough for many ranks?
* output: can the run write where it starts and where it was told to, and does it last?
* temporary: does the folder for temporary files work?
* caches: do the caches of models and compiled kernels work for many ranks?
* _folders: kinds of file systems, and what is said of a folder.
"""

ORDER = ("filesystems", "output", "temporary", "caches")
