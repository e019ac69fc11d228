// Neighbours: the uses in a whole text that are nearest to a word in its sentence.

import { Chips } from "./chips.js";
import { byId, choice, el, examples, field, quote } from "./dom.js";
import { NEIGHBOURS } from "./examples.js";
import { layerControl, lookedAt, nothing } from "./layers.js";
import { number, shade } from "./scale.js";
import { Asker, ask, pause, tokensOf } from "./service.js";

const WANTED = 10;
const AROUND = 12; // tokens shown on each side of a hit
const REST = 0.3; // seconds that the sliders of a mix must rest: a search reads the whole index

export function neighbours(app) {
  const index = app.served.index;
  byId("neighbours-help").hidden = index !== null;
  byId("neighbours-body").hidden = index === null;
  if (index === null) return { show() {} };
  const model = app.served.data.find(({ id }) => id === index.model);
  const count = model.n_layers;
  const asker = new Asker(byId("neighbours-result"), byId("neighbours-notice"));
  const text = field(byId("neighbours-text"), (x) => app.set({ x, t: null, n: null }, "text"));
  examples(byId("neighbours-examples"), NEIGHBOURS, ({ text: x, word: w }) =>
    app.set({ x, w, t: null, n: null }),
  );
  const chips = new Chips(
    byId("neighbours-chips"),
    (_, k, join) => app.set({ t: k, n: null, w: null }, join),
    "The words of your sentence; choose one",
  );
  // Of stored layers every mix can be searched exactly; of others there is nothing to mix.
  const whole = index.stored_layers.length === count;
  const why = whole
    ? null
    : `This index holds ${index.layers.join(", ")}. A mix needs the vectors of all layers: make ` +
      "the index again without --layer.";
  const showLayers = layerControl(
    byId("neighbours-layers"),
    count,
    (changes, join) => app.set(changes, join),
    { why },
  );
  const showWords = choice(
    byId("neighbours-words"),
    [
      ["any", "Any word"],
      ["same", "The same word"],
      ["other", "Other words"],
    ],
    (f) => app.set({ f }),
  );
  const showDistinct = choice(
    byId("neighbours-distinct"),
    [
      ["sentence", "Each sentence once"],
      ["word", "Each word once"],
    ],
    (d) => app.set({ d }),
  );

  function draw({ tokens, k, result }, values) {
    const seen = lookedAt(values, count);
    chips.draw([tokens]);
    chips.mark(0, values.n === undefined ? k : -1);
    if (!byId("neighbours-chips").querySelector('[tabindex="0"]'))
      byId("neighbours-chips").querySelector(".chip")?.setAttribute("tabindex", "0");
    const focused = document.activeElement;
    const inside =
      byId("neighbours-hits").contains(focused) || byId("neighbours-walk").contains(focused);
    walk(result.query, values);
    const hits = result.neighbors[seen.name];
    byId("neighbours-hits").replaceChildren(...(hits ?? []).map((hit) => shownHit(hit, app)));
    const word = result.query.tokens[result.query.position];
    const searched = result.searched_tokens.toLocaleString("en");
    const told = byId("neighbours-finding");
    if (!hits) {
      const there = Object.keys(result.neighbors).join(", ");
      told.textContent = `The index has no vectors of ${seen.words}; it has ${there}.`;
    } else if (!hits.length) {
      told.textContent =
        `Nothing found for “${word}” among ${searched} tokens with these choices. ` +
        "Allow any word.";
    } else {
      told.textContent =
        `Nearest to “${word}” by ${seen.words}, among ${searched} tokens of ` +
        `${index.inputs.join(", ")}. Click one to walk on from there.`;
    }
    still(result.static, word);
    // What had the focus is gone: go on where the way back is, or where one chooses.
    if (inside)
      (
        byId("neighbours-walk").querySelector("button") ??
        byId("neighbours-chips").querySelector('[tabindex="0"]')
      )?.focus();
  }

  /** Say from where we look, if we walked into the text. */
  function walk(query, values) {
    const box = byId("neighbours-walk");
    box.hidden = values.n === undefined;
    box.replaceChildren();
    if (box.hidden) return;
    box.replaceChildren(
      "From the text: ",
      ...quote(query.tokens, query.position, AROUND),
      " ",
      el(
        "button",
        { type: "button", class: "quiet", on: { click: () => app.set({ n: null }) } },
        "Back to your sentence",
      ),
    );
  }

  function still(list, word) {
    const title = app.served.static ? `In a table (${app.served.static})` : "In a table";
    const said = !app.served.static
      ? [
          el(
            "p",
            {},
            "A static table has one list of neighbours for each word. " +
              "Start with --static glove-6b-50d to see it here.",
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
            el("p", {}, `The same list for “${word}” in every sentence.`),
          ]
        : [el("p", {}, `The table does not have “${word}” at all.`)];
    byId("neighbours-static").replaceChildren(el("h3", {}, title), ...said);
  }

  return {
    show(values) {
      const x = values.x ?? NEIGHBOURS[0].text;
      text.show(x);
      showLayers(lookedAt(values, count));
      const words = ["any", "same", "other"].includes(values.f) ? values.f : "any";
      const distinct = values.d === "word" ? "word" : "sentence";
      showWords(words);
      showDistinct(distinct);
      const given = x.replace(/\s+/g, " ").trim();
      if (!given)
        return asker.rest("Type a sentence, then choose a word in it. Or try an example.");
      const seen = lookedAt(values, count);
      if (whole && nothing(seen))
        return asker.rest("All weights are 0: there is nothing to search for. Move one up.");
      const shares = whole && seen.mode === "mix" ? seen.shares : null;
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
          k: WANTED,
          words,
          distinct,
          static: app.served.static !== null,
        };
        if (shares !== null) {
          Object.assign(body, { layer: "mix", mix: shares });
          await pause(REST, signal);
        }
        return { tokens, k, result: (await ask("v1/neighbors", body, signal)).results[0] };
      };
      asker.run(key, work, (answer) => draw(answer, app.values()));
    },
  };
}

function chosenToken(values, tokens) {
  const k = Number(values.t ?? -1);
  if (tokens[k] !== undefined) return k;
  const word = values.w ?? (values.x === undefined ? NEIGHBOURS[0].word : null);
  const found = tokens.findIndex((token) => token.toLowerCase() === word);
  return found >= 0 ? found : longest(tokens);
}

const longest = (tokens) =>
  tokens.reduce((best, token, k) => (token.length > tokens[best].length ? k : best), 0);

function shownHit(hit, app) {
  const score = el("span", { class: "score" }, number(hit.score));
  shade(score, hit.score);
  return el(
    "li",
    {},
    el(
      "button",
      {
        type: "button",
        title: "Walk on from here",
        on: { click: () => app.set({ n: hit.token }) },
      },
      score,
      el("span", { class: "said-in" }, ...quote(hit.tokens, hit.position, AROUND)),
      el("small", { class: "where" }, hit.where),
    ),
  );
}
