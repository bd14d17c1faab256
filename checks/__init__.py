"""The checks: one file per family, one small pure function per check.

A family too large for one file is a folder of the same name. `ORDER` in its `__init__.py` sets the order in which its
files' checks are listed. `ORDER` below does the same for the families.

How to write a check:

    @check(Severity.ERROR, source="https://where.the/authority/says/so")
    def gpu_is_purple(gpus: tuple[Gpu, ...]) -> Answer:
        \"\"\"A GPU is purple.

        Why: the mechanism, in the field's terms, ending with what the user would see.
        More: details that only the catalogue and `--explain` show.

        Fix: what to do.
        \"\"\"
        bad = [gpu for gpu in gpus if gpu.color == "purple"]
        if bad:
            return gpu_problem(bad, "purple", {"color": "color"}, Fix(commands=("repaint",), who="admin"))
        return Ok(f"{len(gpus)} GPUs are green")

* The name is the id, `<subject>_<what is wrong>`; it reads right after "ignore". No number, no severity in it.
* The parameters are the facts: fields of `Snapshot`, with exactly their type. An unknown fact skips the check.
* The answer is `Ok(evidence)`, `Skip(reason)`, `Problem(...)`, or a tuple of Problems if a file has several faults.
* Why and Fix are the default cause and fix text of the problem. A check sets `cause` or a fix's text only to add
  something specific to the machine.
* Preconditions go into `given=`: functions of facts that return Ok, Skip, or None to continue.
* A threshold is a named constant with its source beside it. What a feature requires of GPUs and packages is in
  `mgpu/planning/requirements.py`, which the wizard uses too.
* A fix has `edits` only if they are safe: they cannot change what the user meant, and they remove the problem.
* `because_of` names the ids of problems that would explain this one.
* Consequences are declared with the check, never looked up by its id elsewhere: `stops_launch`, `stops_start`,
  `condemns_node`, `watch`; for a failed run `role`, `kind`, `same_as`, `effect_of`; otherwise one of the `tags`. See
  `Check` in `mgpu/check.py`. Properties of the whole family are in its `FAMILY`: whether it applies to GPUs only,
  whether its errors stop a run at its start. `mgpu/engine/selections.py` defines which command runs which checks.
* A check opens no file, starts no process and imports nothing at run time: `tests/test_every_check.py` enforces this,
  and requires a test in which the check fires and one in which it does not.
"""

# The order in which families are listed; `ROWS` in `mgpu/report/screen.py` groups them into rows.
# fmt: off
ORDER = (
    "driver", "gpu", "ecc", "memory", "mig", "clocks", "xid", "cuda", "processes", "visibility", "links", "pcie",
    "pytorch", "libraries", "nccl", "environ", "packages", "config", "deepspeed_file", "limits", "kernel", "kernel_log",
    "storage", "container", "network", "infiniband", "slurm", "job", "script", "smoke", "rehearsal", "stamp", "fleet",
    "run", "hang", "work", "log", "local_rules",
)
# fmt: on
