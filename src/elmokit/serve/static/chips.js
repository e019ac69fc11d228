// The tokens of sentences as chips; one of them is selected.

import { el, roving } from "./dom.js";
import { number, shade, short } from "./scale.js";

export class Chips {
  /** Calls `chosen(sentence, token, join)` on selection; arrow keys select as they move. */
  constructor(box, chosen, label = "Words of your sentences") {
    this.box = box;
    this.drawn = null;
    this.chosen = chosen;
    box.className = "chips";
    box.setAttribute("role", "radiogroup");
    box.setAttribute("aria-label", label);
    box.addEventListener("click", (event) => {
      const chip = event.target.closest(".chip");
      if (chip) this.choose(chip, null);
    });
    roving(box, ".chip", (_, chip) => this.choose(chip, "chip"));
  }

  choose(chip, join) {
    this.chosen(Number(chip.dataset.sentence), Number(chip.dataset.token), join);
  }

  /** Draw the chips, unless the sentences are unchanged. */
  draw(sentences) {
    const drawn = JSON.stringify(sentences);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const several = sentences.length > 1;
    this.box.replaceChildren(
      ...sentences.map((tokens, i) =>
        el(
          "div",
          { class: "chip-row" },
          several
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
      const on = i === sentence && k === token;
      chip.setAttribute("aria-checked", on);
      chip.setAttribute("tabindex", on ? "0" : "-1");
      if (value === null) continue;
      const cosine = on ? 1 : value(i, k);
      shade(chip, cosine);
      chip.lastChild.textContent = on ? "selected" : short(cosine);
      chip.setAttribute(
        "aria-label",
        on
          ? `${chip.firstChild.textContent}, selected`
          : `${chip.firstChild.textContent}, cosine ${number(cosine)}`,
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
