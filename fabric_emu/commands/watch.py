"""What ``run`` shows and keeps while it runs: the live view, captures."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabric_emu.errors import FabricError

if TYPE_CHECKING:
    import socket

    from fabric_emu.capture.captures import Captures
    from fabric_emu.experiment import Progress
    from fabric_emu.live.view import LiveView
    from fabric_emu.model.scenario import Scenario
    from fabric_emu.net.fabric import Fabric


class Watch:
    """What is watched, checked before anything is built; ``close`` at the end of the command.

    Args:
        scenario: as it is run.
        seeds: all of them.
        out: where the folder of the run will be.
        live: whether to draw on standard error, if that is a terminal.
        live_web: ``PORT`` or ``ADDRESS:PORT`` to serve a page at.
        pcap: links and hosts to capture.

    Attributes:
        draws: whether the terminal is taken.

    Raises:
        ScenarioError: the port is taken, or there is no such link or host.
    """

    def __init__(
        self,
        scenario: Scenario,
        seeds: Sequence[int],
        out: Path,
        *,
        live: bool,
        live_web: str | None,
        pcap: Sequence[str],
    ) -> None:
        self._scenario, self._seeds = scenario, seeds
        self._stack = contextlib.ExitStack()
        self.draws = live and sys.stderr.isatty()
        self._listener: socket.socket | None = None
        self._captures: Captures | None = None
        self._view: LiveView | None = None
        # Only what is asked for is imported.
        if pcap:
            from fabric_emu.capture.captures import Captures

            several = len(seeds) > 1
            self._captures = Captures(scenario.topology, pcap, several, out)
            self._stack.callback(self._captures.close)
        if live_web is not None:
            from fabric_emu.live.server import listen

            self._listener = self._stack.enter_context(listen(live_web))

    @contextlib.contextmanager
    def running(
        self, progress: Callable[[Progress], None]
    ) -> Iterator[tuple[Callable[[Progress], None], dict[str, Any]]]:
        """Watch while the block runs.

        Args:
            progress: told how far it is, too.

        Yields:
            What to tell how far it is, and arguments for ``run_scheme``.
        """
        hooks: dict[str, Any] = {}
        if self._captures:
            hooks["attach"] = self._attached
        if not (self.draws or self._listener):
            yield progress, hooks
            return
        from fabric_emu.live.view import LiveView
        from fabric_emu.results.live import Layout

        scenario = self._scenario
        runs = [(scheme.name, seed) for seed in self._seeds for scheme in scenario.schemes]
        duration_s = scenario.workload.duration
        layout = Layout.of(scenario.topology, runs, duration_s, scenario.title)
        if self._listener:
            from fabric_emu.live.server import url_of

            click.echo(f"live at {url_of(self._listener)}", err=True)
        view = self._view = self._stack.enter_context(LiveView(layout, self.draws, self._listener))
        hooks |= {"attach": self._attached, "observer": view.observe, "order": view.order}

        def tell(one: Progress) -> None:
            progress(one)
            view.progress(one)

        try:
            yield tell, hooks
        finally:
            try:
                view.finish()
            except FabricError as error:  # what was to be seen is lost, what was measured is not
                click.echo(f"the live view broke: {error}", err=True)

    def measured(self, scheme: str, seed: int, summary: Mapping[str, Any]) -> None:
        """Replace what NICs counted on the way by the figure of a run that is over."""
        if self._view:
            self._view.measured(scheme, seed, summary["reordering"]["ratio"])

    @contextlib.contextmanager
    def _attached(self, fabric: Fabric) -> Iterator[dict[str, Any]]:
        if self._view:
            fabric.lease.add_process(self._view.pid)
        with contextlib.ExitStack() as stack:
            noted: dict[str, Any] = {}
            if self._captures:
                noted = stack.enter_context(self._captures.attached(fabric))
            yield noted

    def deliver(self, folder: Path) -> None:
        """Write captures into the folder of the run, and say what is in them.

        Raises:
            FabricError: they cannot be written.
        """
        if self._captures:
            self._captures.deliver(folder)
            for line in self._captures.lines:
                click.echo(line, err=True)

    def close(self) -> None:
        """End what still runs; the page has shown the last picture until now."""
        self._stack.close()
