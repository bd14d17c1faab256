"""Do the CUDA libraries that the loader would find belong together, and to this driver and torch?

* wheels: do the wheels that bring them fit each other and torch?
* loader: does the loader find them first, and the driver's own libcuda?
* compilers: is there what extensions and kernels are compiled with, and does it fit?
"""

ORDER = ("wheels", "loader", "compilers")
