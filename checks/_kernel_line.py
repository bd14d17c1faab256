"""Does a line of a log come from the kernel? Programs, answers of models and web pages quote such lines, too.

Source: https://man7.org/linux/man-pages/man1/dmesg.1.html (time and facility), the formats of syslog and journalctl.
"""

from __future__ import annotations

# The start of a line of dmesg, journalctl or /var/log/kern.log, also behind the names that pdsh and grep put before it.
KERNEL_LINE = (
    r"^(?:[\w./-]{1,80}:(?: (?=\[ *\d))?)?(?:\d+:)?(?:\w+ *:\w+ *: *)?(?:<\d+>)?"
    r"(?:(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: \d{4})? |\d{4}-\d\d-\d\d[T ]\S+ )?"
    r"(?:(?:[\w.-]+ )?kernel: ?)?(?:\[[^\]]{1,40}\][:,]? *)*"
)
