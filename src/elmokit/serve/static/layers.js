// Controls to select a layer, the average, or a custom mix: s_0, s_1, ... and gamma.

import { radioGroup, el } from "./dom.js";
import { formatNumber } from "./scale.js";

const AVERAGE = "average";
const MIX = "mix";

/** Read the layer selection from the parameters of a view. */
export function parseLayerChoice(values, nLayers) {
  const view = values.v ?? String(nLayers - 1);
  const weights = (values.s ?? "").split(",").map(Number);
  const isValid = weights.length === nLayers && weights.every((w) => w >= 0 && w <= 1);
  const raw = isValid ? weights : Array(nLayers).fill(1);
  const sum = raw.reduce((a, b) => a + b, 0);
  const shares = raw.map((w) => (sum ? w / sum : 0));
  const gamma = Number(values.g) > 0 ? Math.min(Number(values.g), 3) : 1;
  if (view === MIX) return { mode: MIX, name: MIX, label: "the custom mix", raw, shares, gamma };
  if (view === AVERAGE)
    return { mode: AVERAGE, name: AVERAGE, label: "the average of all layers", raw, shares, gamma };
  const layer = Math.min(Math.max(0, Math.trunc(Number(view)) || 0), nLayers - 1);
  return {
    mode: "layer",
    layer,
    name: `layer ${layer}`,
    label: `layer ${layer}`,
    raw,
    shares,
    gamma,
  };
}

function describeLayer(layer, nLayers) {
  if (layer === 0) return "characters only, no context";
  return layer === nLayers - 1 ? "top layer, best for meaning" : "best for syntax";
}

/**
 * Create the control, which calls `onChange(changes, join)` with new parameters of the view.
 *
 * `scale` adds a slider for gamma, which has no effect on cosines. `unavailable` explains why mixes
 * are not available and is shown instead of the sliders.
 *
 * Return a function that updates the control.
 */
export function layerControl(
  box,
  nLayers,
  onChange,
  { scale: hasGamma = false, unavailable = null } = {},
) {
  const name = box.id;
  const range = el("input", {
    type: "range",
    id: `${name}-range`,
    min: 0,
    max: nLayers - 1,
    step: 1,
    list: `${name}-ticks`,
  });
  const output = el("output", { for: range.id, class: "description" });
  const ticks = el(
    "div",
    { class: "ticks", "aria-hidden": "true" },
    ...Array.from({ length: nLayers }, (_, j) => el("span", {}, String(j))),
  );
  range.addEventListener("input", () => onChange({ v: range.value }, "layer"));
  const layerRow = el(
    "div",
    { class: "single-layer" },
    el("label", { for: range.id }, "Layer"),
    el("div", { class: "track" }, range, ticks),
    output,
  );

  const sliders = Array.from({ length: nLayers }, (_, j) =>
    slider(`${name}-s${j}`, ["s", el("sub", {}, String(j))], 0, 1, 0.01),
  );
  const scale = slider(`${name}-gamma`, [el("span", { class: "greek" }, "γ")], 0.1, 3, 0.1);
  const raw = () => sliders.map(({ input }) => Number(input.value)).join(",");
  for (const { input } of sliders)
    input.addEventListener("input", () => onChange({ v: MIX, s: raw() }, "mix"));
  scale.input.addEventListener("input", () => onChange({ v: MIX, g: scale.input.value }, "gamma"));
  const note = el("p", { class: "mix-note" });
  const rows = [...sliders.map((s) => s.row), ...(hasGamma ? [scale.row] : [])];
  const mixControls = el(
    "div",
    { class: "mix-controls" },
    ...(unavailable === null ? rows : []),
    note,
  );

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
  const showMode = radioGroup(group, modes, (mode) =>
    onChange({ v: mode === "layer" ? range.value : mode }, null),
  );
  box.className = "layers";
  box.replaceChildren(group, el("div", { class: "dials" }, layerRow, mixControls));

  return (selection, length = null) => {
    showMode(selection.mode);
    layerRow.hidden = selection.mode !== "layer";
    mixControls.hidden = selection.mode !== MIX;
    if (selection.mode === "layer") {
      range.value = selection.layer;
      const label = describeLayer(selection.layer, nLayers);
      output.textContent = label;
      range.setAttribute("aria-valuetext", `layer ${selection.layer}: ${label}`);
    }
    sliders.forEach((s, j) => s.show(selection.raw[j], formatNumber(selection.shares[j])));
    scale.show(selection.gamma, selection.gamma.toFixed(1));
    note.textContent = unavailable ?? describeMix(selection, length, hasGamma);
  };
}

function describeMix(selection, length, hasGamma) {
  if (isEmptyMix(selection)) return "All weights are 0. Increase at least one of them.";
  const sum = "Weights are normalized to sum to 1. ";
  if (!hasGamma) return `${sum}The scale γ has no effect here.`;
  const lengthNote =
    length === null ? "" : ` (length of the selected vector: ${length.toFixed(1)})`;
  return `${sum}γ scales the vectors${lengthNote} but does not change cosines.`;
}

/** Whether all weights of the mix are zero. */
export const isEmptyMix = ({ mode, shares }) => mode === MIX && shares.every((s) => s === 0);

function slider(id, label, min, max, step) {
  const input = el("input", { type: "range", id, min, max, step });
  const output = el("output", { for: id });
  const row = el("div", { class: "dial" }, el("label", { for: id }, ...label), input, output);
  const show = (value, text) => {
    if (Number(input.value) !== value) input.value = value;
    output.textContent = text;
  };
  return { input, row, show };
}
