// The page shows one panel at a time; the URL stores the complete view.

import { byId, el, roving, stored } from "./dom.js";
import { expectations } from "./expectations.js";
import { neighbors } from "./neighbors.js";
import { currentView, fitsInUrl, navigate, valuesOf, writePending } from "./view.js";
import { shade } from "./scale.js";
import { senses } from "./senses.js";
import { sentences } from "./sentences.js";
import { ask, useToken } from "./service.js";
import { start } from "./start.js";
import { tasks } from "./tasks.js";

const PANELS = { start, sentences, senses, neighbors, expectations, tasks };
const THEME = "elmo-theme";

const panels = new Map();
let app = null;

async function begin() {
  byId("trouble").hidden = true;
  let served;
  try {
    served = await ask("v1/models");
  } catch (error) {
    byId("trouble").textContent = error.message;
    byId("trouble").hidden = error.status === 401;
    if (error.status === 503) setTimeout(begin, 2000); // models are loading
    return;
  }
  const wanted = currentView().values.m;
  const model = served.data.find(({ id }) => id === wanted) ?? served.data[0];
  app = { served, model };
  models(served, model);
  footer(served, model);
  show();
}

const current = () => (currentView().panel in PANELS ? currentView().panel : "start");

function show() {
  const { values } = currentView();
  const name = current();
  for (const other of Object.keys(PANELS)) {
    const on = other === name;
    // Show a panel only when it is built, to avoid layout shifts; the start panel is static.
    byId(`panel-${other}`).hidden = !on || (app === null && name !== "start");
    const tab = byId(`tab-${other}`);
    tab.setAttribute("aria-selected", on);
    tab.setAttribute("tabindex", on ? "0" : "-1");
    if (on) scrollToTab(tab);
  }
  document.title = `${byId(`tab-${name}`).textContent} · elmo`;
  if (app === null) return;
  if (
    values.m !== undefined &&
    values.m !== app.model.id &&
    app.served.data.some(({ id }) => id === values.m)
  ) {
    location.reload(); // panels are built for one model
    return;
  }
  if (!panels.has(name)) panels.set(name, PANELS[name](contextOf(name)));
  panels.get(name).show(values);
}

/** Return the context of a panel: what is served, and its own parameters. */
function contextOf(name) {
  return {
    ...app,
    values: () => valuesOf(name),
    // Delayed input must not reopen a panel that the user has left.
    set: (changes, join = null) => current() === name && navigate(name, changes, join),
  };
}

/** Scroll the tabs on a narrow screen until one is visible. */
function scrollToTab(tab) {
  const row = tab.parentElement;
  row.scrollLeft = tab.offsetLeft - row.offsetLeft - (row.clientWidth - tab.offsetWidth) / 2;
}

function openPanel(name) {
  navigate(name, { m: currentView().values.m ?? null });
  window.scrollTo(0, 0);
}

function models(served, model) {
  const several = served.data.length > 1;
  byId("model-label").hidden = !several;
  byId("model").replaceChildren(
    ...served.data.map(({ id }) => el("option", { value: id, selected: id === model.id }, id)),
  );
}

function footer(served, { id, n_layers, dim, parameters, license }) {
  const size = parameters >= 1e6 ? `${(parameters / 1e6).toFixed(1)} million` : parameters;
  const about = `${n_layers} layers of ${dim} dimensions, ${size} parameters`;
  byId("footer").replaceChildren(
    el(
      "p",
      {},
      [`Model ${id}: ${about}`, license].filter(Boolean).join(", ") +
        `. elmokit ${served.version}.`,
    ),
    el(
      "p",
      {},
      "Your text is sent to this service only. ",
      el("a", { href: "openapi.json" }, "HTTP API (OpenAPI)"),
    ),
  );
}

// ------------------------------------------------------------------------------------------ tools

function darkNow() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function showTheme() {
  byId("theme").setAttribute("aria-pressed", darkNow());
  byId("theme").textContent = darkNow() ? "Light" : "Dark";
}

function showStatus(words) {
  byId("status").textContent = words;
  byId("status").classList.add("seen");
  setTimeout(() => byId("status").classList.remove("seen"), 2500);
}

const theme = stored("local", THEME);
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
showTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
byId("theme").addEventListener("click", () => {
  const next = darkNow() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  stored("local", THEME, next);
  showTheme();
});

byId("link").addEventListener("click", async () => {
  writePending();
  if (!fitsInUrl()) return showStatus("The text is too long for a link.");
  try {
    await navigator.clipboard.writeText(location.href);
    showStatus("Link copied.");
  } catch {
    showStatus("Could not copy the link. Copy the URL of this page instead.");
  }
});

byId("model").addEventListener("change", (event) =>
  navigate(currentView().panel, { m: event.target.value }),
);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("content").focus();
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(byId("token").value);
  byId("token-form").hidden = true;
  begin();
});
document.addEventListener("token-wanted", () => {
  byId("token-form").hidden = false;
  byId("token").focus();
});

document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  const name = link?.getAttribute("href").slice(1);
  if (!(name in PANELS) || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  openPanel(name);
});
roving(document.querySelector(".tabs"), '[role="tab"]', (_, tab) =>
  openPanel(tab.getAttribute("href").slice(1)),
);
for (const item of document.querySelectorAll("[data-cosine]"))
  shade(item, Number(item.dataset.cosine));
document.addEventListener("view", show);
show();
begin();
