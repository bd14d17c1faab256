"""Why did a download of the script itself fail? Texts for `_refused_inputs.py`."""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Refusal

# fmt: off
DOWNLOADS = (
    Refusal("RuntimeError", r"^File not found or corrupted\.",
            "torchvision does not find the files of the dataset, or they are damaged{at}",
            "It compares each file with a checksum. The download was cut or blocked, a server sent an error page, the "
            "folder (root) is another one, or nothing was downloaded yet.",
            (Fix("Look at the folder, and remove damaged files before the next download.", ("ls -la ROOT/*",)),
             Fix("Let it download, on a machine with internet access.", ("datasets.CIFAR10(root, download=True)",)))),
    Refusal("HTTPError", r"^HTTP Error (?P<code>404|410): (?P<said>.{1,40})",
            "the server has no file at the address that the script downloads ({code}: {said}){at}",
            "The file was moved or removed, or the address is misspelled or made of a wrong name.",
            (Fix("Print the address, and open it by hand.", ("print(url)", "curl -sI URL | head -5")),
             Fix("Get the file from its new place, and pass its path.",))),
    Refusal("HTTPError", r"^HTTP Error (?P<code>401|403): (?P<said>.{1,40})",
            "the server refuses the download ({code}: {said}){at}",
            "It wants a login or a signed link, the link has expired, or it does not serve programs without the header "
            "of a browser, or this network.",
            (Fix("Open the address by hand, and download the file in another way.", ("curl -I URL", "wget URL")),)),
)
# fmt: on
