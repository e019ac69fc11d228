"""CRC-32C, the checksum in TensorFlow's checkpoints, at the speed of numpy.

A cyclic redundancy check is linear: for two texts A and B,

    register(A B) = shift(register(A), len(B)) ^ register(B),        B read from a register of 0

so that a long text is divided into lanes of equal length, which are read in parallel, four bytes at
a time, and then joined in pairs. The shift over a number of zero bytes is a matrix of bits, held as
the images of the 32 single bits.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # of Castagnoli, lowest bit first
_ONES = 0xFFFFFFFF
_LANE = 512  # words in a lane
_BLOCK = 1 << 24  # bytes that are read side by side: the lanes at work stay in the caches
# What a stored checksum differs by from the checksum, so that one of checksums stays sound.
_MASK_DELTA = 0xA282EAD8


def crc32c(data: bytes | memoryview | NDArray[np.uint8]) -> int:
    """Return the checksum of some bytes."""
    view = np.frombuffer(data, dtype=np.uint8)
    whole = len(view) // 4 * 4
    register = _ONES
    for start in range(0, whole, _BLOCK):
        words = view[start : min(start + _BLOCK, whole)].view("<u4")
        register = _read(register, words)
    for byte in view[whole:].tolist():
        register = _after_zero_byte(register ^ byte)
    return register ^ _ONES


def masked(checksum: int) -> int:
    """Return a checksum as LevelDB and TensorFlow store it."""
    rotated = (checksum >> 15 | checksum << 17) & _ONES
    return (rotated + _MASK_DELTA) & _ONES


def _read(register: int, words: Words) -> int:
    low, high = _tables()
    n_lanes = len(words) // _LANE
    lanes = words[: n_lanes * _LANE].reshape(n_lanes, _LANE)
    state = np.zeros(n_lanes, dtype=np.uint32)
    for column in lanes.T:
        mixed = state ^ column
        state = low[mixed & 0xFFFF] ^ high[mixed >> 16]
    register = _join(np.concatenate([np.array([register], dtype=np.uint32), state]))
    for word in words[n_lanes * _LANE :].tolist():
        mixed_word = register ^ word
        register = int(low[mixed_word & 0xFFFF]) ^ int(high[mixed_word >> 16])
    return register


def _join(registers: Words) -> int:
    """Join the registers of a text and of the lanes that follow it."""
    over = _over_lane()
    while len(registers) > 1:
        if len(registers) % 2:
            registers = np.concatenate([np.zeros(1, dtype=np.uint32), registers])
        registers = _shifted(registers[0::2], over) ^ registers[1::2]
        over = _shifted(over, over)
    return int(registers[0])


def _shifted(registers: Words, over: Words) -> Words:
    """Multiply registers by a matrix of bits."""
    out = np.zeros_like(registers)
    for bit, image in enumerate(over):
        out ^= np.where(registers >> np.uint32(bit) & np.uint32(1), image, np.uint32(0))
    return out


def _after_zero_byte(register: int) -> int:
    for _ in range(8):
        register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)
    return register


@functools.cache
def _over_word() -> Words:
    over = np.array([_after_zero_byte(1 << bit) for bit in range(32)], dtype=np.uint32)
    for _ in range(2):  # of one byte, of two, of four
        over = _shifted(over, over)
    return over


@functools.cache
def _over_lane() -> Words:
    over = _over_word()
    for _ in range(_LANE.bit_length() - 1):
        over = _shifted(over, over)
    return over


@functools.cache
def _tables() -> tuple[Words, Words]:
    """Return where a word takes a register to, by its low and its high half."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    return _shifted(halves, _over_word()), _shifted(halves << np.uint32(16), _over_word())
