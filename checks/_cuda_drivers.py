"""Which driver does a CUDA toolkit need?"""

from __future__ import annotations

# Oldest driver that runs any toolkit of this CUDA major version (minor-version compatibility):
# docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
DRIVER_FLOOR: dict[int, tuple[int, ...]] = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}

# Driver packaged with each toolkit, which supports it fully: CUDA Toolkit release notes, table 3 (11.8 to 13.2).
DRIVER_PACKAGED: dict[tuple[int, int], tuple[int, ...]] = {
    (11, 8): (520, 61, 5),
    (12, 0): (525, 60, 13),
    (12, 1): (530, 30, 2),
    (12, 2): (535, 54, 3),
    (12, 3): (545, 23, 6),
    (12, 4): (550, 54, 14),
    (12, 5): (555, 42, 2),
    (12, 6): (560, 28, 3),
    (12, 8): (570, 26),
    (12, 9): (575, 51, 3),
    (13, 0): (580, 65, 6),
    (13, 1): (590, 44, 1),
    (13, 2): (595, 45, 4),
}
