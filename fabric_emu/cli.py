"""The command line; the one place that turns errors into exit codes.

0 all well, 1 an expectation does not hold, 2 bad input, 3 this machine cannot, 4 the run broke,
5 doubtful with ``run --strict``, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from importlib import metadata
from typing import Any

import click

from fabric_emu.commands.calibrate import calibrate
from fabric_emu.commands.check import check
from fabric_emu.commands.clean import clean
from fabric_emu.commands.doctor import doctor
from fabric_emu.commands.export import export
from fabric_emu.commands.import_ import import_
from fabric_emu.commands.list import list_scenarios
from fabric_emu.commands.predict import predict
from fabric_emu.commands.report import report
from fabric_emu.commands.run import INTERRUPTED, run
from fabric_emu.commands.schema import schema
from fabric_emu.commands.shell import shell
from fabric_emu.commands.show import show
from fabric_emu.commands.terminal import tolerate_narrow_encodings
from fabric_emu.errors import FabricError, ScenarioError

READER_LEFT = 128 + 13
"""What a shell reports of a program that SIGPIPE ended."""

_EXHAUSTED = (
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO,
)  # fmt: skip
"""What the system says when it has no more to give: no mistake of the program."""

_EPILOG = """\b
Shell completion, for this session or in ~/.bashrc:
  eval "$(_FABRIC_EMU_COMPLETE=bash_source fabric-emu)"
  eval "$(_FABRIC_EMU_COMPLETE=zsh_source fabric-emu)"
  _FABRIC_EMU_COMPLETE=fish_source fabric-emu | source
"""


class _Commands(click.Group):
    """A group whose commands' errors become a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        tolerate_narrow_encodings()
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except FabricError as error:
            # Bad input begins with its place, file:line, which editors and people look for.
            bad_input = error.exit_code == ScenarioError.exit_code
            click.echo(f"{error}" if bad_input else f"fabric-emu: {error}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _forget_output()
            ctx.exit(READER_LEFT)
        except MemoryError:
            click.echo("fabric-emu: out of memory", err=True)
            ctx.exit(FabricError.exit_code)
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001
            if isinstance(error, OSError) and error.errno in _EXHAUSTED:
                click.echo(f"fabric-emu: {error}", err=True)
                ctx.exit(FabricError.exit_code)
            # Shown in full; but Python would end with 1, which stands for an expectation.
            traceback.print_exc()
            ctx.exit(FabricError.exit_code)


def _forget_output() -> None:
    """Keep Python from complaining, as it ends, of output that nobody reads."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())


def _version() -> str:
    try:
        return metadata.version("fabric-emu")
    except metadata.PackageNotFoundError:
        return "not installed, run from its sources"


@click.group(
    cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(_version(), prog_name="fabric-emu")
def main() -> None:
    """Run AI training traffic on a leaf-spine fabric, packet by packet, and see what it does.

    \b
    Start with:
      fabric-emu list
      sudo fabric-emu run holbrook
    """


for _command in (
    run,
    show,
    report,
    export,
    predict,
    check,
    calibrate,
    import_,
    list_scenarios,
    schema,
    doctor,
    shell,
    clean,
):
    main.add_command(_command)
