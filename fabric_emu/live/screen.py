"""The live picture on a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fabric_emu.results.live import Layout, Picture
from fabric_emu.results.live_bars import lines


class Screen:
    """Draws pictures over each other at the bottom of a terminal; the last one goes, too.

    Args:
        layout: what is shown.
        file: the terminal.
    """

    def __init__(self, layout: Layout, file: TextIO) -> None:
        self._layout = layout
        self._console = Console(file=file, highlight=False, markup=False, emoji=False)
        self._ascii_only = not self._console.encoding.lower().startswith("utf")
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            vertical_overflow="crop",
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, picture: Picture) -> None:
        """Draw a picture."""
        width, height = self._console.size
        drawn = lines(self._layout, picture, width - 1, height - 1, self._ascii_only)
        # One text costs half of what a group of lines does.
        whole = Text("\n", no_wrap=True, overflow="crop", end="").join(drawn)
        self._live.update(whole, refresh=True)
