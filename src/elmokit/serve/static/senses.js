// Senses: the uses of one word as a scatter plot, next to its single static vector.

import { byId, choice, el, examples, field, grow, lines, quote, svg } from "./dom.js";
import { SENSES } from "./examples.js";
import { layerControl, parseLayerChoice, isEmptyMix } from "./layers.js";
import { number } from "./scale.js";
import { RequestRunner, ask, pause } from "./service.js";
import { Plane, mark } from "./plane.js";

const DELAY = 0.15; // delay in seconds after a slider moved

export function senses(app) {
  const count = app.model.n_layers;
  const runner = new RequestRunner(byId("senses-result"), byId("senses-notice"));
  const text = field(byId("senses-text"), (x) => app.set({ x, p: null }, "text"));
  const word = field(byId("senses-word"), (w) => app.set({ w, p: null }, "word"));
  byId("senses-details").addEventListener("toggle", () => grow(byId("senses-text")));
  examples(byId("senses-examples"), SENSES, ({ word: w }) => app.set({ w, x: null, p: null }));
  const showLayers = layerControl(byId("senses-layers"), count, (changes, join) =>
    app.set(changes, join),
  );
  const showColor = choice(
    byId("senses-color"),
    [
      ["sense", "By sense"],
      ["cluster", "By cluster"],
    ],
    (c) => app.set({ c }),
  );
  const plane = new Plane(byId("senses-plane"), (p, join) => app.set({ p }, join));

  function draw({ answer, mix }, values) {
    const seen = parseLayerChoice(values, count);
    const space = mix ?? answer.layers.find((s) => s.name === seen.name);
    if (!space) return;
    const known = answer.points.some(({ sense }) => sense !== null);
    const by = known && values.c !== "cluster" ? "sense" : "cluster";
    showColor(by);
    byId("senses-color").firstChild.disabled = !known;
    const groups = by === "sense" ? bySense(answer.points) : byCluster(answer.layers, space);
    const chosen = values.p === undefined ? null : Number(values.p);
    plane.draw(answer, space, groups);
    plane.choose(chosen, sentenceOf(answer));
    legend(groups);
    list(answer, groups, chosen);
    finding(answer, space, seen);
    drawStatic(answer);
  }

  function legend({ names, of }) {
    const count = (group) => of.filter((g) => g === group).length;
    byId("senses-legend").replaceChildren(
      ...names.flatMap((name, g) =>
        count(g) ? [el("li", {}, icon(g), `${name} (${count(g)})`)] : [],
      ),
    );
  }

  let listed = null;
  function list(answer, { of }, chosen) {
    const box = byId("senses-list");
    if (listed !== answer) {
      listed = answer;
      const press = (i) => app.set({ p: app.values().p === String(i) ? null : i });
      box.replaceChildren(
        ...answer.points.map((_, i) =>
          el(
            "li",
            {},
            el(
              "button",
              { type: "button", on: { click: () => press(i) } },
              icon(of[i]),
              el("span", {}, ...sentenceOf(answer)(i)),
            ),
          ),
        ),
      );
    }
    [...box.children].forEach((item, i) => {
      item.classList.toggle("chosen", i === chosen);
      item.firstChild.setAttribute("aria-pressed", i === chosen);
      item.firstChild.firstChild.replaceWith(icon(of[i]));
    });
  }

  function finding(answer, space, seen) {
    const n = answer.points.length;
    const first = answer.layers.find((s) => s.name === "layer 0");
    const parts = [];
    const clusters = new Set(space.clusters).size;
    const groups = `${clusters} ${clusters === 1 ? "cluster" : "clusters"}`;
    if (n < 2) {
      parts.push("Add more sentences with the word: one use cannot be compared.");
    } else if (space.mean_cosine > 0.9995) {
      parts.push(
        `Without context, all ${n} uses have the same vector, as with static vectors.`,
      );
    } else {
      const before = first ? ` (layer 0: ${number(first.mean_cosine)})` : "";
      const cosine = number(space.mean_cosine);
      parts.push(`In ${seen.words}, the mean cosine between uses is ${cosine}${before}.`);
      if (space.sense_purity === null) {
        parts.push(`The uses form ${groups}.`);
      } else {
        const share = Math.round(space.sense_purity * 100);
        parts.push(
          `Clustering without the senses gives ${groups}; ` +
            `${share}% of the uses have the most frequent sense of their cluster.`,
        );
      }
    }
    const without = answer.sentences_without_word.map((i) => `line ${i + 1}`);
    if (without.length) parts.push(`The word was not found in ${without.join(", ")}.`);
    byId("senses-finding").textContent = parts.join(" ");
    const [a, b] = space.explained;
    byId("senses-plane").setAttribute(
      "aria-description",
      `The two axes explain ${Math.round((a + b) * 100)}% of the variance.`,
    );
  }

  function drawStatic(answer) {
    const neighbors = answer.static;
    const name = answer.word ?? "the word";
    byId("senses-static-title").textContent = app.served.static
      ? `Static vectors (${app.served.static})`
      : "Static vectors";
    byId("senses-static").setAttribute("aria-label", `One point: ${name} has one static vector`);
    byId("senses-static").replaceChildren(
      svg("line", { class: "axis", x1: 110, y1: 8, x2: 110, y2: 152 }),
      svg("line", { class: "axis", x1: 8, y1: 80, x2: 212, y2: 80 }),
      svg("circle", { class: "one-dot", cx: 110, cy: 80, r: 8 }),
      svg("text", { x: 124, y: 72 }, name),
    );
    const caption = [`One vector for ${name} in all sentences.`];
    if (neighbors !== null)
      caption.push(
        el(
          "span",
          { class: "near" },
          "Nearest words: ",
          neighbors
            .slice(0, 5)
            .map(({ word: w }) => w)
            .join(", "),
        ),
      );
    else if (app.served.static && answer.word !== null)
      caption.push(el("span", { class: "near" }, "The word is not in the static vocabulary."));
    byId("senses-static-caption").replaceChildren(...caption);
  }

  return {
    show(values) {
      const example = SENSES.find(({ word: w }) => w === values.w) ?? SENSES[0];
      const x = values.x ?? example.text;
      const w = values.w ?? (values.x === undefined ? example.word : "");
      text.show(x);
      word.show(w);
      showLayers(parseLayerChoice(values, count));
      const given = lines(x).map((line) => line.split(/\s*[|\t]\s*(?=[^|\t]*$)/));
      byId("senses-count").textContent = given.length;
      if (!given.length)
        return runner.cancel(
          "Enter sentences that contain the word, one per line, or select an example.",
        );
      if (!w.trim() && !given.every(([s]) => /\[[^\]]+\]/.test(s)))
        return runner.cancel(
          "Enter the word above, or put it in [brackets] in every sentence.",
        );
      const body = {
        sentences: given.map(([s]) => s),
        senses: given.map(([, s]) => s || null),
        model: app.model.id,
      };
      if (w.trim()) body.word = w.trim();
      const seen = parseLayerChoice(values, count);
      if (isEmptyMix(seen))
        return runner.cancel("All weights are 0. Increase at least one of them.");
      const shares = seen.mode === "mix" ? seen.shares : null;
      const work = async (signal) => {
        const answer = await ask("v1/project", body, signal);
        if (shares === null) return { answer, mix: null };
        await pause(DELAY, signal); // one request per slider movement
        const layer = ["all", "average", "mix"];
        const { layers } = await ask("v1/project", { ...body, layer, mix: shares }, signal);
        return { answer, mix: layers.find(({ name }) => name === "mix") };
      };
      runner.run(JSON.stringify([body, shares]), work, (found) => {
        runner.notify(found.answer.warnings.join(" ") || null);
        runner.result.classList.remove("stale");
        draw(found, app.values());
      });
    },
  };
}

