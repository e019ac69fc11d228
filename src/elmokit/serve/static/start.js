// Start: one word in three sentences, twice in one sense and once in another.

import { choice, byId, el, quote } from "./dom.js";
import { TRIPLES } from "./examples.js";
import { number, shade } from "./scale.js";
import { RequestRunner, ask } from "./service.js";

export function start(app) {
  const runner = new RequestRunner(byId("start-result"), byId("start-notice"));
  const words = TRIPLES.map(([word]) => [word, word]);
  byId("start-dim").textContent = app.model.dim.toLocaleString("en");
  const showWord = choice(byId("start-words"), words, (w) => app.set({ w }));

  return {
    show(values) {
      const triple = TRIPLES.find(([word]) => word === values.w) ?? TRIPLES[0];
      const [word, ...sentences] = triple;
      showWord(word);
      const body = { sentences, static: app.served.static !== null, model: app.model.id };
      runner.run(
        JSON.stringify(body),
        (signal) => ask("v1/similarity", body, signal),
        (answer) => draw(word, answer, app),
      );
    },
  };
}

function draw(word, answer, app) {
  const places = answer.sentences.map(({ tokens }) =>
    tokens.findIndex((t) => t.toLowerCase() === word),
  );
  byId("start-uses").replaceChildren(
    ...answer.sentences.map(({ tokens }, i) => el("li", {}, ...quote(tokens, places[i]))),
  );
  const at = places.map((k, i) => answer.starts[i] + k);
  const top = `layer ${app.model.n_layers - 1}`;
  const rows = [
    ["static", "Static"],
    [top, "ELMo"],
  ];
  const found = (name, b) => {
    const space =
      answer.layers.find((s) => s.name === name) ?? answer.layers.find((s) => s.name === "layer 0");
    return space.matrix[at[0]][at[b]];
  };
  const head = el(
    "tr",
    {},
    el("th", {}),
    el("th", { scope: "col" }, "1 and 2"),
    el("th", { scope: "col" }, "1 and 3"),
  );
  const body = rows.map(([name, words]) =>
    el("tr", {}, el("th", { scope: "row" }, words), ...[1, 2].map((b) => cell(found(name, b)))),
  );
  byId("start-pairs").replaceChildren(
    el(
      "table",
      { class: "figures" },
      el("caption", {}, `Cosine similarity of “${word}”`),
      el("thead", {}, head),
      el("tbody", {}, ...body),
    ),
  );
  const [near, far] = [found(top, 1), found(top, 2)];
  byId("start-finding").textContent =
    `Static vectors represent all three uses of “${word}” by the same vector. ELMo computes ` +
    `three. Uses 1 and 2, which have the same sense, have a cosine of ${number(near)}; ` +
    `uses 1 and 3 only ${number(far)}.`;
}

function cell(value) {
  const made = el("td", {}, number(value));
  shade(made, value);
  return made;
}
