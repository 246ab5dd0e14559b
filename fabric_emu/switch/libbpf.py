"""The functions of libbpf that the package calls, typed for ctypes, and libbpf's own messages.

Source: libbpf.h, btf.h and bpf.h of libbpf 1.x.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_void_p
from typing import Any

from fabric_emu.errors import HostUnfit

_INFO = 1  # enum libbpf_print_level: warnings are 0, debugging 2

# Name: result, arguments. A pointer result is NULL with errno set, an int result is -errno.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "libbpf_set_print": (c_void_p, [c_void_p]),
    "bpf_object__open_file": (c_void_p, [c_char_p, c_void_p]),
    "bpf_object__load": (c_int, [c_void_p]),
    "bpf_object__close": (None, [c_void_p]),
    "bpf_object__btf": (c_void_p, [c_void_p]),
    "bpf_object__next_program": (c_void_p, [c_void_p, c_void_p]),
    "bpf_object__next_map": (c_void_p, [c_void_p, c_void_p]),
    "bpf_program__name": (c_char_p, [c_void_p]),
    "bpf_program__fd": (c_int, [c_void_p]),
    "bpf_map__name": (c_char_p, [c_void_p]),
    "bpf_map__fd": (c_int, [c_void_p]),
    "bpf_map__set_max_entries": (c_int, [c_void_p, c_uint32]),
    "bpf_map__initial_value": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "bpf_prog_test_run_opts": (c_int, [c_int, c_void_p]),
    "btf__find_by_name_kind": (c_int32, [c_void_p, c_char_p, c_uint32]),
    "btf__type_by_id": (c_void_p, [c_void_p, c_uint32]),
    "btf__resolve_type": (c_int, [c_void_p, c_uint32]),
    "btf__name_by_offset": (c_char_p, [c_void_p, c_uint32]),
}

_PrintFunction = ctypes.CFUNCTYPE(c_int, c_int, c_void_p, c_void_p)


class TestRunOptions(ctypes.Structure):
    """``struct bpf_test_run_opts`` of libbpf's bpf.h."""

    __test__ = False  # not a test class, whatever pytest makes of the name

    _fields_ = (
        ("size", c_size_t),
        ("data_in", c_void_p),
        ("data_out", c_void_p),
        ("data_size_in", c_uint32),
        ("data_size_out", c_uint32),
        ("context_in", c_void_p),
        ("context_out", c_void_p),
        ("context_size_in", c_uint32),
        ("context_size_out", c_uint32),
        ("result", c_uint32),
        ("repeat", c_int),
        ("duration_ns", c_uint32),
        ("flags", c_uint32),
        ("cpu", c_uint32),
        ("batch_size", c_uint32),
    )


@functools.cache
def libbpf() -> ctypes.CDLL:
    """Return the library. Raises HostUnfit where there is none."""
    if sys.platform != "linux":
        raise HostUnfit("not Linux", "vagrant up, then vagrant ssh")
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise HostUnfit(f"no libbpf 1.x ({error})", "scripts/setup") from error
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@contextmanager
def captured_log() -> Iterator[list[str]]:
    """Collect what libbpf would print to stderr meanwhile; it prints for the whole process."""
    libc = ctypes.CDLL(None)
    libc.vasprintf.argtypes = [POINTER(c_void_p), c_void_p, c_void_p]
    libc.free.argtypes = [c_void_p]
    log: list[str] = []

    def collect(level: int, template: int, arguments: int) -> int:
        # va_list arrives as a pointer on x86-64 and on AArch64, so it can be handed on as one.
        text = c_void_p()
        if level <= _INFO and libc.vasprintf(byref(text), template, arguments) >= 0:
            log.append(ctypes.string_at(text.value or 0).decode(errors="replace"))
            libc.free(text)
        return 0

    callback = _PrintFunction(collect)
    previous = libbpf().libbpf_set_print(ctypes.cast(callback, c_void_p))
    try:
        yield log
    finally:
        libbpf().libbpf_set_print(previous)
