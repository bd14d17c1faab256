"""`python -m mgpu.one_file.build mgpu.pyz`: mgpu and its packages as one file, to copy to a cluster.

`build.py` makes it from the packages of the Python that runs it, without the network. `self_unpacking.py` becomes the
file's `__main__.py`: it unpacks the file once, because ranks and probes run mgpu's sources as files, and starts mgpu.
"""
