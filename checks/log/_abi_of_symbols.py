"""Which C++ ABI was an extension built with? The symbol that it does not find in torch shows it."""

from __future__ import annotations

import re

# Functions that every torch has, with a std::string as an argument: only its form can be missing. The name of a
# std::string is `Ss` in the old ABI, `std::__cxx11::basic_string` in the new one.
_IN_EVERY_TORCH = re.compile(
    r"_ZN3c10(?:5ErrorC[12]ENS_14SourceLocationE?|6detail(?:14torchCheckFail|23torchInternalAssertFail)E\w*?)"
    r"(?:RK)?(?:N?(?P<new>St7__cxx11)|(?P<old>Ss))"
)
ASK = "python -c 'import torch; print(torch.__version__, torch.compiled_with_cxx11_abi())'"


def abi_of(symbol: str) -> str:
    """Return a sentence about the ABIs of an extension and of torch; empty if the symbol does not show them."""
    found = _IN_EVERY_TORCH.match(symbol.strip())
    if not found:
        return ""
    sides = ("new", "old") if found["new"] else ("old", "new")
    return (
        f" Every torch has this function: the type of its string argument shows that the extension was built with the "
        f"{sides[0]} C++ ABI, and the installed torch with the {sides[1]} one. PyTorch's wheels have the new one since "
        "2.7, and the old one up to 2.5."
    )
