"""Replace the escape sequences of the Penn Treebank with the characters they represent."""

from __future__ import annotations

_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_UNESCAPED = {"``": '"', "''": '"', **_BRACKETS}


def unescape(token: str) -> str:
    """Replace escaped brackets, quotes, slashes and asterisks, for example "-LRB-" with "("."""
    return _UNESCAPED.get(token) or token.replace("\\/", "/").replace("\\*", "*")
