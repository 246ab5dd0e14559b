"""Every error the package raises on purpose; ``cli.py`` alone turns them into exit codes."""

from __future__ import annotations

from dataclasses import dataclass


class FabricError(Exception):
    """Base of all errors raised by fabric_emu.

    Attributes:
        exit_code: what the command line ends with when this error reaches it.
    """

    exit_code = 4


@dataclass(eq=False)
class ScenarioError(FabricError):
    """Bad input: names the place, the value found, what was expected, and a near name.

    Attributes:
        path: where in the input, as ``file: a.b[2].c``.
        value: what stands there, as written.
        expected: what would have been accepted.
        hint: a sentence that helps ("did you mean ...?"), or empty.
    """

    path: str
    value: object
    expected: str
    hint: str = ""

    exit_code = 2

    def __str__(self) -> str:
        text = f"{self.path}: {self.value!r}: expected {self.expected}"
        return f"{text}; {self.hint}" if self.hint else text


@dataclass(eq=False)
class HostUnfit(FabricError):
    """This machine lacks something the run needs.

    Attributes:
        missing: what is missing.
        remedy: the command or step that mends it.
    """

    missing: str
    remedy: str

    exit_code = 3

    def __str__(self) -> str:
        return f"{self.missing}; remedy: {self.remedy}"


class ProgramRejected(FabricError):
    """The kernel refused a BPF program; carries the verifier's last lines."""

    exit_code = 3


class CommandFailed(FabricError):
    """A kernel request or an external command failed; carries its words and error number."""


class WaitTimeout(FabricError):
    """A condition did not come true in time; carries what was last seen."""


class RunFailed(FabricError):
    """The run broke: a worker died, a namespace vanished, or the fabric lost its footing."""
