// The layer weights that tasks learned, drawn as in Figure 2 of the paper.

import { byId, el } from "./dom.js";
import { number } from "./scale.js";

const PLACES = { input: "at the input", output: "at the output" };

/**
 * Draw the weights of all tasks, those of the chosen one marked.
 *
 * `look(mix)` shows one at work; `count` is how many layers it must have for that.
 */
export function drawMixes(cards, chosen, count, look) {
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
  const head = el(
    "tr",
    {},
    el("th", {}, el("span", { class: "unseen" }, "task")),
    ...columns,
    el("th", { scope: "col" }, "γ"),
    el("td"),
  );
  byId("tasks-mixes").replaceChildren(
    el("thead", {}, head),
    el("tbody", {}, ...rows.map((row) => line(row, layers, row.card === chosen, count, look))),
  );
  byId("tasks-mixes-said").textContent = said(rows.filter(({ card }) => card === chosen));
}

function line({ card, place, s, gamma }, layers, chosen, count, look) {
  const named = `${card.name} ${PLACES[place] ?? place}`;
  const cells = Array.from({ length: layers }, (_, j) => weight(s[j]));
  return el(
    "tr",
    { class: chosen ? "chosen" : null },
    el("th", { scope: "row" }, card.name, el("small", {}, ` ${PLACES[place] ?? place}`)),
    ...cells,
    el("td", { class: "gamma" }, number(gamma)),
    el(
      "td",
      { class: "look" },
      el(
        "button",
        {
          type: "button",
          class: "quiet",
          disabled: s.length !== count,
          title: "Look at sentences with this mix",
          "aria-label": `See sentences with the mix of ${named}`,
          on: { click: () => look({ s, gamma }) },
        },
        "See it",
      ),
    ),
  );
}

/** A cell: the more, the darker; under a third hatched, over two thirds dotted, as in the paper. */
function weight(share) {
  if (share === undefined) return el("td");
  const kind = share < 1 / 3 ? "little" : share > 2 / 3 ? "much" : null;
  const cell = el(
    "td",
    { class: ["weight", kind].filter(Boolean).join(" ") },
    el("b", {}, number(share)),
  );
  cell.style.setProperty("--p", share.toFixed(4));
  return cell;
}

function said(rows) {
  if (!rows.length) return "The chosen task does without ELMo: it has no weights.";
  const most = rows.map(({ place, s }) => {
    const j = s.indexOf(Math.max(...s));
    const even = Math.max(...s) - Math.min(...s) < 0.1;
    const taken = even ? "about as much of each layer" : `most of layer ${j} (${number(s[j])})`;
    return `${taken} ${PLACES[place] ?? place}`;
  });
  return `“${rows[0].card.name}” takes ${most.join(", and ")}.`;
}
