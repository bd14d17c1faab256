"""Are the CUDA libraries that the loader finds compatible with each other, with this driver and with torch?

* wheels: are the wheels that contain them compatible with each other and torch?
* loader: does the loader find them first, and the driver's own libcuda?
* compilers: are the compilers for extensions and kernels installed and compatible?
"""

ORDER = ("wheels", "loader", "compilers")
