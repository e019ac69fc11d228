"""Escapes of the Penn Treebank, and the characters of raw text, which models are trained on."""

from __future__ import annotations

_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_UNESCAPED = {"``": '"', "''": '"', **_BRACKETS}


def unescape(token: str) -> str:
    """Replace escaped brackets, quotes, slashes and stars by plain text."""
    return _UNESCAPED.get(token) or token.replace("\\/", "/").replace("\\*", "*")
