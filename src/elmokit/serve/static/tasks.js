// Tasks: what trained models make of a text, and the layers they learned to use.

import { byId, choice, el, examples, field } from "./dom.js";
import { drawing } from "./drawings.js";
import { TASKS } from "./examples.js";
import { drawMixes } from "./mixes.js";
import { go } from "./place.js";
import { Asker, ask } from "./service.js";

// For each kind: what it is called in a word or two, what it does, and what goes into its fields.
const ABOUT = {
  ner: {
    short: "names",
    does: "Finds names and says of what kind they are.",
  },
  sst5: {
    short: "opinions",
    does: "Says how a sentence judges, from very bad to very good.",
  },
  snli: {
    short: "what follows",
    does: "Says whether a sentence follows from another, contradicts it, or neither.",
    fields: ["The first sentence", "Does this follow from it?"],
    missing: ["Type a first sentence", "Type a second sentence, to see whether it follows"],
  },
  squad: {
    short: "answers",
    does: "Finds the answer to a question in a passage. It can only answer in words of the passage.",
    fields: ["Your question", "The passage to answer it from"],
    missing: ["Type a question", "Paste a passage that holds the answer"],
  },
  srl: {
    short: "who did what",
    does: "Says who did what to whom, when and where, for every verb.",
  },
  coref: {
    short: "who is meant",
    does: "Finds the words that mean the same person or thing.",
  },
};
const OTHER = { short: "", does: "", missing: ["Type a text"] };

export function tasks(app) {
  const names = app.served.tasks;
  byId("tasks-help").hidden = names.length > 0;
  byId("tasks-body").hidden = names.length === 0;
  if (!names.length) return { show() {} };
  const asker = new Asker(byId("tasks-result"), byId("tasks-notice"));
  const text = field(byId("tasks-text"), (x) => app.set({ x }, "text"));
  const other = field(byId("tasks-other"), (y) => app.set({ y }, "other"));
  let cards = null;
  let showName = null;
  let shown = null;

  async function load() {
    cards = (await ask("v1/tasks")).tasks;
    const named = ({ name, task }) => {
      const short = ABOUT[task]?.short;
      return short && short !== name ? el("span", {}, name, el("small", {}, short)) : name;
    };
    showName = choice(
      byId("tasks-names"),
      cards.map((card) => [card.name, named(card)]),
      (k) => app.set({ k, x: null, y: null }),
    );
  }

  async function show(values) {
    if (cards === null) await load();
    if (app.values() !== values) return;
    const card = cards.find(({ name }) => name === values.k) ?? cards[0];
    const kind = card.task;
    const about = ABOUT[kind] ?? { ...OTHER, does: card.title };
    const tries = TASKS[kind] ?? [];
    const two = about.fields;
    showName(card.name);
    byId("tasks-about").textContent = [about.does, scoreOf(card)].filter(Boolean).join(" ");
    byId("tasks-text-label").textContent = two ? two[0] : "Your text";
    byId("tasks-other-label").textContent = two ? two[1] : "";
    byId("tasks-second").hidden = !two;
    if (shown !== card) {
      examples(byId("tasks-examples"), tries, ({ text: x, other: y }) => app.set({ x, y }));
      drawMixes(cards, card, app.model.n_layers, look);
      byId("tasks-result").replaceChildren();
    }
    shown = card;
    const x = values.x ?? tries[0]?.text ?? "";
    const y = values.y ?? tries[0]?.other ?? "";
    text.show(x);
    other.show(y);
    const wanted = [x, ...(two ? [y] : [])].findIndex((given) => !given.trim());
    if (wanted >= 0)
      return asker.rest(`${(about.missing ?? OTHER.missing)[wanted]}, or try an example.`);
    const body = { examples: [exampleOf(kind, x, y)] };
    await asker.run(
      JSON.stringify([card.name, body]),
      (signal) => ask(`v1/tasks/${encodeURIComponent(card.name)}`, body, signal),
      (answer) => {
        // The page sends one example: that it is number 0 says nothing.
        const warnings = answer.warnings.map((text) => text.replace(/^example 0, line \d+: /, ""));
        asker.tell(warnings.join(" ") || null);
        asker.result.classList.remove("stale");
        const results = answer.results[0];
        if (!results.length) return asker.rest("There are no words in this text.");
        byId("tasks-result").replaceChildren(...drawing(kind, results, { other: y }));
      },
    );
  }

  return {
    show(values) {
      show(values)
        .catch((error) => asker.rest(error.message))
        // All is shown at once, so that nothing jumps.
        .finally(() => byId("tasks-body").classList.remove("pending"));
    },
  };
}

/** Go to the sentences, seen with the mix that a task learned. */
function look({ s, gamma }) {
  const two = (value) => Number(value.toFixed(2));
  go("sentences", { v: "mix", s: s.map(two).join(","), g: Math.min(3, Math.max(0.1, two(gamma))) });
  window.scrollTo(0, 0);
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
