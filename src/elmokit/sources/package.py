"""Build packages that contain a model, and find the models in installed packages.

A package `elmokit-NAME` contains a model directory as data and registers it in the entry-point
group `elmokit_models`. elmokit finds the model without importing the package.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import ConfigError, WeightsError
from elmokit.sources import modeldir
from elmokit.sources.modelfiles import CARD, read_card
from elmokit.storage.atomic import replace_file

GROUP = "elmokit_models"

_NAME = re.compile(r"[a-z0-9]+([-_.][a-z0-9]+)*")
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.dev|\.post)\d+)?")
# The earliest date that zip files support. A fixed date makes wheels reproducible.
_DATE = (1980, 1, 1, 0, 0, 0)
_MODULE = '''"""The {name} model for elmokit."""

import elmokit


def load(**options):
    """Load the model; `options` are those of `elmokit.load`."""
    return elmokit.load("{name}", **options)
'''


class InstalledModel(NamedTuple):
    """A model in an installed package.

    Attributes:
        package: The name and version of the package.
        path: The model directory.
    """

    package: str
    path: Path


def installed_models() -> dict[str, InstalledModel]:
    """Return the models in installed packages, by name."""
    models = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.dist is not None:
            path = Path(str(entry.dist.locate_file(entry.module))) / "model"
            models[entry.name] = InstalledModel(f"{entry.dist.name} {entry.dist.version}", path)
    return models


def build_package(model: Path, output: Path, *, name: str, version: str) -> Path:
    """Build a wheel that contains a model, for `elmokit.load(name)`.

    Args:
        model: A model directory.
        output: The directory for the wheel.
        name: The name of the model: lowercase letters, digits, and single `-`, `_` or `.`.
        version: The version of the package, such as 1.0.0.

    Returns:
        The path of the wheel. The same model and arguments give a byte-identical wheel.
    """
    if not modeldir.is_model_dir(model):
        problem = "is not one" if model.exists() else "does not exist"
        raise WeightsError(
            f"Expected a model directory as written by `elmo train`, but {model} {problem}. "
            "If the model is in another format, convert it with: elmo convert MODEL OUT"
        )
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"Invalid model name {name!r}: expected lowercase letters and digits, optionally "
            "separated by single '-', '_' or '.'. Choose another name with --name (in Python: "
            "name=...)."
        )
    if not _VERSION.fullmatch(version):
        raise ConfigError(
            f"Invalid version {version!r}: expected a version such as 1.0.0 or 1.0.0rc1."
        )
    module = "elmokit_" + re.sub(r"[-_.]", "_", name)
    output.mkdir(parents=True, exist_ok=True)
    wheel = output / f"{module}-{version}-py3-none-any.whl"
    with replace_file(wheel) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        record = []
        for path, content in _contents(model, module, name, version):
            # Compression would hardly reduce the size.
            info = zipfile.ZipInfo(path, _DATE)
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record.append(f"{path},sha256={digest.decode()},{len(content)}")
        record_path = f"{module}-{version}.dist-info/RECORD"
        lines = "\n".join([*record, f"{record_path},,", ""])
        archive.writestr(zipfile.ZipInfo(record_path, _DATE), lines)
    return wheel


def _contents(model: Path, module: str, name: str, version: str) -> Iterator[tuple[str, bytes]]:
    yield f"{module}/__init__.py", _MODULE.format(name=name).encode()
    files = [model / file for file in modeldir.FILES if (model / file).is_file()]
    for file in files:
        yield f"{module}/model/{file.name}", file.read_bytes()
    card = read_card(model / CARD) or ""
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: elmokit-{name}",
        f"Version: {version}",
        f"Summary: The {name} model for elmokit",
        "Requires-Python: >=3.11",
        "Requires-Dist: elmokit",
        "Description-Content-Type: text/markdown",
        "",
        card,
    ]
    wheel = [
        "Wheel-Version: 1.0",
        "Generator: elmokit",
        "Root-Is-Purelib: true",
        "Tag: py3-none-any",
    ]
    info = f"{module}-{version}.dist-info"
    yield f"{info}/METADATA", "\n".join(metadata).encode()
    yield f"{info}/WHEEL", "\n".join([*wheel, ""]).encode()
    yield f"{info}/entry_points.txt", f"[{GROUP}]\n{name} = {module}\n".encode()