const sentenceOf = (answer) => (i) =>
  quote(answer.sentences[answer.points[i].sentence].tokens, answer.points[i].position);

function icon(group) {
  return svg(
    "svg",
    { class: "icon", viewBox: "-10 -10 20 20", "aria-hidden": "true" },
    mark(group),
  );
}

function bySense(points) {
  const names = [...new Set(points.map(({ sense }) => sense ?? "no sense"))];
  return { names, of: points.map(({ sense }) => names.indexOf(sense ?? "no sense")) };
}

/** Clusters of a layer, numbered like the clusters of the top layer that they overlap most. */
function byCluster(planes, space) {
  const layers = planes.filter((s) => s.name.startsWith("layer"));
  const top = layers[layers.length - 1].clusters;
  const shared = new Map();
  space.clusters.forEach((c, i) => {
    const pair = `${c} ${top[i]}`;
    shared.set(pair, (shared.get(pair) ?? 0) + 1);
  });
  const number = new Map();
  for (const [pair] of [...shared].sort((a, b) => b[1] - a[1])) {
    const [c, t] = pair.split(" ").map(Number);
    if (!number.has(c) && ![...number.values()].includes(t)) number.set(c, t);
  }
  for (const c of new Set(space.clusters)) {
    if (number.has(c)) continue;
    let free = 0;
    while ([...number.values()].includes(free)) free++;
    number.set(c, free);
  }
  const used = [...number.values()].sort((a, b) => a - b);
  const names = Array.from({ length: used[used.length - 1] + 1 }, (_, g) => `cluster ${g + 1}`);
  return { names, of: space.clusters.map((c) => number.get(c)) };
}
