"""All judgment: one file a family, one small pure function a check.

A family that has outgrown its file is a folder of the same name; `ORDER` in its `__init__.py` names the files as their
checks are listed. `ORDER` below names the families in the same way.

How to write one:

    @check(Severity.ERROR, source="https://where.the/authority/says/so")
    def gpu_is_purple(gpus: tuple[Gpu, ...]) -> Answer:
        \"\"\"A GPU is purple.

        Why: the mechanism, in the field's terms, ending at what the user would see.
        More: what only the catalogue and `--explain` say of it.

        Fix: what to do.
        \"\"\"
        bad = [gpu for gpu in gpus if gpu.color == "purple"]
        if bad:
            return gpu_problem(bad, "purple", {"color": "color"}, Fix(commands=("repaint",), who="admin"))
        return Ok(f"{len(gpus)} GPUs are green")

* The name is the id, `<subject>_<what is wrong>`; it reads right after "ignore". No number, no severity in it.
* The parameters are the facts: fields of `Snapshot`, with exactly their type. A fact that is not known skips the check.
* The answer is `Ok(evidence)`, `Skip(reason)`, `Problem(...)`, or a tuple of Problems when a file has several faults.
* Why and Fix are the problem's cause and the text of its fix (of each without one): a check writes `cause` and a text
  only where the machine adds something to them.
* What has to hold before there is a question is `given=`: functions of facts that answer Ok, Skip, or None to go on.
* A number that judges is a named constant with its source beside it; what a feature needs of GPUs and packages stands
  in `mgpu/planning/requirements.py`, by which the wizard proposes as well.
* A fix carries `edits` only where they are safe: they cannot change what was meant, and the problem is gone afterwards.
* `because_of` names the ids of problems that would explain this one.
* What follows from the problem is declared at the check, never looked up by its id elsewhere: `stops_launch`,
  `stops_start`, `condemns_node`, `watch`; of a failed run `role`, `kind`, `same_as`, `effect_of`; else one of the
  `tags`. `Check` in `mgpu/check.py` explains each. What holds for the whole family is its `FAMILY`: whether it is about
  GPUs only, whether its errors stop a run at its start. Which command asks which checks: `mgpu/engine/selections.py`.
* A check opens no file, starts nothing, imports nothing at run time: `tests/test_every_check.py` holds it to that, and
  asks for a test in which it fires and one in which it does not.
"""

# Families as their checks are listed; `ROWS` in `mgpu/report/screen.py` groups them into rows.
ORDER = (
    "driver", "gpu", "ecc", "memory", "mig", "clocks", "xid", "cuda", "processes", "visibility", "links", "pcie",
    "pytorch", "libraries", "nccl", "environ", "packages", "config", "limits", "kernel", "kernel_log", "storage",
    "container", "network", "infiniband", "slurm", "job", "script", "smoke", "stamp", "fleet", "run", "work", "log",
)  # fmt: skip
