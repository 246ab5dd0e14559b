"""Compiling the data path: loops over packets in plain Python that run as machine code.

A NIC worker goes round hundreds of times a second with a handful of packets each time. There the
cost of numpy is the number of its calls, hundreds in a round; a compiled loop is one call.

Functions are compiled when their module is imported, for the types of their annotations alone,
and kept on disk: nothing is compiled while packets are on their way.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import shutil
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

_PACKAGE = Path(__file__).parent
_SOURCES = ("compiled.py", "nic/**/*.py", "wire/**/*.py", "model/queue_pair.py")

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
IntTable = Annotated[NDArray[np.int64], 2]
FloatTable = Annotated[NDArray[np.float64], 2]
ByteTable = Annotated[NDArray[np.uint8], 2]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Return a function of numbers and arrays as machine code.

    Its parameters are ``int``, ``float``, ``bool``, or arrays, C-contiguous and writable:
    ``NDArray[np.int64]`` has one dimension, ``Annotated[NDArray[np.int64], 2]`` has two,
    ``Annotated[NDArray[np.void], dtype]`` is one of structures. Indexes are not checked: what
    comes from the wire must be, before it is one.

    Raises:
        TypeError: when called with anything else.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    signature = tuple(_type(hint) for hint in hints.values())
    compile_ = numba.njit(signature, cache=_CACHE is not None, error_model="numpy")
    return cast(_Function, compile_(function))


def compile_all() -> None:
    """Compile what has not been yet, so that no run has to wait for it."""
    for part in ("nic", "wire"):
        for path in sorted((_PACKAGE / part).rglob("*.py")):
            if "@compiled" in path.read_text():
                name = path.relative_to(_PACKAGE.parent).with_suffix("")
                importlib.import_module(".".join(name.parts))


def _type(hint: Any) -> Any:
    """Return numba's type of an annotation."""
    scalars = {int: numba.int64, float: numba.float64, bool: numba.boolean}
    if hint in scalars:
        return scalars[hint]
    dimensions, of = 1, None
    if typing.get_origin(hint) is Annotated:
        hint, more = typing.get_args(hint)
        dimensions, of = (more, None) if isinstance(more, int) else (1, more)
    if of is None:
        of = np.dtype(typing.get_args(typing.get_args(hint)[1])[0])
    return numba.types.Array(numba.from_dtype(of), dimensions, "C")


def _cache() -> Path | None:
    """Return a directory that belongs to the sources as they are, None if none can be written.

    The compiler itself looks at a function's own file only, not at what it calls or at constants
    it takes from elsewhere.
    """
    digest = hashlib.blake2b(digest_size=8)
    for pattern in _SOURCES:
        for path in sorted(_PACKAGE.glob(pattern)):
            digest.update(path.read_bytes())
    name = f"compiled-{digest.hexdigest()}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    places = [_PACKAGE / "__pycache__"]
    # What is kept is run: root takes nothing from the home of another, which sudo may leave it.
    if os.geteuid() or (cache.is_dir() and not cache.stat().st_uid):
        places.append(cache / "fabric-emu")
    for place in places:
        if (place / name).is_dir():
            return place / name
        with contextlib.suppress(OSError):
            (place / name).mkdir(parents=True)
            for stale in set(place.glob("compiled-*")) - {place / name}:
                shutil.rmtree(stale, ignore_errors=True)
            return place / name
    return None


_CACHE = _cache()
if _CACHE:
    numba.config.CACHE_DIR = str(_CACHE)  # type: ignore[attr-defined]
