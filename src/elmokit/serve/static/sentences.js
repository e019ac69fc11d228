// Sentences: similarity of every token to the selected one, by layer or for a custom mix.

import { Chips } from "./chips.js";
import { byId, el, examples, field, splitLines } from "./dom.js";
import { SENTENCES } from "./examples.js";
import { layerControl, parseLayerChoice } from "./layers.js";
import { mixCosines, formatNumber, shade, formatShort } from "./scale.js";
import { RequestRunner, request } from "./service.js";

const MAX_ROWS = 8; // rows of the table before "Show all"
const MAX_COLUMNS_NEXT_TO_TABLE = 9; // columns of a heat map that fits next to the table
const MAX_COLUMNS_WITH_NUMBERS = 16; // columns of a heat map with space for numbers

export function sentences(app) {
  const nLayers = app.model.n_layers;
  const runner = new RequestRunner(byId("sentences-result"), byId("sentences-notice"));
  const text = field(byId("sentences-text"), (x) => app.set({ x, p: null }, "text"));
  examples(byId("sentences-examples"), SENTENCES, ({ text: x, word }) =>
    app.set({ x, t: null, w: word, p: null }),
  );
  const showLayers = layerControl(
    byId("sentences-layers"),
    nLayers,
    (changes, join) => app.set(changes, join),
    { scale: true },
  );
  const chips = new Chips(byId("sentences-chips"), (i, k, join) =>
    app.set({ t: `${i}.${k}`, w: null }, join),
  );
  const more = byId("sentences-more");
  more.addEventListener("click", () => app.set({ all: app.values().all ? null : 1 }));

  const pair = new Pair(byId("sentences-pair"), (p) => app.set({ p }));

  let cachedMix = { key: null, value: null };
  function mixOf(response, shares) {
    const key = shares.join();
    if (cachedMix.response !== response || cachedMix.key !== key)
      cachedMix = { response, key, value: mixCosines(response.gram, shares) };
    return cachedMix.value;
  }

  function draw(response, values) {
    const selection = parseLayerChoice(values, nLayers);
    const tokens = response.sentences.map((s) => s.tokens);
    const flatIndex = (i, k) => response.starts[i] + k;
    const [i, k] = chosenToken(values, tokens);
    const mix = selection.mode === "mix" ? mixOf(response, selection.shares) : null;
    const matrix = mix?.matrix ?? response.layers.find((s) => s.name === selection.name).matrix;
    const row = matrix[flatIndex(i, k)];
    chips.draw(tokens);
    chips.mark(i, k, (j, m) => row[flatIndex(j, m)]);
    showLayers(selection, mix ? selection.gamma * mix.lengths[flatIndex(i, k)] : null);
    const compared = mix ? [...response.layers, { name: "custom mix", matrix }] : response.layers;
    const selected = { i, k, word: tokens[i][k], tokens, flatIndex, row };
    finding(selected, compared);
    table(selected, compared, selection, Boolean(values.all));
    heat(selected, matrix, selection, values);
  }

  /** Compare the selected word with another occurrence of it. */
  function finding({ i, k, word, tokens, flatIndex }, compared) {
    const same = tokens
      .flatMap((s, j) => s.map((t, m) => [t, j, m]))
      .filter(([t, j, m]) => t.toLowerCase() === word.toLowerCase() && (j !== i || m !== k));
    const summary = byId("sentences-finding");
    if (!same.length) {
      summary.textContent =
        `“${word}” occurs only once. ` +
        "Select a word that occurs in two sentences to see the effect of context.";
      return;
    }
    const [, j, m] = same[0];
    const cosine = (name) =>
      compared.find((s) => s.name === name)?.matrix[flatIndex(i, k)][flatIndex(j, m)];
    const cosines = Array.from({ length: nLayers }, (_, layer) =>
      formatNumber(cosine(`layer ${layer}`)),
    );
    const staticCosine = cosine("static");
    summary.textContent =
      `“${word}” in sentence ${i + 1} and “${tokens[j][m]}” in sentence ${j + 1}: ` +
      `cosine ${cosines.join(" → ")} in layers 0 to ${nLayers - 1}. ` +
      (typeof staticCosine === "number"
        ? `With static vectors (${app.service.static}), ` +
          `it is ${formatNumber(staticCosine)} in all sentences.`
        : "With static vectors, it would be 1.00 in all sentences.");
  }

  function table({ i, k, word, tokens, flatIndex, row }, compared, selection, all) {
    byId("sentences-selected").textContent = `${word} (sentence ${i + 1})`;
    const others = tokens
      .flatMap((s, j) => s.map((t, m) => ({ t, j, m })))
      .filter(({ j, m }) => j !== i || m !== k);
    others.sort((a, b) => (row[flatIndex(b.j, b.m)] ?? -2) - (row[flatIndex(a.j, a.m)] ?? -2));
    const shown = all ? others : others.slice(0, MAX_ROWS);
    const currentColumn = selection.mode === "mix" ? "custom mix" : selection.name;
    const header = compared.map(({ name }) =>
      el(
        "th",
        { scope: "col", class: name === currentColumn ? "current" : null },
        name,
      ),
    );
    const rows = shown.map(({ t, j, m }) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, t, tokens.length > 1 ? el("small", {}, ` ${j + 1}`) : null),
        ...compared.map(({ name, matrix }) =>
          cell(matrix[flatIndex(i, k)][flatIndex(j, m)], formatNumber, name === currentColumn),
        ),
      ),
    );
    byId("sentences-table").replaceChildren(
      el(
        "thead",
        {},
        el("tr", {}, el("th", {}, el("span", { class: "visually-hidden" }, "word")), ...header),
      ),
      el("tbody", {}, ...rows),
    );
    more.hidden = others.length <= MAX_ROWS;
    more.textContent = all ? "Show fewer" : `Show all ${others.length} words`;
  }

  let cells = { key: null, list: [] };
  /** Shade the heat map; its cells are rebuilt only if the sentences have changed. */
  function heat({ tokens, flatIndex }, matrix, selection, values) {
    const [a, b] = pairOf(values, tokens.length);
    pair.show(a, b, tokens.length, selection.label);
    const key = JSON.stringify([tokens[a], tokens[b]]);
    if (cells.key !== key) cells = { key, list: heatCells(tokens[a], tokens[b]) };
    byId("sentences-heat")
      .closest(".two-columns")
      .classList.toggle("long", tokens[b].length > MAX_COLUMNS_NEXT_TO_TABLE);
    const showNumbers = tokens[b].length <= MAX_COLUMNS_WITH_NUMBERS;
    for (const { td, k, m, label } of cells.list) {
      const value = matrix[flatIndex(a, k)][flatIndex(b, m)];
      shade(td, value);
      td.title = `${label}: ${formatNumber(value)}`;
      td.textContent = showNumbers ? formatShort(value) : "";
    }
  }

  return {
    show(values) {
      const x = values.x ?? SENTENCES[0].text;
      text.show(x);
      showLayers(parseLayerChoice(values, nLayers));
      const inputs = splitLines(x);
      if (!inputs.length)
        return runner.cancel("Enter two sentences that share a word, or select an example.");
      const body = {
        sentences: inputs,
        static: app.service.static !== null,
        gram: true,
        model: app.model.id,
      };
      runner.run(
        JSON.stringify(body),
        (signal) => request("v1/similarity", body, signal),
        (response) => {
          if (response.usage.tokens === 0)
            return runner.cancel("The text contains no words. Enter a sentence.");
          runner.notify(response.warnings.join(" ") || null);
          runner.result.classList.remove("stale");
          draw(response, app.values());
        },
      );
    },
  };
}

