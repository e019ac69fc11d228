// Neighbors: the most similar words in context from a whole text.

import { Chips } from "./chips.js";
import { byId, choice, el, examples, field, quote } from "./dom.js";
import { NEIGHBORS } from "./examples.js";
import { layerControl, parseLayerChoice, isEmptyMix } from "./layers.js";
import { number, shade } from "./scale.js";
import { RequestRunner, ask, pause, tokensOf } from "./service.js";

const MAX_RESULTS = 10;
const AROUND = 12; // tokens shown on each side of a result
const DELAY = 0.3; // delay in seconds after a slider moved: each search reads the whole index

export function neighbors(app) {
  const index = app.served.index;
  byId("neighbors-help").hidden = index !== null;
  byId("neighbors-body").hidden = index === null;
  if (index === null) return { show() {} };
  const model = app.served.data.find(({ id }) => id === index.model);
  const count = model.n_layers;
  const runner = new RequestRunner(byId("neighbors-result"), byId("neighbors-notice"));
  const text = field(byId("neighbors-text"), (x) => app.set({ x, t: null, n: null }, "text"));
  examples(byId("neighbors-examples"), NEIGHBORS, ({ text: x, word: w }) =>
    app.set({ x, w, t: null, n: null }),
  );
  const chips = new Chips(
    byId("neighbors-chips"),
    (_, k, join) => app.set({ t: k, n: null, w: null }, join),
    "Words of your sentence",
  );
  // Mixes need vectors of all layers.
  const hasAllLayers = index.stored_layers.length === count;
  const why = hasAllLayers
    ? null
    : `This index contains ${index.layers.join(", ")}. Custom mixes need all layers: rebuild the ` +
      "index without --layer.";
  const showLayers = layerControl(
    byId("neighbors-layers"),
    count,
    (changes, join) => app.set(changes, join),
    { why },
  );
  const showWords = choice(
    byId("neighbors-words"),
    [
      ["any", "Any word"],
      ["same", "Same word"],
      ["other", "Other words"],
    ],
    (f) => app.set({ f }),
  );
  const showDistinct = choice(
    byId("neighbors-distinct"),
    [
      ["sentence", "Distinct sentences"],
      ["word", "Distinct words"],
    ],
    (d) => app.set({ d }),
  );

  function draw({ tokens, k, result }, values) {
    const seen = parseLayerChoice(values, count);
    chips.draw([tokens]);
    chips.mark(0, values.n === undefined ? k : -1);
    if (!byId("neighbors-chips").querySelector('[tabindex="0"]'))
      byId("neighbors-chips").querySelector(".chip")?.setAttribute("tabindex", "0");
    const focused = document.activeElement;
    const inside =
      byId("neighbors-hits").contains(focused) || byId("neighbors-walk").contains(focused);
    walk(result.query, values);
    const hits = result.neighbors[seen.name];
    byId("neighbors-hits").replaceChildren(...(hits ?? []).map((hit) => resultItem(hit, app)));
    const word = result.query.tokens[result.query.position];
    const searched = result.searched_tokens.toLocaleString("en");
    const summary = byId("neighbors-finding");
    if (!hits) {
      const there = Object.keys(result.neighbors).join(", ");
      summary.textContent = `The index has no vectors for ${seen.words}; it contains ${there}.`;
    } else if (!hits.length) {
      summary.textContent =
        `No results for “${word}” among ${searched} tokens with these filters. ` +
        "Try “Any word”.";
    } else {
      summary.textContent =
        `Nearest neighbors of “${word}” in ${seen.words}, among ${searched} tokens of ` +
        `${index.inputs.join(", ")}. Click a result to search from there.`;
    }
    drawStatic(result.static, word);
    // The focused element was removed: move the focus to the back button or the words.
    if (inside)
      (
        byId("neighbors-walk").querySelector("button") ??
        byId("neighbors-chips").querySelector('[tabindex="0"]')
      )?.focus();
  }

  /** Show the current query if it is a token of the text. */
  function walk(query, values) {
    const box = byId("neighbors-walk");
    box.hidden = values.n === undefined;
    box.replaceChildren();
    if (box.hidden) return;
    box.replaceChildren(
      "Query from the text: ",
      ...quote(query.tokens, query.position, AROUND),
      " ",
      el(
        "button",
        { type: "button", class: "quiet", on: { click: () => app.set({ n: null }) } },
        "Back to your sentence",
      ),
    );
  }

  function drawStatic(list, word) {
    const title = app.served.static ? `Static vectors (${app.served.static})` : "Static vectors";
    const content = !app.served.static
      ? [
          el(
            "p",
            {},
            "Static vectors have one list of neighbors per word. " +
              "Start the service with --static glove-6b-50d to show them.",
          ),
        ]
      : list
        ? [
            el(
              "ol",
              { class: "near-words" },
              ...list.map(({ word: w, score }) =>
                el("li", {}, el("span", {}, w), el("span", { class: "score" }, number(score))),
              ),
            ),
            el("p", {}, `The list for “${word}” is the same in every sentence.`),
          ]
        : [el("p", {}, `“${word}” is not in the static vocabulary.`)];
    byId("neighbors-static").replaceChildren(el("h3", {}, title), ...content);
  }

  return {
    show(values) {
      const x = values.x ?? NEIGHBORS[0].text;
      text.show(x);
      showLayers(parseLayerChoice(values, count));
      const words = ["any", "same", "other"].includes(values.f) ? values.f : "any";
      const distinct = values.d === "word" ? "word" : "sentence";
      showWords(words);
      showDistinct(distinct);
      const given = x.replace(/\s+/g, " ").trim();
      if (!given)
        return runner.cancel("Enter a sentence and select a word in it, or select an example.");
      const seen = parseLayerChoice(values, count);
      if (hasAllLayers && isEmptyMix(seen))
        return runner.cancel("All weights are 0. Increase at least one of them.");
      const shares = hasAllLayers && seen.mode === "mix" ? seen.shares : null;
      const key = JSON.stringify([given, values.t, values.w, values.n, words, distinct, shares]);
      const work = async (signal) => {
        const tokens = await tokensOf(given, model.id, signal);
        const k = chosenToken(values, tokens);
        const query =
          values.n === undefined
            ? { sentence: tokens, position: k }
            : Math.trunc(Number(values.n)) || 0;
        const body = {
          queries: [query],
          k: MAX_RESULTS,
          words,
          distinct,
          static: app.served.static !== null,
        };
        if (shares !== null) {
          Object.assign(body, { layer: "mix", mix: shares });
          await pause(DELAY, signal);
        }
        return { tokens, k, result: (await ask("v1/neighbors", body, signal)).results[0] };
      };
      runner.run(key, work, (answer) => draw(answer, app.values()));
    },
  };
}

function chosenToken(values, tokens) {
  const k = Number(values.t ?? -1);
  if (tokens[k] !== undefined) return k;
  const word = values.w ?? (values.x === undefined ? NEIGHBORS[0].word : null);
  const found = tokens.findIndex((token) => token.toLowerCase() === word);
  return found >= 0 ? found : longest(tokens);
}

const longest = (tokens) =>
  tokens.reduce((best, token, k) => (token.length > tokens[best].length ? k : best), 0);

function resultItem(hit, app) {
  const score = el("span", { class: "score" }, number(hit.score));
  shade(score, hit.score);
  return el(
    "li",
    {},
    el(
      "button",
      {
        type: "button",
        title: "Search from here",
        on: { click: () => app.set({ n: hit.token }) },
      },
      score,
      el("span", { class: "in-sentence" }, ...quote(hit.tokens, hit.position, AROUND)),
      el("small", { class: "where" }, hit.where),
    ),
  );
}
