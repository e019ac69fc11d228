// Sentences: similarity of every token to the selected one, by layer or for a custom mix.

import { Chips } from "./chips.js";
import { byId, el, examples, field, lines } from "./dom.js";
import { SENTENCES } from "./examples.js";
import { layerControl, parseLayerChoice } from "./layers.js";
import { mixed, number, shade, short } from "./scale.js";
import { RequestRunner, ask } from "./service.js";

const MAX_ROWS = 8; // rows of the table before "Show all"
const MAX_COLUMNS_BESIDE = 9; // columns of a heat map that fits next to the table
const MAX_COLUMNS_WITH_NUMBERS = 16; // columns of a heat map with space for numbers

export function sentences(app) {
  const count = app.model.n_layers;
  const runner = new RequestRunner(byId("sentences-result"), byId("sentences-notice"));
  const text = field(byId("sentences-text"), (x) => app.set({ x, p: null }, "text"));
  examples(byId("sentences-examples"), SENTENCES, ({ text: x, word }) =>
    app.set({ x, t: null, w: word, p: null }),
  );
  const showLayers = layerControl(
    byId("sentences-layers"),
    count,
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
  function mixOf(answer, shares) {
    const key = shares.join();
    if (cachedMix.answer !== answer || cachedMix.key !== key)
      cachedMix = { answer, key, value: mixed(answer.gram, shares) };
    return cachedMix.value;
  }

  function draw(answer, values) {
    const seen = parseLayerChoice(values, count);
    const tokens = answer.sentences.map((s) => s.tokens);
    const at = (i, k) => answer.starts[i] + k;
    const [i, k] = chosenToken(values, tokens);
    const mix = seen.mode === "mix" ? mixOf(answer, seen.shares) : null;
    const matrix = mix?.matrix ?? answer.layers.find((s) => s.name === seen.name).matrix;
    const row = matrix[at(i, k)];
    chips.draw(tokens);
    chips.mark(i, k, (j, m) => row[at(j, m)]);
    showLayers(seen, mix ? seen.gamma * mix.lengths[at(i, k)] : null);
    const compared = mix ? [...answer.layers, { name: "custom mix", matrix }] : answer.layers;
    const chosen = { i, k, word: tokens[i][k], tokens, at, row };
    finding(chosen, compared);
    table(chosen, compared, seen, Boolean(values.all));
    heat(chosen, matrix, seen, values);
  }

  /** Compare the selected word with another occurrence of it. */
  function finding({ i, k, word, tokens, at }, compared) {
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
    const cosine = (name) => compared.find((s) => s.name === name)?.matrix[at(i, k)][at(j, m)];
    const path = Array.from({ length: count }, (_, layer) => number(cosine(`layer ${layer}`)));
    const table = cosine("static");
    summary.textContent =
      `“${word}” in sentence ${i + 1} and “${tokens[j][m]}” in sentence ${j + 1}: ` +
      `cosine ${path.join(" → ")} in layers 0 to ${count - 1}. ` +
      (typeof table === "number"
        ? `With static vectors (${app.served.static}), it is ${number(table)} in all sentences.`
        : "With static vectors, it would be 1.00 in all sentences.");
  }

  function table({ i, k, word, tokens, at, row }, compared, seen, all) {
    byId("sentences-chosen").textContent = `${word} (sentence ${i + 1})`;
    const others = tokens
      .flatMap((s, j) => s.map((t, m) => ({ t, j, m })))
      .filter(({ j, m }) => j !== i || m !== k);
    others.sort((a, b) => (row[at(b.j, b.m)] ?? -2) - (row[at(a.j, a.m)] ?? -2));
    const shown = all ? others : others.slice(0, MAX_ROWS);
    const looked = seen.mode === "mix" ? "custom mix" : seen.name;
    const head = compared.map(({ name }) =>
      el(
        "th",
        { scope: "col", class: name === looked ? "looked" : null },
        name,
      ),
    );
    const rows = shown.map(({ t, j, m }) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, t, tokens.length > 1 ? el("small", {}, ` ${j + 1}`) : null),
        ...compared.map(({ name, matrix }) =>
          cell(matrix[at(i, k)][at(j, m)], number, name === looked),
        ),
      ),
    );
    byId("sentences-table").replaceChildren(
      el("thead", {}, el("tr", {}, el("th", {}, el("span", { class: "unseen" }, "word")), ...head)),
      el("tbody", {}, ...rows),
    );
    more.hidden = others.length <= MAX_ROWS;
    more.textContent = all ? "Show fewer" : `Show all ${others.length} words`;
  }

  let cells = { key: null, list: [] };
  /** Shade the heat map; cells are rebuilt only for different sentences. */
  function heat({ tokens, at }, matrix, seen, values) {
    const [a, b] = pairOf(values, tokens.length);
    pair.show(a, b, tokens.length, seen.words);
    const key = JSON.stringify([tokens[a], tokens[b]]);
    if (cells.key !== key) cells = { key, list: heatCells(tokens[a], tokens[b]) };
    byId("sentences-heat")
      .closest(".halves")
      .classList.toggle("long", tokens[b].length > MAX_COLUMNS_BESIDE);
    const small = tokens[b].length <= MAX_COLUMNS_WITH_NUMBERS;
    for (const { made, k, m, words } of cells.list) {
      const value = matrix[at(a, k)][at(b, m)];
      shade(made, value);
      made.title = `${words}: ${number(value)}`;
      made.textContent = small ? short(value) : "";
    }
  }

  return {
    show(values) {
      const x = values.x ?? SENTENCES[0].text;
      text.show(x);
      showLayers(parseLayerChoice(values, count));
      const given = lines(x);
      if (!given.length)
        return runner.cancel("Enter two sentences that share a word, or select an example.");
      const body = {
        sentences: given,
        static: app.served.static !== null,
        gram: true,
        model: app.model.id,
      };
      runner.run(
        JSON.stringify(body),
        (signal) => ask("v1/similarity", body, signal),
        (answer) => {
          if (answer.usage.tokens === 0)
            return runner.cancel("The text contains no words. Enter a sentence.");
          runner.notify(answer.warnings.join(" ") || null);
          runner.result.classList.remove("stale");
          draw(answer, app.values());
        },
      );
    },
  };
}

