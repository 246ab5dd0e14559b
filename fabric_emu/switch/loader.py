"""Loading a BPF object: libbpf through ctypes, no pins, nothing left in the kernel after `close`.

Source: libbpf.h of libbpf 1.x; ``bpf_prog_test_run_skb`` in the kernel's net/bpf/test_run.c.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Mapping
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from fabric_emu.errors import HostUnfit, ProgramRejected
from fabric_emu.switch.btf import Btf
from fabric_emu.switch.libbpf import TestRunOptions, captured_log, libbpf

_LOG_LINES = 20
_LET_BPF_THROUGH = "leave the container, or give it CAP_BPF, CAP_NET_ADMIN and the system call bpf"
_FRAME_GROWTH_BYTES = 256
_CONTEXT_BYTES = 512  # no less than any kernel's struct __sk_buff; what the kernel lacks must be 0


class _SkBuff(ctypes.Structure):
    """The start of ``struct __sk_buff`` in linux/bpf.h, as far as test runs use it."""

    _fields_ = (
        ("length", c_uint32),
        ("packet_type", c_uint32),
        ("mark", c_uint32),
        ("queue_mapping_to_vlan_proto", c_uint32 * 5),
        ("priority", c_uint32),
        ("ingress_ifindex", c_uint32),
        ("ifindex", c_uint32),
        ("tc_index_to_wire_len", c_uint32 * 30),
        ("gso_segs", c_uint32),
        ("sk", ctypes.c_uint64),
        ("gso_size", c_uint32),
    )


@dataclass(frozen=True)
class TestRun:
    """What a program did to one frame.

    Attributes:
        verdict: the program's result, such as TC_ACT_OK (0) or TC_ACT_SHOT (2).
        frame: the frame after the program.
        mark: ``skb->mark`` after the program.
        priority: ``skb->priority`` after the program.
        duration_ns: mean time of one run.
    """

    __test__ = False  # not a test class, whatever pytest makes of the name

    verdict: int
    frame: bytes
    mark: int
    priority: int
    duration_ns: int


class BpfObject:
    """A loaded BPF object: the descriptors of its programs and maps.

    Args:
        path: the compiled object.
        constants: values of ``const volatile`` integers, by name.
        map_entries: sizes of maps, by name.

    Attributes:
        program_fds: descriptor of every program, by name; valid until `close`.
        map_fds: descriptor of every map, by name; valid until `close`.
        btf: the layouts of its structures; valid until `close`.

    Raises:
        HostUnfit: libbpf is missing, or this kernel or user may not load programs.
        ProgramRejected: the object could not be loaded; carries the verifier's last lines.
        ValueError: a constant or map that the object does not have, or a value out of range.
    """

    def __init__(
        self,
        path: Path,
        *,
        constants: Mapping[str, int] | None = None,
        map_entries: Mapping[str, int] | None = None,
    ) -> None:
        self.program_fds: dict[str, int] = {}
        self.map_fds: dict[str, int] = {}
        self._lib = libbpf()
        with captured_log() as log:
            self._object = self._lib.bpf_object__open_file(os.fsencode(path), None)
            if not self._object:
                raise _load_error(path, ctypes.get_errno(), log)
            try:
                self.btf = Btf(self._lib.bpf_object__btf(self._object))
                maps = dict(self._named("map"))
                self._set_constants(maps, constants or {})
                self._set_map_entries(maps, map_entries or {})
                status = self._lib.bpf_object__load(self._object)
                if status < 0:
                    raise _load_error(path, -status, log)
            except BaseException:
                self.close()
                raise
        self.program_fds = {
            name: self._lib.bpf_program__fd(program) for name, program in self._named("program")
        }
        self.map_fds = {name: self._lib.bpf_map__fd(bpf_map) for name, bpf_map in maps.items()}

    def close(self) -> None:
        """Close every descriptor; programs attached and maps mapped elsewhere live on there."""
        self.program_fds, self.map_fds = {}, {}
        if self._object:
            del self.btf
            self._lib.bpf_object__close(self._object)
            self._object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def test_run(
        self,
        program: str,
        frame: bytes,
        *,
        ifindex: int = 1,
        mark: int = 0,
        priority: int = 0,
        gso_size: int = 0,
        gso_segs: int = 0,
        repeat: int = 1,
    ) -> TestRun:
        """Run a tc program on one frame, without a network but with the real maps.

        Args:
            program: the program's name.
            frame: from its Ethernet header on, 14 bytes or more.
            ifindex: ``skb->ifindex``, an interface of this namespace (1 is the loopback device).
            mark: ``skb->mark`` before the program.
            priority: ``skb->priority`` before the program.
            gso_size: payload bytes of one segment, if the frame stands for several.
            gso_segs: how many segments the frame stands for.
            repeat: how often; each run gets the frame as the run before left it.

        Raises:
            OSError: the kernel refused the frame or the interface.
        """
        data_out = ctypes.create_string_buffer(len(frame) + _FRAME_GROWTH_BYTES)
        context_in = ctypes.create_string_buffer(_CONTEXT_BYTES)
        context_out = ctypes.create_string_buffer(_CONTEXT_BYTES)
        before, after = _SkBuff.from_buffer(context_in), _SkBuff.from_buffer(context_out)
        before.mark, before.priority, before.ifindex = mark, priority, ifindex
        before.gso_size, before.gso_segs = gso_size, gso_segs
        options = TestRunOptions(
            size=ctypes.sizeof(TestRunOptions),
            data_in=ctypes.cast(c_char_p(frame), c_void_p),
            data_out=ctypes.addressof(data_out),
            data_size_in=len(frame),
            data_size_out=len(data_out),
            context_in=ctypes.addressof(context_in),
            context_out=ctypes.addressof(context_out),
            context_size_in=_CONTEXT_BYTES,
            context_size_out=_CONTEXT_BYTES,
            repeat=repeat,
        )
        status = self._lib.bpf_prog_test_run_opts(self.program_fds[program], byref(options))
        if status < 0:
            raise OSError(-status, f"test run of {program}: {os.strerror(-status)}")
        return TestRun(
            verdict=c_int32(options.result).value,
            frame=data_out.raw[: options.data_size_out],
            mark=after.mark,
            priority=after.priority,
            duration_ns=options.duration_ns,
        )

    def _named(self, kind: str) -> Iterator[tuple[str, int]]:
        """Yield name and address of every "program" or "map"."""
        following = getattr(self._lib, f"bpf_object__next_{kind}")
        name_of = getattr(self._lib, f"bpf_{kind}__name")
        item = following(self._object, None)
        while item:
            yield name_of(item).decode(), item
            item = following(self._object, item)

    def _set_constants(self, maps: Mapping[str, int], constants: Mapping[str, int]) -> None:
        # libbpf puts the start of the object's name before the section's.
        rodata = next((maps[name] for name in maps if name.endswith(".rodata")), None)
        variables = self.btf.section_variables(".rodata") if rodata else {}
        for name, value in constants.items():
            if name not in variables:
                raise ValueError(f"no constant {name!r}; there are {', '.join(variables)}")
            offset, dtype = variables[name]
            limits = np.iinfo(dtype)
            if not limits.min <= value <= limits.max:
                raise ValueError(f"{name} = {value}: not within {limits.min} to {limits.max}")
            section = self._lib.bpf_map__initial_value(rodata, byref(c_size_t()))
            ctypes.memmove(section + offset, np.array(value, dtype).tobytes(), dtype.itemsize)

    def _set_map_entries(self, maps: Mapping[str, int], entries: Mapping[str, int]) -> None:
        for name, count in entries.items():
            if name not in maps:
                raise ValueError(f"no map {name!r}; there are {', '.join(maps)}")
            if not 1 <= count < 2**32:
                raise ValueError(f"map {name}: {count} entries: not within 1 to {2**32 - 1}")
            self._lib.bpf_map__set_max_entries(maps[name], count)


def _load_error(path: Path, number: int, log: list[str]) -> HostUnfit | ProgramRejected:
    lines = "".join(log).splitlines()
    marks = [at for at, line in enumerate(lines) if "PROG LOAD LOG --" in line]
    if len(marks) >= 2:  # the verifier spoke: its lines say more than libbpf's about them
        lines = lines[marks[0] + 1 : marks[1]]
    elif number == errno.EPERM:
        remedy = "run as root (sudo)" if os.geteuid() else _LET_BPF_THROUGH
        return HostUnfit("not allowed to load BPF programs", remedy)
    elif number == errno.ENOSYS:
        return HostUnfit("a kernel without BPF", "boot a kernel with CONFIG_BPF_SYSCALL=y")
    tail = "\n".join(lines[-_LOG_LINES:])
    return ProgramRejected(f"{path}: {os.strerror(number)}\n{tail}")
