"""What runs inside each rank of a launched run, so that a hang can be explained.

`inject/` is put in front of PYTHONPATH. It uses the standard library only, because the interpreter of the ranks need
not have mgpu, and it never imports torch: it adds its hooks when the script imports it.
"""
