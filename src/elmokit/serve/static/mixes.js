// The layer weights learned by task models, shown as in Figure 2 of the paper.

import { byId, el } from "./dom.js";
import { formatNumber } from "./scale.js";

const PLACES = { input: "at the input", output: "at the output" };

/**
 * Draw the weights of all task models and highlight those of the selected one.
 *
 * `onApply(mix)` opens the Sentences panel with a mix, which must have `nLayers` weights.
 */
export function drawMixes(cards, selected, nLayers, onApply) {
  const rows = cards.flatMap((card) =>
    Object.entries(card.mixes).map(([place, mix]) => ({ card, place, ...mix })),
  );
  byId("tasks-mixes-none").hidden = rows.length > 0;
  byId("tasks-mixes-body").hidden = rows.length === 0;
  if (!rows.length) return;
  const layers = Math.max(...rows.map(({ s }) => s.length));
  const columns = Array.from({ length: layers }, (_, j) =>
    el("th", { scope: "col" }, "s", el("sub", {}, String(j)), el("small", {}, ` layer ${j}`)),
  );
  const header = el(
    "tr",
    {},
    el("th", {}, el("span", { class: "visually-hidden" }, "task")),
    ...columns,
    el("th", { scope: "col" }, "γ"),
    el("td"),
  );
  byId("tasks-mixes").replaceChildren(
    el("thead", {}, header),
    el(
      "tbody",
      {},
      ...rows.map((row) => tableRow(row, layers, row.card === selected, nLayers, onApply)),
    ),
  );
  byId("tasks-mixes-summary").textContent = summarize(rows.filter(({ card }) => card === selected));
}

function tableRow({ card, place, s, gamma }, layers, selected, nLayers, onApply) {
  const name = `${card.name} ${PLACES[place] ?? place}`;
  const cells = Array.from({ length: layers }, (_, j) => weight(s[j]));
  return el(
    "tr",
    { class: selected ? "chosen" : null },
    el("th", { scope: "row" }, card.name, el("small", {}, ` ${PLACES[place] ?? place}`)),
    ...cells,
    el("td", { class: "gamma" }, formatNumber(gamma)),
    el(
      "td",
      { class: "apply" },
      el(
        "button",
        {
          type: "button",
          class: "quiet",
          disabled: s.length !== nLayers,
          title: "Apply this mix to sentences",
          "aria-label": `Apply the mix of ${name} to sentences`,
          on: { click: () => onApply({ s, gamma }) },
        },
        "Apply",
      ),
    ),
  );
}

/** A cell, darker for larger weights; hatched below 1/3 and dotted above 2/3, as in the paper. */
function weight(share) {
  if (share === undefined) return el("td");
  const kind = share < 1 / 3 ? "low" : share > 2 / 3 ? "high" : null;
  const cell = el(
    "td",
    { class: ["weight", kind].filter(Boolean).join(" ") },
    el("b", {}, formatNumber(share)),
  );
  cell.style.setProperty("--p", share.toFixed(4));
  return cell;
}

function summarize(rows) {
  if (!rows.length) return "The selected task model does not use ELMo.";
  const parts = rows.map(({ place, s }) => {
    const j = s.indexOf(Math.max(...s));
    const isBalanced = Math.max(...s) - Math.min(...s) < 0.1;
    const description = isBalanced
      ? "similar weights for all layers"
      : `layer ${j} most (${formatNumber(s[j])})`;
    return `${description} ${PLACES[place] ?? place}`;
  });
  return `“${rows[0].card.name}” uses ${parts.join(", and ")}.`;
}
