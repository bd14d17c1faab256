"""What do the logs of a run say went wrong? Tables of signatures: a text that a failure leaves, and what it means."""

ORDER: tuple[str, ...] = ()
