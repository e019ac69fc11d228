// The page shows one panel at a time; the URL stores the complete view.

import { byId, el, rovingFocus, browserStorage } from "./dom.js";
import { expectations } from "./expectations.js";
import { neighbors } from "./neighbors.js";
import { currentView, fitsInUrl, navigate, valuesOf, writePending } from "./view.js";
import { shade } from "./scale.js";
import { senses } from "./senses.js";
import { sentences } from "./sentences.js";
import { request, setToken } from "./service.js";
import { start } from "./start.js";
import { tasks } from "./tasks.js";

const PANELS = { start, sentences, senses, neighbors, expectations, tasks };
const THEME = "elmo-theme";

const panels = new Map();
let app = null;

async function loadModels() {
  byId("error").hidden = true;
  let service;
  try {
    service = await request("v1/models");
  } catch (error) {
    byId("error").textContent = error.message;
    byId("error").hidden = error.status === 401;
    if (error.status === 503) setTimeout(loadModels, 2000); // models are loading
    return;
  }
  const requestedId = currentView().values.m;
  const model = service.data.find(({ id }) => id === requestedId) ?? service.data[0];
  app = { service, model };
  showModels(service, model);
  showFooter(service, model);
  show();
}

const currentPanel = () => (currentView().panel in PANELS ? currentView().panel : "start");

function show() {
  const { values } = currentView();
  const name = currentPanel();
  for (const other of Object.keys(PANELS)) {
    const isSelected = other === name;
    // Show a panel only when it is built, to avoid layout shifts; the start panel is static.
    byId(`panel-${other}`).hidden = !isSelected || (app === null && name !== "start");
    const tab = byId(`tab-${other}`);
    tab.setAttribute("aria-selected", isSelected);
    tab.setAttribute("tabindex", isSelected ? "0" : "-1");
    if (isSelected) scrollToTab(tab);
  }
  document.title = `${byId(`tab-${name}`).textContent} · elmo`;
  if (app === null) return;
  if (
    values.m !== undefined &&
    values.m !== app.model.id &&
    app.service.data.some(({ id }) => id === values.m)
  ) {
    location.reload(); // panels are built for one model
    return;
  }
  if (!panels.has(name)) panels.set(name, PANELS[name](panelContext(name)));
  panels.get(name).show(values);
}

/** Return the context of a panel: the service, the model, and the panel's own parameters. */
function panelContext(name) {
  return {
    ...app,
    values: () => valuesOf(name),
    // Delayed input must not reopen a panel that the user has left.
    set: (changes, join = null) => currentPanel() === name && navigate(name, changes, join),
  };
}

/** On a narrow screen, scroll the tabs so that `tab` is visible. */
function scrollToTab(tab) {
  const row = tab.parentElement;
  row.scrollLeft = tab.offsetLeft - row.offsetLeft - (row.clientWidth - tab.offsetWidth) / 2;
}

function openPanel(name) {
  navigate(name, { m: currentView().values.m ?? null });
  window.scrollTo(0, 0);
}

function showModels(service, model) {
  const hasSeveral = service.data.length > 1;
  byId("model-label").hidden = !hasSeveral;
  byId("model").replaceChildren(
    ...service.data.map(({ id }) => el("option", { value: id, selected: id === model.id }, id)),
  );
}

function showFooter(service, { id, n_layers, dim, parameters, license }) {
  const size = parameters >= 1e6 ? `${(parameters / 1e6).toFixed(1)} million` : parameters;
  const about = `${n_layers} layers of ${dim} dimensions, ${size} parameters`;
  byId("footer").replaceChildren(
    el(
      "p",
      {},
      [`Model ${id}: ${about}`, license].filter(Boolean).join(", ") +
        `. elmokit ${service.version}.`,
    ),
    el(
      "p",
      {},
      "Your text is sent only to this service. ",
      el("a", { href: "openapi.json" }, "HTTP API (OpenAPI)"),
    ),
  );
}

// ------------------------------------------------------------------------------------------ tools

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function showTheme() {
  byId("theme").setAttribute("aria-pressed", isDark());
  byId("theme").textContent = isDark() ? "Light" : "Dark";
}

function showStatus(message) {
  byId("status").textContent = message;
  byId("status").classList.add("visible");
  setTimeout(() => byId("status").classList.remove("visible"), 2500);
}

const theme = browserStorage("local", THEME);
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
showTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
byId("theme").addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  browserStorage("local", THEME, next);
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
  setToken(byId("token").value);
  byId("token-form").hidden = true;
  loadModels();
});
document.addEventListener("token-required", () => {
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
rovingFocus(document.querySelector(".tabs"), '[role="tab"]', (_, tab) =>
  openPanel(tab.getAttribute("href").slice(1)),
);
for (const item of document.querySelectorAll("[data-cosine]"))
  shade(item, Number(item.dataset.cosine));
document.addEventListener("view", show);
show();
loadModels();
