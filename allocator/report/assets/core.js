// Shared by the other scripts: the data, the tooltip, hidden policies, the sortable table.
const data = JSON.parse(document.getElementById("report-data").textContent);
const tip = document.getElementById("tip");
const hidden = new Set();

const byId = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function hours(seconds, digits = 2) {
  return `${(seconds / 3600).toLocaleString("en", { maximumFractionDigits: digits })} h`;
}

function number(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(5)));
}

function make(tag, text = "", className = "") {
  const node = document.createElement(tag);
  if (text !== "") node.textContent = text;
  if (className) node.className = className;
  return node;
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

for (const key of document.querySelectorAll(".key")) {
  key.addEventListener("click", () => {
    const policy = Number(key.dataset.policy);
    const off = !hidden.delete(policy);
    if (off) hidden.add(policy);
    key.setAttribute("aria-pressed", String(!off));
    for (const curve of document.querySelectorAll(`.chart [data-policy="${policy}"]`)) curve.classList.toggle("off", off);
  });
}

function compareCells(column, sign) {
  const value = (row) => row.cells[column].dataset.value;
  return (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === ""); // missing values last, whichever the direction
    return sign * (column === 0 ? x.localeCompare(y) : Number(x) - Number(y));
  };
}

for (const table of document.querySelectorAll(".figures")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows].sort(compareCells(column, ascending ? 1 : -1));
    table.tBodies[0].append(...rows);
  }));
}
