"""Abbreviations that keep their period, shared by the tokenizer and the sentence splitter.

Closed lists, written as case-sensitive regular expressions, because many of them are also words
("Sun." is a day, "sun." ends a sentence). Dotted letters ("U.S.", "e.g.") and single capitals
("J.") are not listed; both modules recognize them by their form.
"""

from __future__ import annotations

# A name or the rest of a phrase follows these, so their period never ends a sentence.
TITLES = (
    "Mr|Mrs|Ms|Mx|Messrs|Drs?|Prof|Rev|Fr|Hon|Mme|Mlle|Sr|Sra|Sts?|Ste|Mt|Ft|"
    "Gen|Col|Lt|Lieut|Sgt|Capt|Cpt|Maj|Cmdr|Comdr|Adm|Brig|Pvt|Cpl|Insp|Det|Supt|Asst|Atty|"
    "Sens?|Reps?|Gov|Pres|[Cc]f|[Vv]s|viz|ca|[Aa]pprox|eg|ie"
)

# These are abbreviations only where a number follows.
NUMBERED = "Nos?|[Ff]igs?|[Vv]ols?|Sec|Eqs?|Ch|[Pp]p"

# These can occur at the end of a sentence.
ENDINGS = (
    "Jr|Esq|Inc|INC|Corp|CORP|Cos?|Ltd|LTD|Bros|Ass(?:n|oc)|[Dd]ept|Univ|Inst|Ave|Blvd|Rd|Hwy|Pkwy|"
    "Jan|Feb|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|Mon|Tues?|Weds?|Thu|Thurs?|Fri|Sat|Sun|"
    "Ala|Ariz|Ark|Calif|Colo|Conn|Fla|Ga|Ind|Kan|Ky|La|Md|Mich|Minn|Mont|Neb|Nev|Okla|Ont|Pa|Que|"
    "Tenn|Tex|Va|Vt|Wis|Wyo|"
    "[Ee]tc|al|[Ee]sp|[Ee]xt|[Aa]ttn|[Tt]el|[Ee]st|[Ee]ds?|trans|misc|incl|"
    "yrs?|hrs?|mins|secs|lbs?|oz"
)
