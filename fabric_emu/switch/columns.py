"""The maps of a loaded object as numpy columns: the kernel's own memory, without system calls."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from fabric_emu.errors import ProgramRejected
from fabric_emu.switch.loader import BpfObject

Records = npt.NDArray[np.void]


class MapColumns:
    """Opens maps as columns and gives their memory back.

    Args:
        bpf: the loaded object.
    """

    def __init__(self, bpf: BpfObject) -> None:
        self._bpf = bpf
        self._mappings: list[mmap.mmap] = []

    def records(self, map_name: str, struct: str, dtype: np.dtype[Any], count: int) -> Records:
        """Return the entries of an array map, (count,) of ``dtype``, live and writable.

        Args:
            map_name: the map.
            struct: the C structure that its values are.
            dtype: what mirrors it.
            count: entries of the map; 0 for one that is not used.

        Raises:
            ProgramRejected: the structure is not as mirrored.
        """
        compiled = self._bpf.btf.struct_dtype(struct)
        if compiled != dtype:
            raise ProgramRejected(f"struct {struct} is {compiled}, expected {dtype}")
        return self._entries(map_name, dtype, count)

    def words(self, map_name: str, count: int) -> npt.NDArray[np.uint32]:
        """Return the entries of an array map of 32-bit values, (count,), live and writable."""
        words: npt.NDArray[np.uint32] = self._entries(map_name, np.dtype("u4"), count)
        return words

    def _entries(self, map_name: str, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
        descriptor = self._bpf.map_fds[map_name]
        return map_entries(descriptor, dtype, count, self._mappings)

    def close(self) -> None:
        """Give the memory back; a column that somebody still holds keeps its own until it goes."""
        for mapping in self._mappings:
            with contextlib.suppress(BufferError):  # still held: freed with its last column
                mapping.close()
        self._mappings.clear()


def map_entries(
    descriptor: int, dtype: np.dtype[Any], count: int, mappings: list[mmap.mmap]
) -> npt.NDArray[Any]:
    """Map the memory of an array map.

    Args:
        descriptor: of the map.
        dtype: of one entry.
        count: entries; 0 for a map that is not used.
        mappings: takes the mapping, which its owner closes.
    """
    # The kernel begins each entry at a multiple of eight bytes (array_map_alloc).
    padding = -dtype.itemsize % 8
    padded = np.dtype([("value", dtype), ("padding", "u1", (padding,))]) if padding else dtype
    if count == 0:
        return np.empty(0, dtype)
    mapping = mmap.mmap(descriptor, count * padded.itemsize)
    mappings.append(mapping)
    entries = np.frombuffer(mapping, padded)
    return entries["value"] if padding else entries


def read_only(columns: Records) -> Records:
    """Return a view that cannot be written."""
    view = columns.view()
    view.flags.writeable = False
    return view