/** The selected token: from the URL, or the word of an example, or a repeated word. */
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

function cell(value, written, looked) {
  const made = el("td", { class: looked ? "looked" : null }, written(value));
  shade(made, value);
  return made;
}

function heatCells(rows, columns) {
  const list = [];
  const body = rows.map((t, k) => {
    const row = el("tr", {}, el("th", { scope: "row" }, t));
    columns.forEach((u, m) => {
      const made = el("td");
      list.push({ made, k, m, words: `${t} – ${u}` });
      row.append(made);
    });
    return row;
  });
  const head = columns.map((t) => el("th", { scope: "col" }, el("span", {}, t)));
  byId("sentences-heat").replaceChildren(
    el("thead", {}, el("tr", {}, el("td"), ...head)),
    el("tbody", {}, ...body),
  );
  return list;
}

/** Controls for the two sentences of the heat map. */
class Pair {
  constructor(box, changed) {
    const update = () => changed(`${this.rows.value}.${this.columns.value}`);
    this.rows = el("select", { "aria-label": "Sentence in the rows", on: { change: update } });
    this.columns = el("select", { "aria-label": "Sentence in the columns", on: { change: update } });
    this.several = el("span", {}, "Rows ", this.rows, " Columns ", this.columns);
    this.alone = el("span", {}, "The sentence compared with itself");
    this.words = el("span");
    box.replaceChildren(this.several, this.alone, this.words);
  }

  show(a, b, n, words) {
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
    this.alone.hidden = n > 1;
    this.words.textContent = `, ${words}`;
  }
}
