// What is shown, as it stands in the address behind the #: a link shows the same, and the back button what was before.
let view = new URLSearchParams(location.hash.slice(1));
const watchers = [];
let writing = 0;

// Calls `draw` whenever one of the keys changes.
function watch(keys, draw) {
  watchers.push({ keys, draw });
}

function tell(changed) {
  for (const { keys, draw } of watchers) {
    if (keys.some((key) => changed.has(key))) draw();
  }
}

function write(how) {
  clearTimeout(writing);
  writing = 0;
  const text = view.toString();
  history[how](null, "", text ? `#${text}` : location.pathname + location.search);
}

// Changes what is shown: text or number by key, a list for several, nothing to take it out. A choice is a step, to
// which the back button returns; what changes all the time, such as a zoom, is written when it comes to rest.
function show(changes, { step = true } = {}) {
  const changed = new Set();
  for (const [key, value] of Object.entries(changes)) {
    const values = Array.isArray(value) ? value : known(value) && value !== "" ? [String(value)] : [];
    if (values.join("\n") === view.getAll(key).join("\n")) continue;
    view.delete(key);
    for (const each of values) view.append(key, each);
    changed.add(key);
  }
  if (!changed.size) return;
  if (step) {
    if (writing) write("replaceState");
    write("pushState");
  } else {
    clearTimeout(writing);
    writing = setTimeout(write, 200, "replaceState");
  }
  tell(changed);
}

addEventListener("popstate", () => {
  const before = view;
  clearTimeout(writing);
  writing = 0;
  view = new URLSearchParams(location.hash.slice(1));
  const keys = [...before.keys(), ...view.keys()];
  tell(new Set(keys.filter((key) => before.getAll(key).join("\n") !== view.getAll(key).join("\n"))));
});

// Runs and policies stand in the address with their names.
const policyAt = (key) => data.policies.indexOf(view.get(key));

function runAt(key, otherwise) {
  if (view.get(key) === "none") return -1;
  const found = data.runs.findIndex((run) => run.name === view.get(key));
  return found < 0 ? otherwise : found;
}

function viewNumber(key, otherwise) {
  const value = view.has(key) ? Number(view.get(key)) : NaN;
  return Number.isFinite(value) ? value : otherwise;
}

// A list to choose a run from, which follows the address.
function chooseRun(select, key, otherwise) {
  if (!select) return;
  const follow = () => {
    const run = runAt(key, otherwise);
    select.value = run < 0 ? "" : String(run);
  };
  select.addEventListener("change", () => show({ [key]: select.value === "" ? "none" : data.runs[select.value].name }));
  watch([key], follow);
  follow();
}
