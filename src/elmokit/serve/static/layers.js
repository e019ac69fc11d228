// The slider for a layer, and those for a mix of all: s_0, s_1, ... and gamma, moved by hand.

import { choice, el } from "./dom.js";
import { number } from "./scale.js";

const AVERAGE = "average";
const MIX = "mix";

/** Read what is looked at from the parameters of a place. */
export function lookedAt(values, count) {
  const view = values.v ?? String(count - 1);
  const weights = (values.s ?? "").split(",").map(Number);
  const whole = weights.length === count && weights.every((w) => w >= 0 && w <= 1);
  const raw = whole ? weights : Array(count).fill(1);
  const sum = raw.reduce((a, b) => a + b, 0);
  const shares = raw.map((w) => (sum ? w / sum : 0));
  const gamma = Number(values.g) > 0 ? Math.min(Number(values.g), 3) : 1;
  if (view === MIX) return { mode: MIX, name: MIX, words: "your mix", raw, shares, gamma };
  if (view === AVERAGE)
    return { mode: AVERAGE, name: AVERAGE, words: "the average of all layers", raw, shares, gamma };
  const layer = Math.min(Math.max(0, Math.trunc(Number(view)) || 0), count - 1);
  return {
    mode: "layer",
    layer,
    name: `layer ${layer}`,
    words: `layer ${layer}`,
    raw,
    shares,
    gamma,
  };
}

function meaning(layer, count) {
  if (layer === 0) return "the letters alone, no context";
  return layer === count - 1 ? "the top, closest to meaning" : "closest to grammar";
}

/**
 * Build the control; `changed(changes, join)` is told what the address should say.
 *
 * `scale` says whether gamma can be moved too: it has no part where only directions count. `why` is
 * told instead of the sliders where there can be no mix. Returns what shows a place.
 */
export function layerControl(box, count, changed, { scale: scaled = false, why = null } = {}) {
  const name = box.id;
  const range = el("input", {
    type: "range",
    id: `${name}-range`,
    min: 0,
    max: count - 1,
    step: 1,
    list: `${name}-ticks`,
  });
  const told = el("output", { for: range.id, class: "told" });
  const ticks = el(
    "div",
    { class: "ticks", "aria-hidden": "true" },
    ...Array.from({ length: count }, (_, j) => el("span", {}, String(j))),
  );
  range.addEventListener("input", () => changed({ v: range.value }, "layer"));
  const one = el(
    "div",
    { class: "one" },
    el("label", { for: range.id }, "Layer"),
    el("div", { class: "track" }, range, ticks),
    told,
  );

  const sliders = Array.from({ length: count }, (_, j) =>
    slider(`${name}-s${j}`, ["s", el("sub", {}, String(j))], 0, 1, 0.01),
  );
  const scale = slider(`${name}-gamma`, [el("span", { class: "greek" }, "γ")], 0.1, 3, 0.1);
  const raw = () => sliders.map(({ input }) => Number(input.value)).join(",");
  for (const { input } of sliders)
    input.addEventListener("input", () => changed({ v: MIX, s: raw() }, "mix"));
  scale.input.addEventListener("input", () => changed({ v: MIX, g: scale.input.value }, "gamma"));
  const note = el("p", { class: "mix-note" });
  const rows = [...sliders.map((s) => s.row), ...(scaled ? [scale.row] : [])];
  const hand = el("div", { class: "hand" }, ...(why === null ? rows : []), note);

  const modes = [
    ["layer", "One layer"],
    [AVERAGE, "Average"],
    [MIX, "A mix by hand"],
  ];
  const group = el("div", {
    class: "switch",
    role: "radiogroup",
    "aria-label": "What is compared",
  });
  const showMode = choice(group, modes, (mode) =>
    changed({ v: mode === "layer" ? range.value : mode }, null),
  );
  box.className = "layers";
  box.replaceChildren(group, el("div", { class: "dials" }, one, hand));

  return (seen, length = null) => {
    showMode(seen.mode);
    one.hidden = seen.mode !== "layer";
    hand.hidden = seen.mode !== MIX;
    if (seen.mode === "layer") {
      range.value = seen.layer;
      const words = meaning(seen.layer, count);
      told.textContent = words;
      range.setAttribute("aria-valuetext", `layer ${seen.layer}: ${words}`);
    }
    sliders.forEach((s, j) => s.show(seen.raw[j], number(seen.shares[j])));
    scale.show(seen.gamma, seen.gamma.toFixed(1));
    note.textContent = why ?? noteOf(seen, length, scaled);
  };
}

function noteOf(seen, length, scaled) {
  if (nothing(seen)) return "All weights are 0: nothing is left of the words. Move one up.";
  const sum = "The weights are scaled to sum to 1. ";
  if (!scaled) return `${sum}The paper's γ, which makes vectors longer, would change nothing here.`;
  const long = length === null ? "" : ` (the chosen one is ${length.toFixed(1)} long)`;
  return `${sum}γ makes vectors longer or shorter${long}; no cosine changes by it.`;
}

/** Whether it is a mix of nothing. */
export const nothing = ({ mode, shares }) => mode === MIX && shares.every((s) => s === 0);

function slider(id, words, min, max, step) {
  const input = el("input", { type: "range", id, min, max, step });
  const told = el("output", { for: id });
  const row = el("div", { class: "dial" }, el("label", { for: id }, ...words), input, told);
  const show = (value, shown) => {
    if (Number(input.value) !== value) input.value = value;
    told.textContent = shown;
  };
  return { input, row, show };
}
