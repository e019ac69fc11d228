// Tasks: what trained models make of a text, and the layers they learned to use.

import { byId, choice, el, examples, field } from "./dom.js";
import { drawing } from "./drawings.js";
import { TASKS } from "./examples.js";
import { number } from "./scale.js";
import { Asker, ask } from "./service.js";

const FIELDS = {
  snli: ["The first sentence", "Does this follow from it?"],
  squad: ["Your question", "The passage to answer it from"],
};
const WORDS = {
  ner: "Finds names and says of what kind they are.",
  sst5: "Says how a sentence judges, from very bad to very good.",
  snli: "Says whether a sentence follows from another, contradicts it, or neither.",
  squad: "Finds the answer to a question in a passage.",
  srl: "Says who did what to whom, when and where, for every verb.",
  coref: "Finds the words that mean the same person or thing.",
};

export function tasks(app) {
  const names = app.served.tasks;
  byId("tasks-help").hidden = names.length > 0;
  byId("tasks-body").hidden = names.length === 0;
  if (!names.length) return { show() {} };
  const asker = new Asker(byId("tasks-result"), byId("tasks-notice"));
  const text = field(byId("tasks-text"), (x) => app.set({ x }, "text"));
  const other = field(byId("tasks-other"), (y) => app.set({ y }, "other"));
  const showName = choice(
    byId("tasks-names"),
    names.map((name) => [name, name]),
    (k) => app.set({ k, x: null, y: null }),
  );
  let cards = null;
  let shown = null;

  async function show(values) {
    cards ??= (await ask("v1/tasks")).tasks;
    if (app.values() !== values) return;
    const card = cards.find(({ name }) => name === values.k) ?? cards[0];
    const kind = card.task;
    const tries = TASKS[kind] ?? [];
    const two = FIELDS[kind];
    showName(card.name);
    byId("tasks-about").textContent = [WORDS[kind] ?? card.title, scoreOf(card)]
      .filter(Boolean)
      .join(" ");
    byId("tasks-text-label").textContent = two ? two[0] : "Your text";
    byId("tasks-other-label").textContent = two ? two[1] : "";
    byId("tasks-second").hidden = !two;
    if (shown !== card)
      examples(byId("tasks-examples"), tries, ({ text: x, other: y }) => app.set({ x, y }));
    if (shown !== card) mixes(cards, card);
    shown = card;
    const x = values.x ?? tries[0]?.text ?? "";
    const y = values.y ?? tries[0]?.other ?? "";
    text.show(x);
    other.show(y);
    if (!x.trim() || (two && !y.trim()))
      return asker.rest(
        two ? "Fill both fields, or try an example." : "Type a text, or try an example.",
      );
    const body = { examples: [exampleOf(kind, x, y)] };
    asker.run(
      JSON.stringify([card.name, body]),
      (signal) => ask(`v1/tasks/${encodeURIComponent(card.name)}`, body, signal),
      (answer) => {
        asker.tell(answer.warnings.join(" ") || null);
        asker.result.classList.remove("stale");
        const results = answer.results[0];
        if (!results.length) return asker.rest("There are no words in this text.");
        byId("tasks-result").replaceChildren(
          ...results.flatMap((result) => drawing(kind, result, { other: y })),
        );
      },
    );
  }

  return {
    show(values) {
      show(values).catch((error) => asker.rest(error.message));
    },
  };
}

function exampleOf(kind, x, y) {
  const line = (text) => text.replace(/\s+/g, " ").trim();
  if (kind === "snli") return { sentence1: line(x), sentence2: line(y) };
  if (kind === "squad") return { question: line(x), context: y };
  return line(x);
}

function scoreOf(card) {
  const [part, scores] = Object.entries(card.scores).pop() ?? [];
  const value = scores?.[card.metric];
  const named =
    { f1: " F1", accuracy: "% accuracy", conll: " F1 (the mean of three measures)" }[card.metric] ??
    ` ${card.metric}`;
  const data = { dev: "development data", test: "test data" }[part];
  return typeof value === "number" ? `It reached ${value.toFixed(1)}${named} on its ${data}.` : "";
}

/** Draw the weights that each task learned. */
function mixes(cards, chosen) {
  const rows = cards.flatMap((card) =>
    Object.entries(card.mixes).map(([place, mix]) => weights(card, place, mix, card === chosen)),
  );
  const none = el(
    "p",
    { class: "quiet-words" },
    "No loaded task uses ELMo, so there are no weights.",
  );
  byId("tasks-mixes").replaceChildren(...(rows.length ? rows : [none]));
}

function weights(card, place, { s, gamma }, chosen) {
  const most = Math.max(...s);
  const bars = s.map((share, j) => {
    const bar = el("i", { class: "bar" });
    bar.style.setProperty("--p", share.toFixed(4));
    return el(
      "li",
      { class: share === most ? "most" : null },
      el("span", { class: "word" }, "s", el("sub", {}, String(j))),
      el("span", { class: "score" }, number(share)),
      bar,
    );
  });
  const where = { input: "at the input", output: "at the output" }[place] ?? place;
  return el(
    "figure",
    { class: chosen ? "mix chosen" : "mix" },
    el(
      "figcaption",
      {},
      el("b", {}, card.name),
      ` ${where}`,
      el("span", { class: "gamma" }, `γ = ${number(gamma)}`),
    ),
    el("ol", { class: "bars whole" }, ...bars),
  );
}
