"""Ways to damage a file or a directory of files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
Mutation = Callable[[Draw, Path, Path], str]

# Replacements for values in JSON.
_VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 10**6, 10**8, 10**18, -(10**18), 1e308, -0.5, float("nan")),
    *(float("inf"), "", "x", "../../etc/passwd", "http://127.0.0.1:9/x", "\0", "9" * 4000),
    *([], {}, [[]], [1, 2, 3], {"x": 1}, [None] * 3, [10**9, 10**9]),
]
_BYTES = [b"\0", b"\xff", b"\x80", b"{", b"9", b"\n", b"\r", b"A"]


def truncate(draw: Draw, root: Path, file: Path) -> str:
    size = file.stat().st_size
    kept = draw(st.integers(0, max(0, size - 1)))
    os.truncate(file, kept)
    return f"truncate to {kept} of {size}"


def flip(draw: Draw, root: Path, file: Path) -> str:
    content = bytearray(file.read_bytes())
    # Headers and footers are more interesting than weights.
    end = len(content) - 1
    area = draw(
        st.sampled_from([(0, min(end, 64)), (0, min(end, 2000)), (0, end), (end - 64, end)])
    )
    places = draw(st.lists(st.integers(max(0, area[0]), max(0, area[1])), min_size=1, max_size=4))
    for place in places:
        if content:
            content[place] ^= 1 << draw(st.integers(0, 7))
    file.write_bytes(content)
    return f"flip bits at {places}"


def overwrite(draw: Draw, root: Path, file: Path) -> str:
    content = bytearray(file.read_bytes())
    start = draw(st.integers(0, max(0, min(len(content), 3000) - 1)))
    count = draw(st.sampled_from([1, 2, 4, 8, 64, 1000]))
    content[start : start + count] = draw(st.sampled_from(_BYTES)) * count
    file.write_bytes(content)
    return f"overwrite {count} bytes at {start}"


def grow(draw: Draw, root: Path, file: Path) -> str:
    content = file.read_bytes()
    place = draw(st.sampled_from([0, len(content) // 2, len(content), min(8, len(content))]))
    count = draw(st.sampled_from([1, 8, 4096, 10**6]))
    file.write_bytes(content[:place] + draw(st.sampled_from(_BYTES)) * count + content[place:])
    return f"insert {count} bytes at {place}"


def extend(draw: Draw, root: Path, file: Path) -> str:
    """Extend a file with a hole, which takes no disk space, but more memory than is allowed."""
    os.truncate(file, file.stat().st_size + 2**33)
    return "extend by 8 GB"


def remove(draw: Draw, root: Path, file: Path) -> str:
    file.unlink()
    return "remove"


def as_directory(draw: Draw, root: Path, file: Path) -> str:
    file.unlink()
    file.mkdir()
    return "replace by a directory"


def as_fifo(draw: Draw, root: Path, file: Path) -> str:
    file.unlink()
    os.mkfifo(file)
    return "replace by a FIFO"


def as_link(draw: Draw, root: Path, file: Path) -> str:
    target = draw(st.sampled_from(["/dev/zero", "/etc/passwd", "/nowhere", str(file), "."]))
    file.unlink()
    file.symlink_to(target)
    return f"replace by a link to {target}"


def swap(draw: Draw, root: Path, file: Path) -> str:
    others = [other for other in files_in(root) if other != file] or [file]
    other = draw(st.sampled_from(others))
    aside = file.with_name("aside")
    file.rename(aside)
    if other != file:
        shutil.copy(other, file)
        aside.rename(other)
    else:
        aside.rename(file)
    return f"swap with {other.relative_to(root)}"


def edit_json(draw: Draw, root: Path, file: Path) -> str:
    """Change one value of a JSON file or of the header of a safetensors file."""
    content = file.read_bytes()
    is_safetensors = file.suffix == ".safetensors"
    size = int.from_bytes(content[:8], "little") if is_safetensors else len(content)
    try:
        values = json.loads(content[8 : 8 + size] if is_safetensors else content)
    except ValueError:
        return flip(draw, root, file)
    paths = [path for path in _paths(values) if path]
    if not paths:
        return flip(draw, root, file)
    path = draw(st.sampled_from(paths))
    value = draw(st.sampled_from(_VALUES))
    parent = values
    for key in path[:-1]:
        parent = parent[key]
    if draw(st.integers(0, 9)) == 0 and isinstance(parent, dict):
        del parent[path[-1]]
        change = f"delete {path}"
    else:
        parent[path[-1]] = value
        change = f"set {path} to {value!r:.40}"
    text = json.dumps(values).encode()
    if is_safetensors:
        text = len(text).to_bytes(8, "little") + text + content[8 + size :]
    file.write_bytes(text)
    return change


def _paths(values: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [before]
    if isinstance(values, dict):
        for key, value in values.items():
            found += _paths(value, (*before, key))
    elif isinstance(values, list):
        for i, value in enumerate(values[:8]):
            found += _paths(value, (*before, i))
    return found


def files_in(root: Path) -> list[Path]:
    """Return the files of a directory in a fixed order, or the file itself."""
    if root.is_file():
        return [root]
    return sorted(p for p in root.rglob("*") if p.is_file() and ".lock" not in p.suffixes)


ANY: list[Mutation] = [
    truncate,
    flip,
    overwrite,
    grow,
    extend,
    remove,
    as_directory,
    as_fifo,
    as_link,
    swap,
]


def mutate(draw: Draw, root: Path) -> str:
    """Damage one file of an artifact, and describe how."""
    file = draw(st.sampled_from(files_in(root)))
    kinds = ANY
    if file.suffix in (".json", ".safetensors"):
        kinds = [*ANY, *[edit_json] * 9]  # half of the damage to a file with named values
    mutation = draw(st.sampled_from(kinds))
    name = file.name if file == root else str(file.relative_to(root))
    return f"{name}: {mutation(draw, root, file)}"
