"""Abbreviations that end with a period, for the tokenizer and the sentence splitter.

The lists are case-sensitive regular expressions, because some abbreviations are also words: "Sun."
may be a day, but "sun." ends a sentence. Letters with periods ("U.S.", "e.g.") and initials ("J.")
are not listed, because the tokenizer and the sentence splitter have rules for them.
"""

# Abbreviations that are always followed by a name or other words, so they never end a sentence.
TITLES = (
    "Mr|Mrs|Ms|Mx|Messrs|Drs?|Prof|Rev|Fr|Hon|Mme|Mlle|Sr|Sra|Sts?|Ste|Mt|Ft|"
    "Gen|Col|Lt|Lieut|Sgt|Capt|Cpt|Maj|Cmdr|Comdr|Adm|Brig|Pvt|Cpl|Insp|Det|Supt|Asst|Atty|"
    "Sens?|Reps?|Gov|Pres|[Cc]f|[Vv]s|viz|ca|[Aa]pprox|eg|ie"
)

# Abbreviations that are always followed by a number.
NUMBERED = "Nos?|[Ff]igs?|[Vv]ols?|Sec|Eqs?|Ch|[Pp]p"

# Abbreviations that can end a sentence.
ENDINGS = (
    "Jr|Esq|Inc|INC|Corp|CORP|Cos?|Ltd|LTD|Bros|Ass(?:n|oc)|[Dd]ept|Univ|Inst|Ave|Blvd|Rd|Hwy|Pkwy|"
    "Jan|Feb|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|Mon|Tues?|Weds?|Thu|Thurs?|Fri|Sat|Sun|"
    "Ala|Ariz|Ark|Calif|Colo|Conn|Fla|Ga|Ind|Kan|Ky|La|Md|Mich|Minn|Mont|Neb|Nev|Okla|Ont|Pa|Que|"
    "Tenn|Tex|Va|Vt|Wis|Wyo|"
    "[Ee]tc|al|[Ee]sp|[Ee]xt|[Aa]ttn|[Tt]el|[Ee]st|[Ee]ds?|trans|misc|incl|"
    "yrs?|hrs?|mins|secs|lbs?|oz"
)
