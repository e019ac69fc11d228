// Neighbors: the uses of words in a text that are most similar to a word in a sentence.

import { Chips } from "./chips.js";
import { byId, radioGroup, el, examples, field, quote } from "./dom.js";
import { NEIGHBORS } from "./examples.js";
import { layerControl, parseLayerChoice, isEmptyMix } from "./layers.js";
import { formatNumber, shade } from "./scale.js";
import { RequestRunner, request, pause, tokenize } from "./service.js";

const MAX_RESULTS = 10;
const CONTEXT = 12; // tokens shown on each side of a result
const DELAY = 0.3; // seconds to wait after a slider has moved; a search reads the whole index

export function neighbors(app) {
  const index = app.service.index;
  byId("neighbors-help").hidden = index !== null;
  byId("neighbors-body").hidden = index === null;
  if (index === null) return { show() {} };
  const model = app.service.data.find(({ id }) => id === index.model);
  const nLayers = model.n_layers;
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
  const hasAllLayers = index.stored_layers.length === nLayers;
  const unavailable = hasAllLayers
    ? null
    : `This index contains ${index.layers.join(", ")}. Custom mixes need all layers: rebuild the ` +
      "index without --layer.";
  const showLayers = layerControl(
    byId("neighbors-layers"),
    nLayers,
    (changes, join) => app.set(changes, join),
    { unavailable },
  );
  const showWords = radioGroup(
    byId("neighbors-words"),
    [
      ["any", "Any word"],
      ["same", "Same word"],
      ["other", "Other words"],
    ],
    (f) => app.set({ f }),
  );
  const showDistinct = radioGroup(
    byId("neighbors-distinct"),
    [
      ["sentence", "Distinct sentences"],
      ["word", "Distinct words"],
    ],
    (d) => app.set({ d }),
  );

  function draw({ tokens, k, result }, values) {
    const selection = parseLayerChoice(values, nLayers);
    chips.draw([tokens]);
    chips.mark(0, values.n === undefined ? k : -1);
    if (!byId("neighbors-chips").querySelector('[tabindex="0"]'))
      byId("neighbors-chips").querySelector(".chip")?.setAttribute("tabindex", "0");
    const focused = document.activeElement;
    const hadFocus =
      byId("neighbors-hits").contains(focused) || byId("neighbors-query").contains(focused);
    showQuery(result.query, values);
    const hits = result.neighbors[selection.name];
    byId("neighbors-hits").replaceChildren(...(hits ?? []).map((hit) => resultItem(hit, app)));
    const word = result.query.tokens[result.query.position];
    const searched = result.searched_tokens.toLocaleString("en");
    const summary = byId("neighbors-finding");
    if (!hits) {
      const available = Object.keys(result.neighbors).join(", ");
      summary.textContent =
        `The index has no vectors for ${selection.label}; it contains ${available}.`;
    } else if (!hits.length) {
      summary.textContent =
        `No results for “${word}” among ${searched} tokens with these filters. ` +
        "Try “Any word”.";
    } else {
      summary.textContent =
        `Nearest neighbors of “${word}” in ${selection.label}, among ${searched} tokens of ` +
        `${index.inputs.join(", ")}. Click a result to search from there.`;
    }
    drawStatic(result.static, word);
    // The focused element was removed, so move the focus to the back button or the words.
    if (hadFocus)
      (
        byId("neighbors-query").querySelector("button") ??
        byId("neighbors-chips").querySelector('[tabindex="0"]')
      )?.focus();
  }

  /** Show the current query if it is a token of the text. */
  function showQuery(query, values) {
    const box = byId("neighbors-query");
    box.hidden = values.n === undefined;
    box.replaceChildren();
    if (box.hidden) return;
    box.replaceChildren(
      "Query from the text: ",
      ...quote(query.tokens, query.position, CONTEXT),
      " ",
      el(
        "button",
        { type: "button", class: "quiet", on: { click: () => app.set({ n: null }) } },
        "Back to your sentence",
      ),
    );
  }

  function drawStatic(list, word) {
    const title = app.service.static ? `Static vectors (${app.service.static})` : "Static vectors";
    const content = !app.service.static
      ? [
          el(
            "p",
            {},
            "Static vectors have one list of neighbors per word. " +
              "Start the service with --static glove-6b-50d to show this list.",
          ),
        ]
      : list
        ? [
            el(
              "ol",
              { class: "neighbor-list" },
              ...list.map(({ word: w, score }) =>
                el(
                  "li",
                  {},
                  el("span", {}, w),
                  el("span", { class: "score" }, formatNumber(score)),
                ),
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
      showLayers(parseLayerChoice(values, nLayers));
      const words = ["any", "same", "other"].includes(values.f) ? values.f : "any";
      const distinct = values.d === "word" ? "word" : "sentence";
      showWords(words);
      showDistinct(distinct);
      const input = x.replace(/\s+/g, " ").trim();
      if (!input)
        return runner.cancel("Enter a sentence and select a word in it, or select an example.");
      const selection = parseLayerChoice(values, nLayers);
      if (hasAllLayers && isEmptyMix(selection))
        return runner.cancel("All weights are 0. Increase at least one of them.");
      const shares = hasAllLayers && selection.mode === "mix" ? selection.shares : null;
      const key = JSON.stringify([input, values.t, values.w, values.n, words, distinct, shares]);
      const work = async (signal) => {
        const tokens = await tokenize(input, model.id, signal);
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
          static: app.service.static !== null,
        };
        if (shares !== null) {
          Object.assign(body, { layer: "mix", mix: shares });
          await pause(DELAY, signal);
        }
        return { tokens, k, result: (await request("v1/neighbors", body, signal)).results[0] };
      };
      runner.run(key, work, (response) => draw(response, app.values()));
    },
  };
}

function chosenToken(values, tokens) {
  const k = Number(values.t ?? -1);
  if (tokens[k] !== undefined) return k;
  const word = values.w ?? (values.x === undefined ? NEIGHBORS[0].word : null);
  const match = tokens.findIndex((token) => token.toLowerCase() === word);
  return match >= 0 ? match : longest(tokens);
}

const longest = (tokens) =>
  tokens.reduce((best, token, k) => (token.length > tokens[best].length ? k : best), 0);

function resultItem(hit, app) {
  const score = el("span", { class: "score" }, formatNumber(hit.score));
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
      el("span", { class: "in-sentence" }, ...quote(hit.tokens, hit.position, CONTEXT)),
      el("small", { class: "where" }, hit.where),
    ),
  );
}
