"""Is the installed PyTorch compatible with this driver and these GPUs?

* importing: is it installed, and can it and its extensions be imported?
* features: is it new enough, and built with what several GPUs need?
* driver: does the driver support the CUDA it was built with?
* kernels: was it compiled for these GPUs?
* loaded: which CUDA libraries did it actually load?
* _wheels: the wheel that a driver supports.
"""

from mgpu.check import Family

ORDER = ("importing", "features", "driver", "kernels", "loaded")
FAMILY = Family(stops_start="on_gpus")
