"""All checks: one file per family, one small pure function per check.

A large family is a folder of the same name; `ORDER` in its `__init__.py` names its files in the order in which their
checks are listed. `ORDER` below does the same for the families.

How to write one:

    @check(Severity.ERROR, source="https://where.the/authority/says/so")
    def gpu_is_purple(gpus: tuple[Gpu, ...]) -> Answer:
        \"\"\"A GPU is purple.

        Why: the mechanism, in technical terms, ending with what the user would see.
        More: details for the catalogue and `--explain` only.

        Fix: what to do.
        \"\"\"
        bad = [gpu for gpu in gpus if gpu.color == "purple"]
        if bad:
            return gpu_problem(bad, "purple", {"color": "color"}, Fix(commands=("repaint",), who="admin"))
        return Ok(f"{len(gpus)} GPUs are green")

* The name is the id, `<subject>_<what is wrong>`; it makes sense after "ignore". No number, no severity in it.
* The parameters are the facts: fields of `Snapshot`, with exactly their type. An unknown fact skips the check.
* The answer is `Ok(evidence)`, `Skip(reason)`, `Problem(...)`, or a tuple of Problems if a file has several faults.
* Why and Fix are the problem's cause and the text of its fixes: a check sets `cause` or a fix's text only if it adds
  something that depends on the machine.
* `given=` has the preconditions: functions of facts that return Ok or Skip, or None to run the check.
* A threshold is a named constant with its source beside it. What a feature requires of GPUs and packages is in
  `mgpu/planning/requirements.py`, which the wizard also uses.
* A fix has `edits` only if they are safe: they cannot change what the user meant, and they remove the problem.
* `because_of` names the ids of problems that would explain this one.
* The consequences of a problem are declared with the check, never looked up by its id elsewhere: `stops_launch`,
  `stops_start`, `condemns_node`, `watch`; for a failed run `role`, `kind`, `same_as`, `effect_of`; else one of the
  `tags`. `Check` in `mgpu/check.py` explains each. Properties of the whole family are in its `FAMILY`: whether it is
  about GPUs only, whether its errors stop a run at its start. `mgpu/engine/selections.py` defines which command runs
  which checks.
* A check opens no file, starts no process and imports nothing at run time. `tests/test_every_check.py` enforces that,
  and requires a test in which the check fires and one in which it does not.
"""

# Families in the order in which their checks are listed; `ROWS` in `mgpu/report/screen.py` groups them into rows.
# fmt: off
ORDER = (
    "driver", "gpu", "ecc", "memory", "mig", "clocks", "xid", "cuda", "processes", "visibility", "links", "pcie",
    "pytorch", "libraries", "nccl", "environ", "packages", "config", "limits", "kernel", "kernel_log", "storage",
    "container", "network", "infiniband", "slurm", "job", "script", "smoke", "stamp", "fleet", "run", "work", "log",
)
# fmt: on
