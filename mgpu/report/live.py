"""Lines at the end of a terminal that are redrawn in place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from mgpu.report.screen import Line, Screen, painted

REDRAW_S = 0.25  # between two updates of a live screen


class Live:
    """Lines at the end of a terminal that are redrawn in place. The last ones stay.

    It never uses the alternate screen. The width is queried each time, because the terminal may be resized.
    """

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live as Painted

        self.screen, self.clock = screen, clock
        self.painted_at: float | None = None
        self.live = Painted(
            console=screen.console(),
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    @property
    def due(self) -> bool:
        """Whether it is time for the next update."""
        return self.painted_at is None or self.clock() - self.painted_at >= REDRAW_S

    def paint(self, lines: Iterable[Line]) -> None:
        """Replace the lines on the screen with these."""
        from rich.text import Text

        self.painted_at = self.clock()
        self.live.start()
        text = Text("\n", no_wrap=True, overflow="crop").join(painted(line) for line in lines)
        self.live.update(text, refresh=True)

    def end(self) -> None:
        """Keep the last lines and restore the terminal."""
        self.live.stop()
