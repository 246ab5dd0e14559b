"""Layouts of a BPF object's structures, read from its BTF by name.

Source: Documentation/bpf/btf.rst and include/uapi/linux/btf.h of the kernel.
"""

from __future__ import annotations

from ctypes import c_uint32
from typing import Any

import numpy as np

from fabric_emu.switch.libbpf import libbpf

_INT, _ARRAY, _STRUCT, _ENUM, _DATASEC = 1, 3, 4, 6, 15
_TYPE_WORDS = 3  # struct btf_type: name offset, info, size or type


class Btf:
    """The type information of an open object; it must not outlive the object.

    Args:
        address: the object's ``struct btf``.
    """

    def __init__(self, address: int) -> None:
        self._lib = libbpf()
        self._address = address

    def struct_dtype(self, name: str) -> np.dtype[Any]:
        """Return the numpy type of a C structure. Raises ValueError where there is none."""
        return self._dtype(self._find(name, _STRUCT))

    def enum_values(self, name: str) -> dict[str, int]:
        """Return names and values of a C enumeration. Raises ValueError where there is none."""
        entries = self._entries(self._find(name, _ENUM), 2)
        return {self._name(offset): value for offset, value in entries}

    def section_variables(self, name: str) -> dict[str, tuple[int, np.dtype[Any]]]:
        """Return offset and type of each variable of a data section, such as ".rodata"."""
        return {
            self._name(self._words(variable)[0]): (offset, self._dtype(variable))
            for variable, offset, _ in self._entries(self._find(name, _DATASEC), 3)
        }

    def _find(self, name: str, kind: int) -> int:
        type_id: int = self._lib.btf__find_by_name_kind(self._address, name.encode(), kind)
        if type_id < 0:
            raise ValueError(f"the object's BTF has no {name!r} of kind {kind}")
        return type_id

    def _words(self, type_id: int, following: int = 0) -> list[int]:
        address = self._lib.btf__type_by_id(self._address, type_id)
        return list((c_uint32 * (_TYPE_WORDS + following)).from_address(address))

    def _entries(self, type_id: int, size: int) -> list[list[int]]:
        """Return the records behind a type: members, values, variables, of `size` words each."""
        count = self._words(type_id)[1] & 0xFFFF
        words = self._words(type_id, size * count)[_TYPE_WORDS:]
        return [words[start : start + size] for start in range(0, size * count, size)]

    def _name(self, offset: int) -> str:
        name: bytes = self._lib.btf__name_by_offset(self._address, offset)
        return name.decode()

    def _dtype(self, type_id: int) -> np.dtype[Any]:
        type_id = self._lib.btf__resolve_type(self._address, type_id)  # of typedef, const, var, ...
        _, info, size = self._words(type_id)
        kind = info >> 24 & 0x1F
        if kind == _INT:
            is_signed = self._words(type_id, 1)[_TYPE_WORDS] >> 24 & 1
            return np.dtype(f"{'i' if is_signed else 'u'}{size}")
        if kind == _ENUM:
            return np.dtype(f"u{size}")
        if kind == _ARRAY:
            element, _, length = self._words(type_id, 3)[_TYPE_WORDS:]
            return np.dtype((self._dtype(element), (length,)))
        if kind == _STRUCT:
            members = self._entries(type_id, 3)
            return np.dtype(
                {
                    "names": [self._name(name) for name, _, _ in members],
                    "formats": [self._dtype(member) for _, member, _ in members],
                    "offsets": [bits // 8 for _, _, bits in members],
                    "itemsize": size,
                }
            )
        raise ValueError(f"no numpy type for BTF kind {kind}")
