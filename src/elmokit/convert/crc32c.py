"""CRC-32C, the checksum in TensorFlow's checkpoints, at the speed of numpy.

A cyclic redundancy check is linear: for two byte strings A and B,

    register(A B) = shift(register(A), len(B)) ^ register(B),        B read from a register of 0

so that a long string is divided into lanes of equal length, which are read in parallel, four bytes
at a time, and then joined in pairs. The shift over a number of zero bytes is a matrix of bits,
stored as the images of the 32 single bits.

Reading starts from a register of ones, which is the register after the bytes `_START` if it was 0
before. Zero bytes leave a register of 0 unchanged, so that the first lane can be padded with them.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # of Castagnoli, lowest bit first
_ONES = 0xFFFFFFFF
_START = bytes.fromhex("54641f64")
_LANE = 512  # words in a lane
_BLOCK = 1 << 24  # bytes that are read in parallel, so that the lanes fit into the CPU's caches
# TensorFlow stores checksums in a modified form, so that checksums of checksums remain useful.
_MASK_DELTA = 0xA282EAD8


def crc32c(data: bytes | memoryview | NDArray[np.uint8]) -> int:
    """Return the checksum of some bytes."""
    view = np.frombuffer(data, dtype=np.uint8)
    head = len(view) % (4 * _LANE)
    first = (_START + view[:head].tobytes()).rjust(8 * _LANE, b"\0")  # two lanes
    states = [_read(np.frombuffer(first, "<u4"))]
    states += [_read(view[at : at + _BLOCK].view("<u4")) for at in range(head, len(view), _BLOCK)]
    return _join(np.concatenate(states)) ^ _ONES


def masked(checksum: int) -> int:
    """Return a checksum as LevelDB and TensorFlow store it."""
    rotated = (checksum >> 15 | checksum << 17) & _ONES
    return (rotated + _MASK_DELTA) & _ONES


def _read(words: Words) -> Words:
    """Return the register of each lane."""
    low, high = _tables()
    lanes = words.reshape(-1, _LANE)
    state = np.zeros(len(lanes), dtype=np.uint32)
    for column in lanes.T:
        mixed = state ^ column
        state = low[mixed & 0xFFFF] ^ high[mixed >> 16]
    return state


def _join(registers: Words) -> int:
    """Join the registers of consecutive lanes."""
    over = _over_words(_LANE)
    while len(registers) > 1:
        if len(registers) % 2:
            registers = np.concatenate([np.zeros(1, dtype=np.uint32), registers])
        registers = _shift(registers[0::2], over) ^ registers[1::2]
        over = _shift(over, over)
    return int(registers[0])


def _shift(registers: Words, over: Words) -> Words:
    """Multiply registers by a matrix of bits."""
    out = np.zeros_like(registers)
    for bit, image in enumerate(over):
        out ^= np.where(registers >> np.uint32(bit) & np.uint32(1), image, np.uint32(0))
    return out


@functools.cache
def _over_words(n: int) -> Words:
    """Return the matrix of a shift over `n` words of zeros, a power of 2."""
    if n > 1:
        half = _over_words(n // 2)
        return _shift(half, half)
    images = [1 << bit for bit in range(32)]
    for _ in range(32):  # bits of a word
        images = [image >> 1 ^ (_POLYNOMIAL if image & 1 else 0) for image in images]
    return np.array(images, dtype=np.uint32)


@functools.cache
def _tables() -> tuple[Words, Words]:
    """Return the register after a word, by its low and its high half."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    over = _over_words(1)
    return _shift(halves, over), _shift(halves << np.uint32(16), over)
