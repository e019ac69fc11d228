"""Write model directories for the Hugging Face Hub.

    save_pretrained("run/model", "my-elmo", license="cc-by-sa-4.0", language="de")
    # Then upload the directory:  hf upload user/my-elmo my-elmo

The result is a normal model directory whose model card has a header for the Hub: license, language,
library and tags. After the upload, load the model with `elmokit.load("hf://user/model")`. This
module does not upload anything.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from elmokit.embed.model import ElmoModel
from elmokit.settings import Expected, validate
from elmokit.sources import modeldir
from elmokit.sources.card import generate_card
from elmokit.sources.resolve import load_parts
from elmokit.sources.tensors import Storage

_Text = Annotated[str, Field(pattern=r"\S"), Expected("a non-empty string")]
_Codes = Annotated[Sequence[_Text], Expected("a code such as 'de', or a list of codes")]

_HEADER = "---"
_TAGS = ("elmo", "elmokit", "word-embeddings", "bilm")
# The Hub's identifiers of common licenses. All other licenses have the identifier "other".
_LICENSES = frozenset(
    {"apache-2.0", "mit", "bsd-3-clause", "gpl-3.0", "lgpl-3.0", "agpl-3.0", "mpl-2.0"}
    | {"cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0"}
    | {"cc-by-3.0", "cc-by-sa-3.0", "cc-by-nc-sa-3.0", "odc-by", "odbl", "unlicense", "unknown"}
)


def save_pretrained(
    model: ElmoModel | str | Path,
    folder: str | Path,
    *,
    license: str | None = None,
    language: str | Sequence[str] | None = None,
    tags: Iterable[str] = (),
    storage: Storage = "float32",
    overwrite: bool = False,
) -> Path:
    """Write a model directory for upload.

    Args:
        model: A loaded model, or an argument of `elmokit.load`.
        folder: The directory to write.
        license: The license of the weights. Default: the license in the model's metadata.
        language: One or several language codes, such as "de". Default: the language in the model's
            metadata.
        tags: Additional tags.
        storage: "float32", "float16" (half the size) or "int8" (a quarter of the size).
        overwrite: Replace an existing model.

    Returns:
        The directory.
    """
    folder = Path(folder)
    parts = model.parts if isinstance(model, ElmoModel) else load_parts(model)
    metadata = parts.metadata
    header: dict[str, Any] = {
        **_license(license if license is not None else metadata.get("license")),
        **_language(language if language is not None else metadata.get("language")),
        "library_name": "elmokit",
        "pipeline_tag": "feature-extraction",
        "tags": list(dict.fromkeys([*_TAGS, *tags])),
    }
    card = parts.card
    if card is None:
        card = generate_card(parts, folder.resolve().name)
        card = card.replace("path/to/this/folder", "hf://user/model")
    if not card.startswith(_HEADER):
        # JSON values are valid YAML, and their line breaks are escaped.
        lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in header.items()]
        card = "\n".join([_HEADER, *lines, _HEADER, "", card])
    modeldir.save(
        dataclasses.replace(parts, card=card), folder, overwrite=overwrite, storage=storage
    )
    return folder


def _license(license: Any) -> dict[str, str]:
    if license is None:
        return {}
    license = validate("license", license, _Text).strip()
    name = re.sub(r"[\s_]+", "-", license.lower())
    if name in _LICENSES:
        return {"license": name}
    return {"license": "other", "license_name": license}


def _language(language: Any) -> dict[str, list[str]]:
    if language is None:
        return {}
    codes = [language] if isinstance(language, str) else language
    return {"language": list(validate("language", codes, _Codes))}
