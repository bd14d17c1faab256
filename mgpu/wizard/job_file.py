"""How does the job of a proposal become a file: its content, whether mgpu wrote it, whether the engine accepts it?"""

from __future__ import annotations

import errno
import hashlib
import re
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from mgpu import errors, file_reading
from mgpu.command_line import below, shell
from mgpu.config.reading import WRITTEN_BY
from mgpu.errors import MgpuError
from mgpu.job_files import engines
from mgpu.job_files.job import THIS_FILE
from mgpu.process import child_process, scratch
from mgpu.version import __version__
from mgpu.wizard.answers import AGAIN, equivalent_flags
from mgpu.wizard.existing_file import changed_lines
from mgpu.wizard.manual_commands import environment
from mgpu.wizard.proposal_types import Proposal

_MARK: Final = re.compile(rf"^{re.escape(WRITTEN_BY)} \S+ on \S+; sealed ([0-9a-f]{{12}})\n", re.MULTILINE)
_SHELL: Final = "#!/"
_CHECK_S: Final = 5.0  # bash parses a script without running it in a few ms
_LARGEST: Final = 1 << 20


def text_of(proposal: Proposal, path: Path, config: Path, config_text: str, flags: Sequence[str] = ()) -> str:
    """Return the content of the file, marked as mgpu's.

    `flags`: further options of the command line that made it. Raises MgpuError if the file cannot contain a value.
    """
    assert proposal.job is not None
    if proposal.engine == "slurm":
        from mgpu.job_files import sbatch

        body = sbatch.render(proposal.job)
    else:
        body = engines.render(proposal.engine, _plan(proposal, config, config_text))
    named = _word(path)
    body = re.sub(r"^#.*", lambda line: line[0].replace(THIS_FILE, named), body, flags=re.MULTILINE)
    again = equivalent_flags(proposal.answers, extra=flags, width=90).splitlines()
    comment = [f"# {AGAIN}{again[0]}", *(f"#   {line.strip()}" for line in again[1:])]
    head, body = _split(body)
    body = "".join(f"{line}\n" for line in comment) + body
    return f"{head}{WRITTEN_BY} {__version__} on {date.today().isoformat()}; sealed {_seal(body)}\n{body}"


def _plan(proposal: Proposal, config: Path, config_text: str) -> engines.Plan:
    assert proposal.job is not None
    env = {name: value for name, value in environment(proposal).items() if name != "CUDA_VISIBLE_DEVICES"}
    job, values, model = proposal.job, proposal.values, proposal.gpu_model
    return engines.Plan(job, values, config_text, str(config), model, proposal.cpu, env)


def _word(path: Path) -> str:
    import shlex

    return shlex.quote(str(path)) if str(path).isprintable() else THIS_FILE


def _split(body: str) -> tuple[str, str]:
    """Return the shebang line and the rest."""
    if not body.startswith(_SHELL):
        return "", body
    first, _, rest = body.partition("\n")
    return f"{first}\n", rest


def _seal(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def is_unmodified(path: Path) -> bool:
    """Return whether a file is unchanged since mgpu wrote it."""
    text = _read(path)
    found = _MARK.search(text)
    return found is not None and found[1] == _seal(text[found.end() :])


def is_up_to_date(path: Path, text: str) -> bool:
    """Return whether the file already has this content, ignoring version and date."""
    return path.is_file() and _MARK.sub("", _read(path)) == _MARK.sub("", text)


def differences(path: Path, text: str) -> list[str]:
    """Return the lines the file would lose (-) and gain (+); #SBATCH lines are not comments."""
    before = _MARK.sub("", _read(path)).splitlines() if path.is_file() else []
    return changed_lines(before, _MARK.sub("", text).splitlines())


def _read(path: Path) -> str:
    try:
        return file_reading.read(path, most=_LARGEST).decode("utf-8", "replace")
    except OSError as error:
        if error.errno == errno.EFBIG:
            return ""
        raise MgpuError(f"cannot read {path}: {errors.reason(error)}", errors.NOT_READY) from None


def refuse_foreign(path: Path, engine: str = "slurm", *, agreed: bool) -> None:
    """Raise MgpuError if the existing file is not mgpu's and may not be replaced."""
    if agreed or not path.exists() or is_unmodified(path):
        return
    what = "was changed since mgpu wrote it" if _MARK.search(_read(path)) else "was not written by mgpu"
    asked = "--slurm" if engine == "slurm" else f"--emit {engine}"
    raise MgpuError(
        f"{path} {what}; left unchanged.\n"
        f"  mgpu configure {asked} --yes --force         replace it (a backup is kept)\n"
        f"  mgpu configure {asked} --yes --job OTHER     write another file"
        + (below(shell("mgpu doctor --script {:path}", str(path)), "check it") if engine == "slurm" else ""),
        errors.REFUSED,
    )


def check(text: str, engine: str, folder: Path, *, ask_slurm: bool) -> str:
    """Check the text with its shell, and with Slurm if available; return what checked it ("" = nothing).

    Raises MgpuError if one of them rejects it: nothing is written then.
    """
    if not text.startswith(_SHELL):
        return ""
    with scratch.folder() as place:
        script = place / "job"
        script.write_text(text, "utf-8")
        try:
            read = child_process.run(["bash", "-n", str(script)], _CHECK_S)
        except (OSError, subprocess.TimeoutExpired):
            asked = ""
        else:
            if read.returncode:
                why = read.stderr.decode("utf-8", "replace").strip()
                raise MgpuError(f"bash cannot parse the script that mgpu generated: {why}", errors.NOT_READY)
            asked = "bash -n"
        if engine != "slurm" or not ask_slurm:
            return asked
        from mgpu.scheduler import submit

        try:
            refused = submit.test_only(script, folder=folder)
        except MgpuError:
            return asked
    if refused:
        raise MgpuError("\n".join(["Slurm would reject this job:", *(f"  {why}" for why in refused)]), errors.NOT_READY)
    return f"{asked} and sbatch --test-only" if asked else "sbatch --test-only"


def make_folders(proposal: Proposal, folder: Path) -> str:
    """Create the folder for the job's output, without which Slurm stops the job at once and reports nothing.

    Return the created folder, or "".
    """
    assert proposal.job is not None
    logs = folder / proposal.job.logs
    if proposal.engine != "slurm" or logs.is_dir():
        return ""
    try:
        logs.mkdir(parents=True)
    except OSError as error:
        raise MgpuError(
            f"cannot create the job's output folder {logs}: {errors.reason(error)}", errors.NOT_READY
        ) from None
    return f"{proposal.job.logs}/"
