// Tasks: predictions of trained models, and the layer weights they learned.

import { byId, radioGroup, el, examples, field } from "./dom.js";
import { renderResults } from "./drawings.js";
import { TASKS } from "./examples.js";
import { drawMixes } from "./mixes.js";
import { navigate } from "./view.js";
import { RequestRunner, request } from "./service.js";

// For each task: a short name, a description, and the labels of its fields.
const ABOUT = {
  ner: {
    short: "named entities",
    does: "Finds named entities and their types.",
  },
  sst5: {
    short: "sentiment",
    does: "Classifies the sentiment of a sentence, from very negative to very positive.",
  },
  snli: {
    short: "inference",
    does: "Predicts whether a sentence follows from another one, contradicts it, or does neither.",
    fields: ["Premise", "Hypothesis"],
    missing: ["Enter a premise", "Enter a hypothesis"],
  },
  squad: {
    short: "question answering",
    does: "Finds the answer to a question in a passage. Answers are spans of the passage.",
    fields: ["Question", "Passage"],
    missing: ["Enter a question", "Enter a passage that contains the answer"],
  },
  srl: {
    short: "semantic roles",
    does: "Finds who did what to whom, when and where, for every predicate.",
  },
  coref: {
    short: "coreference",
    does: "Finds mentions that refer to the same entity.",
  },
};
const OTHER = { short: "", does: "", missing: ["Enter a text"] };

export function tasks(app) {
  const names = app.service.tasks;
  byId("tasks-help").hidden = names.length > 0;
  byId("tasks-body").hidden = names.length === 0;
  if (!names.length) return { show() {} };
  const runner = new RequestRunner(byId("tasks-result"), byId("tasks-notice"));
  const text = field(byId("tasks-text"), (x) => app.set({ x }, "text"));
  const other = field(byId("tasks-other"), (y) => app.set({ y }, "other"));
  let cards = null;
  let showName = null;
  let shown = null;

  async function load() {
    cards = (await request("v1/tasks")).tasks;
    const formatName = ({ name, task }) => {
      const short = ABOUT[task]?.short;
      return short && short !== name ? el("span", {}, name, el("small", {}, short)) : name;
    };
    showName = radioGroup(
      byId("tasks-names"),
      cards.map((card) => [card.name, formatName(card)]),
      (k) => app.set({ k, x: null, y: null }),
    );
  }

  async function show(values) {
    if (cards === null) await load();
    if (app.values() !== values) return;
    const card = cards.find(({ name }) => name === values.k) ?? cards[0];
    const kind = card.task;
    const about = ABOUT[kind] ?? { ...OTHER, does: card.title };
    const taskExamples = TASKS[kind] ?? [];
    const fields = about.fields;
    showName(card.name);
    byId("tasks-about").textContent = [about.does, scoreOf(card)].filter(Boolean).join(" ");
    byId("tasks-text-label").textContent = fields ? fields[0] : "Your text";
    byId("tasks-other-label").textContent = fields ? fields[1] : "";
    byId("tasks-second").hidden = !fields;
    if (shown !== card) {
      examples(byId("tasks-examples"), taskExamples, ({ text: x, other: y }) => app.set({ x, y }));
      drawMixes(cards, card, app.model.n_layers, applyMix);
      byId("tasks-result").replaceChildren();
    }
    shown = card;
    const x = values.x ?? taskExamples[0]?.text ?? "";
    const y = values.y ?? taskExamples[0]?.other ?? "";
    text.show(x);
    other.show(y);
    const missingIndex = [x, ...(fields ? [y] : [])].findIndex((value) => !value.trim());
    if (missingIndex >= 0)
      return runner.cancel(
        `${(about.missing ?? OTHER.missing)[missingIndex]}, or select an example.`,
      );
    const body = { examples: [exampleOf(kind, x, y)] };
    await runner.run(
      JSON.stringify([card.name, body]),
      (signal) => request(`v1/tasks/${encodeURIComponent(card.name)}`, body, signal),
      (response) => {
        // The page sends a single example, so omit its number.
        const warnings = response.warnings.map((warning) =>
          warning.replace(/^example 0, line \d+: /, ""),
        );
        runner.notify(warnings.join(" ") || null);
        runner.result.classList.remove("stale");
        const results = response.results[0];
        if (!results.length) return runner.cancel("The text contains no words.");
        byId("tasks-result").replaceChildren(...renderResults(kind, results, { other: y }));
      },
    );
  }

  return {
    show(values) {
      show(values)
        .catch((error) => runner.cancel(error.message))
        // Show everything at once, to avoid layout shifts.
        .finally(() => byId("tasks-body").classList.remove("pending"));
    },
  };
}

/** Open the Sentences panel with the mix that a task model learned. */
function applyMix({ s, gamma }) {
  const round = (value) => Number(value.toFixed(2));
  const g = Math.min(3, Math.max(0.1, round(gamma)));
  navigate("sentences", { v: "mix", s: s.map(round).join(","), g });
  window.scrollTo(0, 0);
}

function exampleOf(kind, x, y) {
  const line = (text) => text.replace(/\s+/g, " ").trim();
  if (kind === "snli") return { sentence1: line(x), sentence2: line(y) };
  if (kind === "squad") return { question: line(x), context: y };
  return line(x);
}

function scoreOf(card) {
  const [split, scores] = Object.entries(card.scores).pop() ?? [];
  const value = scores?.[card.metric];
  const metricName =
    { f1: " F1", accuracy: "% accuracy", conll: " F1 (mean of three metrics)" }[card.metric] ??
    ` ${card.metric}`;
  const data = { dev: "development set", test: "test set" }[split];
  return typeof value === "number" ? `Score: ${value.toFixed(1)}${metricName} on the ${data}.` : "";
}
