// The URL stores the complete view and can be shared: #panel?key=value&...
//
// Browsers do not send the part after # to servers, so sentences do not appear in proxy logs.

const MAX_LENGTH = 12000; // longest URL that can be shared reliably
const MIN_INTERVAL = 350; // milliseconds between two updates of the URL; browsers limit the rate

const hiddenValues = new Map(); // parameters of the panels that are not shown
let view = history.state?.panel ? history.state : read();
let lastJoin = null; // the `join` of the newest history entry
let pending = null;

/** Return the current view: the panel and its parameters. */
export function currentView() {
  return view;
}

/** Return the parameters of a panel, which may be hidden. */
export function valuesOf(panel) {
  return panel === view.panel ? view.values : (hiddenValues.get(panel) ?? {});
}

/**
 * Open a panel, or change parameters of the current one; null removes a parameter.
 *
 * Consecutive changes with the same `join` (such as typing) share one history entry.
 */
export function navigate(panel, changes, join = null) {
  const values = { ...valuesOf(panel) };
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined) delete values[key];
    else values[key] = String(value);
  }
  const isJoined = join !== null && join === lastJoin;
  if (!isJoined) writePending();
  hiddenValues.set(view.panel, view.values);
  view = { panel, values };
  lastJoin = join;
  if (isJoined) pending ??= setTimeout(writePending, MIN_INTERVAL);
  else write("pushState");
  document.dispatchEvent(new Event("view"));
}

/** Write pending changes to the URL. */
export function writePending() {
  if (pending === null) return;
  clearTimeout(pending);
  pending = null;
  write("replaceState");
}

/** Whether the view fits into the URL; otherwise, it is kept only in the history state. */
export function fitsInUrl() {
  return address().length <= MAX_LENGTH;
}

function write(method) {
  if (fitsInUrl()) history[method](null, "", address());
  else history[method](view, "", `#${view.panel}`);
}

function address() {
  const query = new URLSearchParams(view.values).toString();
  return `#${view.panel}${query ? `?${query}` : ""}`;
}

function read() {
  const [panel, query] = location.hash.slice(1).split(/\?(.*)/s);
  return { panel: panel || "start", values: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

window.addEventListener("popstate", (event) => {
  clearTimeout(pending);
  pending = null;
  lastJoin = null;
  hiddenValues.set(view.panel, view.values);
  view = event.state?.panel ? event.state : read();
  document.dispatchEvent(new Event("view"));
});
