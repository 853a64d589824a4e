"""The wire format of protocol buffers: fields of a message as numbers and bytes; what is unknown is left to the caller to skip.

A message is a row of (key, value); key = field number * 8 + wire type: 0 a varint, 1 eight bytes, 2 a length and bytes, 5 four bytes.
Messages in messages are bytes until somebody asks for their fields, so nothing here goes deeper than its caller does.
"""

from __future__ import annotations

from typing import TypeAlias

Fields: TypeAlias = list[tuple[int, int | bytes]]


class Loss:
    """How many messages ended inside a field, or held what is no field."""

    def __init__(self) -> None:
        self.count = 0


def fields(data: bytes, loss: Loss) -> Fields:
    """(number, value) of each field in order: varints as unsigned integers, the others as bytes.

    A message that is cut gives what comes before; a piece of bytes that is cut is given as far as it goes. Either counts as a loss.
    """
    out: Fields = []
    at, end = 0, len(data)
    try:
        while at < end:
            key = data[at]
            at += 1
            if key > 127:
                key, at = _varint(data, at - 1)
            wire = key & 7
            if wire == 0:
                value = data[at]
                at += 1
                if value > 127:
                    value, at = _varint(data, at - 1)
                out.append((key >> 3, value))
                continue
            if wire == 2:
                size = data[at]
                at += 1
                if size > 127:
                    size, at = _varint(data, at - 1)
            elif wire == 1 or wire == 5:
                size = 8 if wire == 1 else 4
            else:
                raise IndexError  # groups are long gone; 6 and 7 never were
            out.append((key >> 3, data[at : at + size]))
            at += size
        if at > end:
            loss.count += 1
    except IndexError:
        loss.count += 1
    return out


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(unsigned integer of up to 64 bits, where it ends). Raises IndexError if it does not end."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise IndexError


def signed(value: int) -> int:
    """An int64 from its 64 bits."""
    return value - (1 << 64) if value >> 63 else value
