// The tokens of sentences as chips, one of which is selected.

import { el, rovingFocus } from "./dom.js";
import { formatNumber, shade, formatShort } from "./scale.js";

export class Chips {
  /** `onSelect(sentence, token, join)` is called on selection; arrow keys also select. */
  constructor(box, onSelect, label = "Words of your sentences") {
    this.box = box;
    this.drawnKey = null;
    this.onSelect = onSelect;
    box.className = "chips";
    box.setAttribute("role", "radiogroup");
    box.setAttribute("aria-label", label);
    box.addEventListener("click", (event) => {
      const chip = event.target.closest(".chip");
      if (chip) this.choose(chip, null);
    });
    rovingFocus(box, ".chip", (_, chip) => this.choose(chip, "chip"));
  }

  choose(chip, join) {
    this.onSelect(Number(chip.dataset.sentence), Number(chip.dataset.token), join);
  }

  /** Draw the chips, unless the sentences are unchanged. */
  draw(sentences) {
    const key = JSON.stringify(sentences);
    if (key === this.drawnKey) return;
    this.drawnKey = key;
    const hasSeveral = sentences.length > 1;
    this.box.replaceChildren(
      ...sentences.map((tokens, i) =>
        el(
          "div",
          { class: "chip-row" },
          hasSeveral
            ? el("span", { class: "row-number", "aria-hidden": "true" }, String(i + 1))
            : null,
          ...tokens.map((token, k) => chip(token, i, k)),
        ),
      ),
    );
  }

  /** Mark the selected chip; `value(sentence, token)` returns the cosine that sets the shade. */
  mark(sentence, token, value = null) {
    for (const chip of this.box.querySelectorAll(".chip")) {
      const [i, k] = [Number(chip.dataset.sentence), Number(chip.dataset.token)];
      const isSelected = i === sentence && k === token;
      chip.setAttribute("aria-checked", isSelected);
      chip.setAttribute("tabindex", isSelected ? "0" : "-1");
      if (value === null) continue;
      const cosine = isSelected ? 1 : value(i, k);
      shade(chip, cosine);
      chip.lastChild.textContent = isSelected ? "selected" : formatShort(cosine);
      chip.setAttribute(
        "aria-label",
        isSelected
          ? `${chip.firstChild.textContent}, selected`
          : `${chip.firstChild.textContent}, cosine ${formatNumber(cosine)}`,
      );
    }
  }
}

function chip(token, i, k) {
  return el(
    "button",
    {
      type: "button",
      class: "chip",
      role: "radio",
      "data-sentence": i,
      "data-token": k,
      tabindex: "-1",
    },
    el("span", { class: "word" }, token),
    el("span", { class: "value" }),
  );
}
