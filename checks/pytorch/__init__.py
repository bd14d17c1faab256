"""Does the installed PyTorch fit this driver and these GPUs?

* importing: is it there, and can it and its extensions be imported?
* features: is it new enough, and built with what several GPUs need?
* driver: does the driver run the CUDA it was built with?
* kernels: was it compiled for these GPUs?
* loaded: which CUDA libraries did it really load?
* _wheels: the wheel that a driver runs.
"""

from mgpu.check import Family

ORDER = ("importing", "features", "driver", "kernels", "loaded")
FAMILY = Family(stops_start="on_gpus")
