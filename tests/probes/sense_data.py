"""Write a tiny WordNet, SemCor, evaluation set and treebank to a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# "bank" has three senses, of which the third is never used; "old" is an adjective satellite.
INDEX = """\
bank%1:14:00:: 08420278 2 20
bank%1:17:01:: 09213565 1 25
bank%1:06:00:: 02787772 3 2
bank%2:40:00:: 02311387 1 3
take_place%2:30:00:: 00339934 1 8
old%5:00:00:past:00 01729819 2 1
old%3:00:01:: 01638438 1 40
play%1:04:00:: 00787465 1 5
zebra%1:05:00:: 02391049 1 0
"""
SHORE, MONEY = "bank%1:17:01::", "bank%1:14:00::"


def token(form: str, key: str | None = None) -> list[Any]:
    return [form, "NN", (key or "").partition("%")[0], key]


SENTENCES: list[list[Any]] = [
    [token("They"), token("sat"), token("on"), token("the"), token("bank", SHORE), token(".")],
    [token("The"), token("bank", SHORE), token("of"), token("the"), token("river")],
    [token("The"), token("bank", MONEY), token("lent"), token("money")],
    [
        token("A"),
        token("bank", "bank%1:14:00::;1:17:01::"),
        token("took place", "take_place%2:30:00::"),
    ],
    [token("An"), token("old", "old%5:00:00:past(a):00"), token("bank", "bank%1:99:00::")],
    [token("Nothing"), token("here")],
]
XML = """\
<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en"><text id="d0">
<sentence id="d0.s0">
<wf lemma="the" pos="DET">The</wf>
<instance id="d0.s0.t0" lemma="bank" pos="NOUN">bank</instance>
<instance id="d0.s0.t1" lemma="take_place" pos="VERB">took place</instance>
<wf lemma="&amp;" pos="CONJ">&amp;</wf>
</sentence>
<sentence id="d0.s1">
<instance id="d0.s1.t0" lemma="Zebra" pos="NOUN">zebras</instance>
<instance id="d0.s1.t1" lemma="old" pos="ADJ">old</instance>
<instance id="d0.s1.t2" lemma="quux" pos="ADV">quux</instance>
</sentence>
</text></corpus>
"""
GOLD = """\
d0.s0.t0 bank%1:14:00:: bank%1:06:00::
d0.s0.t1 take_place%2:30:00::
d0.s1.t0 zebra%1:05:00::
d0.s1.t1 old%3:00:01::
d0.s1.t2 quux%4:02:00::
"""


def write_index(folder: Path) -> Path:
    (folder / "index.sense").write_text(INDEX)
    return folder


def write_semcor(folder: Path, sentences: list[Any] | None = None) -> Path:
    lines = [json.dumps({"tokens": s}) for s in (SENTENCES if sentences is None else sentences)]
    (folder / "semcor.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "semcor.jsonl"


def write_set(folder: Path, name: str = "tiny", xml: str = XML, gold: str = GOLD) -> Path:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / f"{name}.data.xml").write_text(xml)
    (folder / name / f"{name}.gold.key.txt").write_text(gold)
    return folder


def write_treebank(folder: Path) -> Path:
    """Write a treebank of one sentence in the three files of Universal Dependencies."""
    folder.mkdir(exist_ok=True)
    words = [("the", "DET", "DT"), ("cat", "NOUN", "NN"), ("sat", "VERB", "VBD")]
    rows = [f"{i}\t{w}\t_\t{u}\t{x}\t_\t0\troot\t_\t_" for i, (w, u, x) in enumerate(words, 1)]
    for split in ("train", "dev", "test"):
        (folder / f"x-{split}.conllu").write_text(("\n".join(rows) + "\n\n") * 4)
    return folder