/** The selected token: from the URL, the word of an example, or a word that is repeated. */
function chosenToken(values, tokens) {
  const [i, k] = (values.t ?? "").split(".").map(Number);
  if (tokens[i]?.[k] !== undefined) return [i, k];
  const folded = tokens.map((s) => s.map((t) => t.toLowerCase()));
  const word = values.w ?? (values.x === undefined ? SENTENCES[0].word : sharedWord(folded));
  for (const [j, sentence] of folded.entries())
    if (sentence.includes(word)) return [j, sentence.indexOf(word)];
  return [folded.findIndex((s) => s.length), 0];
}

/** The longest word that several sentences share. */
function sharedWord(folded) {
  const shared = [...new Set(folded.flat())].filter(
    (word) => folded.filter((s) => s.includes(word)).length > 1,
  );
  return shared.sort((a, b) => b.length - a.length)[0];
}

function pairOf(values, n) {
  const [a, b] = (values.p ?? "").split(".").map(Number);
  return [a >= 0 && a < n ? a : 0, b >= 0 && b < n ? b : Math.min(1, n - 1)];
}

function cell(value, format, isCurrent) {
  const td = el("td", { class: isCurrent ? "current" : null }, format(value));
  shade(td, value);
  return td;
}

function heatCells(rows, columns) {
  const list = [];
  const body = rows.map((t, k) => {
    const row = el("tr", {}, el("th", { scope: "row" }, t));
    columns.forEach((u, m) => {
      const td = el("td");
      list.push({ td, k, m, label: `${t} – ${u}` });
      row.append(td);
    });
    return row;
  });
  const header = columns.map((t) => el("th", { scope: "col" }, el("span", {}, t)));
  byId("sentences-heat").replaceChildren(
    el("thead", {}, el("tr", {}, el("td"), ...header)),
    el("tbody", {}, ...body),
  );
  return list;
}

/** Controls for the two sentences of the heat map. */
class Pair {
  constructor(box, onChange) {
    const update = () => onChange(`${this.rows.value}.${this.columns.value}`);
    this.rows = el("select", { "aria-label": "Sentence in the rows", on: { change: update } });
    this.columns = el("select", { "aria-label": "Sentence in the columns", on: { change: update } });
    this.several = el("span", {}, "Rows ", this.rows, " Columns ", this.columns);
    this.single = el("span", {}, "The sentence compared with itself");
    this.label = el("span");
    box.replaceChildren(this.several, this.single, this.label);
  }

  show(a, b, n, label) {
    for (const [select, now] of [
      [this.rows, a],
      [this.columns, b],
    ]) {
      if (select.length !== n)
        select.replaceChildren(
          ...Array.from({ length: n }, (_, i) => el("option", { value: i }, `sentence ${i + 1}`)),
        );
      select.value = now;
    }
    this.several.hidden = n < 2;
    this.single.hidden = n > 1;
    this.label.textContent = `, ${label}`;
  }
}
