"""Programs of science, simulation and trackers: what their messages mean, and when they do not.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import frames
from tests.test_log_meanings import explained

SCRIPT = "/home/ada/fit.py"


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("s = pd.Series(data=scores, index=names)", "pandas/core/series.py",
         "ValueError: Length of passed values is 60, index implies 5.", "a Series gets 60 values and an index of 5",
         "columns=index"),
        ("s = pd.Series(scores, names)", "pandas/core/common.py",
         "ValueError: Length of values (12) does not match length of index (3)",
         "a Series gets 12 values and an index of 3 labels", "len(data)"),
        ("df['score'] = scores", "pandas/core/common.py",
         "ValueError: Length of values (12) does not match length of index (3)",
         "a column gets 12 values, and the table has 3 rows", "df.iloc"),
        ("wandb.tensorboard.patch(root_logdir=out)", "wandb/integration/tensorboard/monkeypatch.py",
         "ValueError: Tensorboard already patched, remove `sync_tensorboard=True` from `wandb.init` or only call "
         "`wandb.tensorboard.patch` once.", "TensorBoard is connected to wandb twice", "without sync_tensorboard"),
        ("run = wandb.init(sync_tensorboard=True)", "wandb/integration/tensorboard/monkeypatch.py",
         "ValueError: Tensorboard already patched. Call `wandb.tensorboard.unpatch()` first.",
         "TensorBoard is connected to wandb twice", "unpatch"),
    ],
)  # fmt: skip
def test_what_packages_refuse(code: str, below: str, error: str, title: str, words: str, tmp_path: Path) -> None:
    found = explained(tmp_path, f"{frames((SCRIPT, 'main', code), (below, 'check', 'raise ValueError('))}{error}\n")
    assert found[1].startswith(title) and words in found[2]


def test_images_that_gdal_cannot_decode(tmp_path: Path) -> None:
    block = "band 2: IReadBlock failed at X offset 3, Y offset 71: TIFFReadEncodedTile() failed."
    for path in ("/data/scenes/red.tif", "tiles/north/b.tiff"):
        text = f"reading\nERROR 1: ZIPDecode:Decoding error at scanline 71\nERROR 1: {path}, {block}\n"
        row, title, words = explained(tmp_path, text)
        assert row == "log_raster_not_decoded"
        assert title == f"GDAL cannot decode {path}: the file is damaged or incomplete (block 3, 71)"
        assert f"gdalinfo -checksum {path}" in words


MISSING = "TypeError: Missing values detected in object {} for the following fields:\n  - {}\n"
HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"


def test_the_first_exception_of_a_chain_is_explained(tmp_path: Path) -> None:
    validates = ("/home/ada/IsaacLab/source/isaaclab/isaaclab/utils/configclass.py", "_validate", "raise TypeError(")
    makes = (SCRIPT, "main", "env = gym.make(task, cfg=cfg)")
    prints = ("gymnasium/envs/registration.py", "make", 'f"{e} was raised for {kwargs}"')
    again = frames(makes, prints) + "AttributeError: 'RunnerCfg' object has no attribute 'steps'\n"
    for name, fields in (("ArmEnvCfg", "scene.robot.prim_path"), ("KickEnvCfg", "decimation\n  - sim.dt")):
        text = frames(validates) + MISSING.format(name, fields) + HANDLED + again
        _, title, words = explained(tmp_path, text)
        assert title.startswith(f"required values of the config {name} are not set, first {fields.split()[0]}")
        assert title.endswith("while it was handled, AttributeError was raised too")
        assert "Let the script raise it" not in words  # the handler is in a package
    other = (
        frames(makes)
        + "RuntimeError: the scene is broken\n"
        + HANDLED
        + frames((SCRIPT, "main", "x.y"))
        + ("AttributeError: 'X' object has no attribute 'y'\n")
    )
    _, title, words = explained(tmp_path, other)
    assert title.startswith("RuntimeError: the scene is broken; while it was handled")
    assert "Let the script raise it" in words


@pytest.mark.parametrize("library", ["Simulator", "The physics backend"])
def test_warp_without_a_driver(library: str, tmp_path: Path) -> None:
    failed = f"{frames((SCRIPT, 'main', 'env = make()'))}RuntimeError: {library} requires CUDA.\n"
    banner = (
        'Warp 1.7.2 initialized:\n   CUDA driver not found or failed to initialize\n   Devices:\n     "cpu" : "x86"\n'
    )
    assert "Warp found no CUDA driver" in explained(tmp_path, banner + failed)[1]
    assert "torch sees none" in explained(tmp_path, failed)[1]


@pytest.mark.parametrize(
    "line",
    [
        "WARNING:root:You must call setup(conf) before the loaders. Exiting.",
        "[rank2] no checkpoint found in out. Aborting!",
        "The option --size is required; exiting now",
    ],
)
def test_a_last_line_that_says_why_the_program_leaves(line: str, tmp_path: Path) -> None:
    row, title, _ = explained(tmp_path, f"start\nloading\n{line}\n\n=== done Fri ===\n")
    assert row == "log_program_reported_error"
    assert "the program reported an error and exited" in title
    steps = "".join(f"epoch {epoch} loss 0.{9 - epoch}1\n" for epoch in range(1, 6))
    _, title, _ = explained(tmp_path, f"{steps}{line}\n")
    assert "the program probably reported an error and exited" in title


@pytest.mark.parametrize("line", ["All 20 epochs are complete. Exiting.", "Early stopping after 3 epochs: exiting",
                                  "The score of the test set does not improve any more. Exiting.",
                                  "The required F1 was reached, exiting.", "Reached the required F1. Exiting now.",
                                  "Test error 0.07 at the end. Exiting.", "Final error rate: 7%. Exiting.",
                                  "Nothing to do: 9 files exist, no file is missing. Exiting.",
                                  "could not find the cache, using none. Training goes on"])  # fmt: skip
def test_other_last_lines(line: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        explained(tmp_path, f"start\nloading\n{line}\n")
