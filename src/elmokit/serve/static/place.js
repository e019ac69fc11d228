// The URL stores the complete view and can be shared: #panel?key=value&...
//
// Browsers do not send the part after # to servers, so sentences do not appear in proxy logs.

const LONGEST = 12000; // longest URL that can be shared reliably
const PAUSE = 350; // milliseconds between two updates, because browsers limit their rate

const left = new Map(); // parameters of the panels that are not shown
let place = history.state?.panel ? history.state : read();
let last = null; // the `join` of the newest history entry
let unwritten = null;

/** Return the current view: the panel and its parameters. */
export function here() {
  return place;
}

/** Return the parameters of a panel, which may be hidden. */
export function valuesOf(panel) {
  return panel === place.panel ? place.values : (left.get(panel) ?? {});
}

/**
 * Open a panel, or change parameters of the current one; null removes a parameter.
 *
 * Consecutive changes with the same `join` (dragging a slider, typing) are one history entry.
 */
export function go(panel, changes, join = null) {
  const values = { ...valuesOf(panel) };
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined) delete values[key];
    else values[key] = String(value);
  }
  const joined = join !== null && join === last;
  if (!joined) settle();
  left.set(place.panel, place.values);
  place = { panel, values };
  last = join;
  if (joined) unwritten ??= setTimeout(settle, PAUSE);
  else write("pushState");
  document.dispatchEvent(new Event("place"));
}

/** Write pending changes to the URL. */
export function settle() {
  if (unwritten === null) return;
  clearTimeout(unwritten);
  unwritten = null;
  write("replaceState");
}

/** Whether the view fits into the URL; otherwise it is kept in the history state only. */
export function fits() {
  return address().length <= LONGEST;
}

function write(how) {
  if (fits()) history[how](null, "", address());
  else history[how](place, "", `#${place.panel}`);
}

function address() {
  const query = new URLSearchParams(place.values).toString();
  return `#${place.panel}${query ? `?${query}` : ""}`;
}

function read() {
  const [panel, query] = location.hash.slice(1).split(/\?(.*)/s);
  return { panel: panel || "start", values: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

window.addEventListener("popstate", (event) => {
  clearTimeout(unwritten);
  unwritten = null;
  last = null;
  left.set(place.panel, place.values);
  place = event.state?.panel ? event.state : read();
  document.dispatchEvent(new Event("place"));
});
