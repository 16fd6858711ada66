// Shared by the other scripts: the data, how it is written, and the tooltip.
const byId = (id) => document.getElementById(id);
// Large parts are packed.
await Promise.all([...document.querySelectorAll('script[type="application/gzip"]')].map(async (part) => {
  const bytes = Uint8Array.from(atob(part.textContent), (sign) => sign.charCodeAt(0));
  part.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}));
const data = JSON.parse(byId("report-data").textContent);
const tip = byId("tip");

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const known = (value) => value !== null && value !== undefined;

function hours(seconds, digits = 2) {
  return `${(seconds / 3600).toLocaleString("en", { maximumFractionDigits: digits })} h`;
}

// A time on the clock of the runs: a date where the log of the jobs has dates.
function when(seconds, digits = 2) {
  if (!known(data.origin)) return hours(seconds, digits);
  return new Date((data.origin + seconds) * 1000).toISOString().slice(0, 16).replace("T", " ");
}

function number(value) {
  if (!known(value)) return "-";
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(5)));
}

const percent = (fraction) => `${(100 * fraction).toFixed(1)}%`;

// Colours and fonts as the style sheet has them, on the page or as if on white paper.
function styleOf(name, element = document.documentElement) {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

function make(tag, text = "", className = "") {
  const node = document.createElement(tag);
  if (text !== "") node.textContent = text;
  if (className) node.className = className;
  return node;
}

function button(text, label, action) {
  const node = make("button", text);
  node.type = "button";
  node.setAttribute("aria-label", label);
  node.addEventListener("click", action);
  return node;
}

function swatch(policy) {
  return make("i", "", `swatch c${policy}`);
}

// The runs of each policy: several where they differ in their seed.
const runsOf = data.policies.map(() => []);
data.runs.forEach((run) => runsOf[run.policy].push(run));

// How many of the ascending values are at most x.
function countUpTo(values, x) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}

function showTip(event, ...nodes) {
  tip.replaceChildren(...nodes);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
  tip.style.left = `${Math.max(4, right)}px`;
  tip.style.top = `${clamp(event.clientY + 14, 4, Math.max(4, innerHeight - height - 4))}px`;
}

function hideTip() {
  tip.hidden = true;
}
