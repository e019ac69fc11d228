// Controls to select a layer, the average, or a custom mix: s_0, s_1, ... and gamma.

import { choice, el } from "./dom.js";
import { number } from "./scale.js";

const AVERAGE = "average";
const MIX = "mix";

/** Read the layer selection from the parameters of a view. */
export function parseLayerChoice(values, count) {
  const view = values.v ?? String(count - 1);
  const weights = (values.s ?? "").split(",").map(Number);
  const whole = weights.length === count && weights.every((w) => w >= 0 && w <= 1);
  const raw = whole ? weights : Array(count).fill(1);
  const sum = raw.reduce((a, b) => a + b, 0);
  const shares = raw.map((w) => (sum ? w / sum : 0));
  const gamma = Number(values.g) > 0 ? Math.min(Number(values.g), 3) : 1;
  if (view === MIX) return { mode: MIX, name: MIX, words: "the custom mix", raw, shares, gamma };
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
  if (layer === 0) return "characters only, no context";
  return layer === count - 1 ? "top layer, best for meaning" : "best for syntax";
}

/**
 * Build the control; it calls `changed(changes, join)` with new parameters of the view.
 *
 * `scale` adds a slider for gamma, which has no effect on cosines. `why` is shown instead of the
 * sliders if mixes are not available. Returns a function that updates the control.
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
  const output = el("output", { for: range.id, class: "description" });
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
    output,
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
    [MIX, "Custom mix"],
  ];
  const group = el("div", {
    class: "switch",
    role: "radiogroup",
    "aria-label": "Layer selection",
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
      output.textContent = words;
      range.setAttribute("aria-valuetext", `layer ${seen.layer}: ${words}`);
    }
    sliders.forEach((s, j) => s.show(seen.raw[j], number(seen.shares[j])));
    scale.show(seen.gamma, seen.gamma.toFixed(1));
    note.textContent = why ?? noteOf(seen, length, scaled);
  };
}

function noteOf(seen, length, scaled) {
  if (isEmptyMix(seen)) return "All weights are 0. Increase at least one of them.";
  const sum = "Weights are normalized to sum to 1. ";
  if (!scaled) return `${sum}The scale γ has no effect here.`;
  const long = length === null ? "" : ` (length of the selected vector: ${length.toFixed(1)})`;
  return `${sum}γ scales the vectors${long} but does not change cosines.`;
}

/** Whether all weights of the mix are zero. */
export const isEmptyMix = ({ mode, shares }) => mode === MIX && shares.every((s) => s === 0);

function slider(id, words, min, max, step) {
  const input = el("input", { type: "range", id, min, max, step });
  const output = el("output", { for: id });
  const row = el("div", { class: "dial" }, el("label", { for: id }, ...words), input, output);
  const show = (value, shown) => {
    if (Number(input.value) !== value) input.value = value;
    output.textContent = shown;
  };
  return { input, row, show };
}
