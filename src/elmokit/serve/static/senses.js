// Senses: the uses of one word as a scatter plot, next to its single static vector.

import { byId, radioGroup, el, examples, field, grow, splitLines, quote, svg } from "./dom.js";
import { SENSES } from "./examples.js";
import { layerControl, parseLayerChoice, isEmptyMix } from "./layers.js";
import { formatNumber } from "./scale.js";
import { RequestRunner, request, pause } from "./service.js";
import { Plane, marker } from "./plane.js";

const DELAY = 0.15; // seconds to wait after a slider has moved

export function senses(app) {
  const nLayers = app.model.n_layers;
  const runner = new RequestRunner(byId("senses-result"), byId("senses-notice"));
  const text = field(byId("senses-text"), (x) => app.set({ x, p: null }, "text"));
  const word = field(byId("senses-word"), (w) => app.set({ w, p: null }, "word"));
  byId("senses-details").addEventListener("toggle", () => grow(byId("senses-text")));
  examples(byId("senses-examples"), SENSES, ({ word: w }) => app.set({ w, x: null, p: null }));
  const showLayers = layerControl(byId("senses-layers"), nLayers, (changes, join) =>
    app.set(changes, join),
  );
  const showColor = radioGroup(
    byId("senses-color"),
    [
      ["sense", "By sense"],
      ["cluster", "By cluster"],
    ],
    (c) => app.set({ c }),
  );
  const plane = new Plane(byId("senses-plane"), (p, join) => app.set({ p }, join));

  function draw({ response, mix }, values) {
    const selection = parseLayerChoice(values, nLayers);
    const layer = mix ?? response.layers.find((s) => s.name === selection.name);
    if (!layer) return;
    const hasSenses = response.points.some(({ sense }) => sense !== null);
    const colorBy = hasSenses && values.c !== "cluster" ? "sense" : "cluster";
    showColor(colorBy);
    byId("senses-color").firstChild.disabled = !hasSenses;
    const groups =
      colorBy === "sense" ? bySense(response.points) : byCluster(response.layers, layer);
    const selected = values.p === undefined ? null : Number(values.p);
    plane.draw(response, layer, groups);
    plane.choose(selected, sentenceOf(response));
    legend(groups);
    list(response, groups, selected);
    finding(response, layer, selection);
    drawStatic(response);
  }

  function legend({ names, of }) {
    const countOf = (group) => of.filter((g) => g === group).length;
    byId("senses-legend").replaceChildren(
      ...names.flatMap((name, g) =>
        countOf(g) ? [el("li", {}, icon(g), `${name} (${countOf(g)})`)] : [],
      ),
    );
  }

  let listedResponse = null;
  function list(response, { of }, selected) {
    const box = byId("senses-list");
    if (listedResponse !== response) {
      listedResponse = response;
      const toggle = (i) => app.set({ p: app.values().p === String(i) ? null : i });
      box.replaceChildren(
        ...response.points.map((_, i) =>
          el(
            "li",
            {},
            el(
              "button",
              { type: "button", on: { click: () => toggle(i) } },
              icon(of[i]),
              el("span", {}, ...sentenceOf(response)(i)),
            ),
          ),
        ),
      );
    }
    [...box.children].forEach((item, i) => {
      item.classList.toggle("chosen", i === selected);
      item.firstChild.setAttribute("aria-pressed", i === selected);
      item.firstChild.firstChild.replaceWith(icon(of[i]));
    });
  }

  function finding(response, layer, selection) {
    const n = response.points.length;
    const first = response.layers.find((s) => s.name === "layer 0");
    const parts = [];
    const clusters = new Set(layer.clusters).size;
    const groups = `${clusters} ${clusters === 1 ? "cluster" : "clusters"}`;
    if (n < 2) {
      parts.push("Add more sentences that contain the word. One use cannot be compared.");
    } else if (layer.mean_cosine > 0.9995) {
      parts.push(
        `Without context, all ${n} uses have the same vector, as with static vectors.`,
      );
    } else {
      const before = first ? ` (layer 0: ${formatNumber(first.mean_cosine)})` : "";
      const cosine = formatNumber(layer.mean_cosine);
      parts.push(`In ${selection.label}, the mean cosine between uses is ${cosine}${before}.`);
      if (layer.sense_purity === null) {
        parts.push(`The uses form ${groups}.`);
      } else {
        const share = Math.round(layer.sense_purity * 100);
        parts.push(
          `Clustering without the senses gives ${groups}; ` +
            `${share}% of the uses have the most frequent sense of their cluster.`,
        );
      }
    }
    const missing = response.sentences_without_word.map((i) => `line ${i + 1}`);
    if (missing.length) parts.push(`The word was not found in ${missing.join(", ")}.`);
    byId("senses-finding").textContent = parts.join(" ");
    const [a, b] = layer.explained;
    byId("senses-plane").setAttribute(
      "aria-description",
      `The two axes explain ${Math.round((a + b) * 100)}% of the variance.`,
    );
  }

  function drawStatic(response) {
    const neighbors = response.static;
    const name = response.word ?? "the word";
    byId("senses-static-title").textContent = app.service.static
      ? `Static vectors (${app.service.static})`
      : "Static vectors";
    byId("senses-static").setAttribute("aria-label", `One point: ${name} has one static vector`);
    byId("senses-static").replaceChildren(
      svg("line", { class: "axis", x1: 110, y1: 8, x2: 110, y2: 152 }),
      svg("line", { class: "axis", x1: 8, y1: 80, x2: 212, y2: 80 }),
      svg("circle", { class: "static-point", cx: 110, cy: 80, r: 8 }),
      svg("text", { x: 124, y: 72 }, name),
    );
    const caption = [`One vector for ${name} in all sentences.`];
    if (neighbors !== null)
      caption.push(
        el(
          "span",
          { class: "static-neighbors" },
          "Nearest words: ",
          neighbors
            .slice(0, 5)
            .map(({ word: w }) => w)
            .join(", "),
        ),
      );
    else if (app.service.static && response.word !== null)
      caption.push(
        el("span", { class: "static-neighbors" }, "The word is not in the static vocabulary."),
      );
    byId("senses-static-caption").replaceChildren(...caption);
  }

  return {
    show(values) {
      const example = SENSES.find(({ word: w }) => w === values.w) ?? SENSES[0];
      const x = values.x ?? example.text;
      const w = values.w ?? (values.x === undefined ? example.word : "");
      text.show(x);
      word.show(w);
      showLayers(parseLayerChoice(values, nLayers));
      const rows = splitLines(x).map((line) => line.split(/\s*[|\t]\s*(?=[^|\t]*$)/));
      byId("senses-count").textContent = rows.length;
      if (!rows.length)
        return runner.cancel(
          "Enter sentences that contain the word, one per line, or select an example.",
        );
      if (!w.trim() && !rows.every(([s]) => /\[[^\]]+\]/.test(s)))
        return runner.cancel(
          "Enter the word above, or put it in [brackets] in each sentence.",
        );
      const body = {
        sentences: rows.map(([s]) => s),
        senses: rows.map(([, s]) => s || null),
        model: app.model.id,
      };
      if (w.trim()) body.word = w.trim();
      const selection = parseLayerChoice(values, nLayers);
      if (isEmptyMix(selection))
        return runner.cancel("All weights are 0. Increase at least one of them.");
      const shares = selection.mode === "mix" ? selection.shares : null;
      const work = async (signal) => {
        const response = await request("v1/project", body, signal);
        if (shares === null) return { response, mix: null };
        await pause(DELAY, signal); // one request per slider movement
        const layer = ["all", "average", "mix"];
        const { layers } = await request("v1/project", { ...body, layer, mix: shares }, signal);
        return { response, mix: layers.find(({ name }) => name === "mix") };
      };
      runner.run(JSON.stringify([body, shares]), work, (result) => {
        runner.notify(result.response.warnings.join(" ") || null);
        runner.result.classList.remove("stale");
        draw(result, app.values());
      });
    },
  };
}

