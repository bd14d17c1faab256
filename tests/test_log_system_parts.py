"""Parts of the system or of the data that plain scripts miss: models of spaCy, GPU libraries, values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_meanings import explained
from tests.test_log_plain_scripts import raised
from tests.test_log_went_on import cause

QT = (
    "qt.qpa.xcb: could not connect to display \n"
    'qt.qpa.plugin: Could not load the Qt platform plugin "xcb" in "/x/cv2/qt/plugins" even though it was found.\n'
    "This application failed to start because no Qt platform plugin could be initialized.\n\nAborted (core dumped)\n"
)


@pytest.mark.parametrize(
    "text",
    [
        QT,
        raised("_tkinter.TclError: no display name and no $DISPLAY environment variable"),
        raised("mujoco.FatalError: gladLoadGL error"),
        raised("ImportError: Failed to initialize OpenGL"),
        raised('pyglet.canvas.xlib.NoSuchDisplayException: Cannot connect to "None"'),
    ],
)
def test_a_machine_without_a_display(tmp_path: Path, text: str) -> None:
    found, title, words = explained(tmp_path, text)
    no_screen = found == "log_no_display" and "no screen" in title and "MPLBACKEND=Agg" in words
    assert no_screen or (found == "log_no_rendering" and "MUJOCO_GL=egl" in words), title


def test_a_display_that_nothing_needs_is_not_named(tmp_path: Path) -> None:
    assert (
        cause("libEGL warning: failed to open /dev/dri/renderD128: Permission denied\n", tmp_path) != "log_no_rendering"
    )
    assert cause("Loss display every 10 steps\nDISPLAY=\nEGL device 0 found\n", tmp_path) is None


@pytest.mark.parametrize(
    ("program", "known"), [("ffmpeg", True), ("git", True), ("data", False), ("out/ffmpeg", False), ("make.txt", False)]
)
def test_a_program_is_not_a_file_of_the_script(tmp_path: Path, program: str, known: bool) -> None:
    found, title, words = explained(
        tmp_path, raised(f"FileNotFoundError: [Errno 2] No such file or directory: '{program}'")
    )
    assert found == "log_file_missing" and ("is not installed" in title) == known
    assert ("apt-cache search" in words) == known


@pytest.mark.parametrize(
    ("message", "found", "words"),
    [
        ("RuntimeError: Couldn't find appropriate backend to handle uri a.mp3 and format None.",
         "log_audio_without_backend", "soundfile"),
        ("OSError: [E050] Can't find model 'de_core_news_sm'. It doesn't seem to be a Python package or a valid path.",
         "log_spacy_model_missing", "spacy download de_core_news_sm"),
        ("ValueError: Input X contains NaN.\nLogisticRegression does not accept missing values.",
         "log_values_missing_in_data", "SimpleImputer"),
        ("ValueError: Input contains NaN, infinity or a value too large for dtype('float64').",
         "log_values_missing_in_data", "isna()"),
        ("FileNotFoundError: Cannot find DGL C++ graphbolt library at /x/libgraphbolt_pytorch_2.4.0.so",
         "log_dgl_for_another_torch", "pip install dgl"),
        ("tensorflow.python.framework.errors_impl.InternalError: libdevice not found at ./libdevice.10.bc [Op:__x]",
         "log_xla_libraries_missing", "xla_gpu_cuda_data_dir"),
        ("RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.",
         "log_xla_libraries_missing", "jax[cuda12]"),
    ],
)  # fmt: skip
def test_what_a_script_misses_is_named(tmp_path: Path, message: str, found: str, words: str) -> None:
    name, _, reason = explained(tmp_path, raised(message))
    assert name == found and words in reason


def test_a_backend_that_jax_does_without(tmp_path: Path) -> None:
    lines = "".join(f"sample {n} done\n" for n in range(40))
    assert (
        cause("INFO:jax._src.xla_bridge: Unable to initialize backend 'cuda': no such device\n" + lines, tmp_path)
        is None
    )
