"""Does the kernel drive the GPUs correctly, and do its settings leave enough for the ranks?

* gpu_modules: does it drive the GPUs with the right module?
* settings: do its settings leave enough memory, ports and files?
* load: are the CPUs online, at full speed and free?
"""

ORDER = ("gpu_modules", "settings", "load")