const sentenceOf = (response) => (i) =>
  quote(response.sentences[response.points[i].sentence].tokens, response.points[i].position);

function icon(group) {
  return svg(
    "svg",
    { class: "icon", viewBox: "-10 -10 20 20", "aria-hidden": "true" },
    marker(group),
  );
}

function bySense(points) {
  const names = [...new Set(points.map(({ sense }) => sense ?? "no sense"))];
  return { names, of: points.map(({ sense }) => names.indexOf(sense ?? "no sense")) };
}

/** Clusters of a layer, numbered like the top-layer clusters with which they overlap most. */
function byCluster(planes, layer) {
  const layers = planes.filter((s) => s.name.startsWith("layer"));
  const top = layers[layers.length - 1].clusters;
  const shared = new Map();
  layer.clusters.forEach((c, i) => {
    const pair = `${c} ${top[i]}`;
    shared.set(pair, (shared.get(pair) ?? 0) + 1);
  });
  const numbers = new Map();
  for (const [pair] of [...shared].sort((a, b) => b[1] - a[1])) {
    const [c, t] = pair.split(" ").map(Number);
    if (!numbers.has(c) && ![...numbers.values()].includes(t)) numbers.set(c, t);
  }
  for (const c of new Set(layer.clusters)) {
    if (numbers.has(c)) continue;
    let free = 0;
    while ([...numbers.values()].includes(free)) free++;
    numbers.set(c, free);
  }
  const used = [...numbers.values()].sort((a, b) => a - b);
  const names = Array.from({ length: used[used.length - 1] + 1 }, (_, g) => `cluster ${g + 1}`);
  return { names, of: layer.clusters.map((c) => numbers.get(c)) };
}
