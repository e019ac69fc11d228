"""Abbreviations that keep their period, shared by the tokenizer and the sentence splitter.

Closed lists, matched with case as written here: many of them are words when spelled otherwise
("Sun." is a day, "sun." ends a sentence). Dotted letters ("U.S.", "e.g.") and single capitals
("J.") need no list; the rules of both modules know them by their shape.
"""

from __future__ import annotations

# A name, a number or the rest of the phrase follows these: their period never ends a sentence.
TITLES = frozenset(
    """
    Mr Mrs Ms Mx Messrs Dr Drs Prof Rev Fr Hon Mme Mlle Sr Sra St Sts Ste Mt Ft
    Gen Col Lt Lieut Sgt Capt Cpt Maj Cmdr Comdr Adm Brig Pvt Cpl Insp Det Supt Asst Atty
    Sen Sens Rep Reps Gov Pres No Nos Fig Figs fig figs Vol vol vols Sec Eq Ch pp Pp
    cf Cf vs Vs viz ca approx Approx eg ie
    """.split()
)

# These may also stand at the end of a sentence.
ENDINGS = frozenset(
    """
    Jr Esq Inc Corp Co Cos Ltd Bros Assn Assoc Dept dept Univ Inst Ave Blvd Rd Hwy Pkwy
    Jan Feb Apr Jun Jul Aug Sep Sept Oct Nov Dec
    Mon Tue Tues Wed Weds Thu Thur Thurs Fri Sat Sun
    Ala Ariz Ark Calif Colo Conn Fla Ga Ind Kan Ky La Md Mich Minn Mont Neb Nev Okla Ont Pa Que
    Tenn Tex Va Vt Wis Wyo
    etc Etc al esp Esp ext Ext attn Attn tel Tel est Est ed eds Ed Eds trans misc incl
    yr yrs hr hrs mins secs lb lbs oz kg km cm
    """.split()
)

ABBREVIATIONS = TITLES | ENDINGS
