// Start: one word in three sentences, twice in one sense and once in another.

import { radioGroup, byId, el, quote } from "./dom.js";
import { TRIPLES } from "./examples.js";
import { formatNumber, shade } from "./scale.js";
import { RequestRunner, request } from "./service.js";

export function start(app) {
  const runner = new RequestRunner(byId("start-result"), byId("start-notice"));
  const options = TRIPLES.map(([word]) => [word, word]);
  byId("start-dim").textContent = app.model.dim.toLocaleString("en");
  const showWord = radioGroup(byId("start-words"), options, (w) => app.set({ w }));

  return {
    show(values) {
      const triple = TRIPLES.find(([word]) => word === values.w) ?? TRIPLES[0];
      const [word, ...sentences] = triple;
      showWord(word);
      const body = { sentences, static: app.service.static !== null, model: app.model.id };
      runner.run(
        JSON.stringify(body),
        (signal) => request("v1/similarity", body, signal),
        (response) => draw(word, response, app),
      );
    },
  };
}

function draw(word, response, app) {
  const positions = response.sentences.map(({ tokens }) =>
    tokens.findIndex((t) => t.toLowerCase() === word),
  );
  byId("start-uses").replaceChildren(
    ...response.sentences.map(({ tokens }, i) => el("li", {}, ...quote(tokens, positions[i]))),
  );
  const indices = positions.map((k, i) => response.starts[i] + k);
  const top = `layer ${app.model.n_layers - 1}`;
  const rows = [
    ["static", "Static"],
    [top, "ELMo"],
  ];
  const cosineAt = (name, b) => {
    const layer =
      response.layers.find((s) => s.name === name) ??
      response.layers.find((s) => s.name === "layer 0");
    return layer.matrix[indices[0]][indices[b]];
  };
  const header = el(
    "tr",
    {},
    el("th", {}),
    el("th", { scope: "col" }, "1 and 2"),
    el("th", { scope: "col" }, "1 and 3"),
  );
  const body = rows.map(([name, label]) =>
    el("tr", {}, el("th", { scope: "row" }, label), ...[1, 2].map((b) => cell(cosineAt(name, b)))),
  );
  byId("start-pairs").replaceChildren(
    el(
      "table",
      { class: "data-table" },
      el("caption", {}, `Cosine similarity of “${word}”`),
      el("thead", {}, header),
      el("tbody", {}, ...body),
    ),
  );
  const [near, far] = [cosineAt(top, 1), cosineAt(top, 2)];
  byId("start-finding").textContent =
    `Static vectors represent all three uses of “${word}” with the same vector. ELMo ` +
    "computes a vector for each use. Uses 1 and 2, which have the same sense, have a cosine of " +
    `${formatNumber(near)}; ` +
    `uses 1 and 3 have a cosine of ${formatNumber(far)}.`;
}

function cell(value) {
  const td = el("td", {}, formatNumber(value));
  shade(td, value);
  return td;
}
