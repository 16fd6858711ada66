// The tables of figures: sorted, related to a baseline, written as CSV; and which policies are hidden everywhere.
const hidden = new Set();

function hidePolicies() {
  hidden.clear();
  for (const name of view.getAll("hide")) {
    if (data.policies.includes(name)) hidden.add(data.policies.indexOf(name));
  }
  for (const key of document.querySelectorAll(".key")) {
    key.setAttribute("aria-pressed", String(!hidden.has(Number(key.dataset.policy))));
  }
  for (const node of document.querySelectorAll("main [data-policy]")) {
    node.classList.toggle("off", hidden.has(Number(node.dataset.policy)));
  }
}

for (const key of document.querySelectorAll(".key")) {
  key.addEventListener("click", () => {
    const name = data.policies[Number(key.dataset.policy)];
    const others = view.getAll("hide").filter((other) => other !== name);
    show({ hide: others.length < view.getAll("hide").length ? others : [...others, name] });
  });
}

const figureTables = [...document.querySelectorAll("table.figures")];

// What the value is to that of the baseline; nothing where there is nothing to compare.
function ratioNode(value, base, better) {
  if (value === "" || base === "" || Number(base) === 0) return make("small", "-", "ratio");
  const ratio = Number(value) / Number(base);
  const digits = ratio >= 100 ? 0 : ratio >= 10 ? 1 : 2;
  const text = ratio.toFixed(digits);
  const same = Number(text) === 1;
  const good = better === "low" ? ratio < 1 : ratio > 1;
  const node = make("small", `×${text}`, same || !better ? "ratio" : `ratio ${good ? "better" : "worse"}`);
  if (!same && better) {
    const sign = make("span", good ? " ▲" : " ▼");
    sign.setAttribute("aria-label", good ? "better" : "worse");
    sign.setAttribute("role", "img");
    node.append(sign);
  }
  return node;
}

function relateToBaseline() {
  const baseline = policyAt("baseline");
  const select = byId("baseline");
  if (select) select.value = baseline < 0 ? "" : String(baseline);
  for (const table of figureTables) {
    const heads = [...table.tHead.rows[0].cells];
    const rows = [...table.tBodies[0].rows];
    for (const node of table.querySelectorAll(".ratio")) node.remove();
    if (baseline < 0) continue;
    // of parts, a column is a figure of one policy
    if (table.querySelector("[data-figure]")) {
      const baseOf = new Map(heads.flatMap((head, column) =>
        (Number(head.dataset.policy) === baseline ? [[head.dataset.figure, column]] : [])));
      for (const row of rows) {
        heads.forEach((head, column) => {
          if (!head.dataset.figure || !head.dataset.better) return;
          const base = row.cells[baseOf.get(head.dataset.figure)]?.dataset.value ?? "";
          row.cells[column].append(ratioNode(row.cells[column].dataset.value, base, head.dataset.better));
        });
      }
      continue;
    }
    const bases = new Map(rows.filter((row) => Number(row.dataset.policy) === baseline).map((row) => [row.dataset.part, row]));
    for (const row of rows) {
      const base = bases.get(row.dataset.part);
      heads.forEach((head, column) => {
        if (!head.dataset.better) return;
        const value = row.cells[column].dataset.value;
        row.cells[column].append(ratioNode(value, base ? base.cells[column].dataset.value : "", head.dataset.better));
      });
    }
  }
}

function compareCells(column, sign) {
  const value = (row) => row.cells[column].dataset.value;
  return (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === ""); // missing values last, whichever the direction
    return sign * (Number.isNaN(Number(x)) || Number.isNaN(Number(y)) ? x.localeCompare(y) : Number(x) - Number(y));
  };
}

// A column of a policy in a table of parts is called by its figure, too.
function titleOf({ dataset: { figure }, textContent }) {
  return figure ? `${figure}, ${textContent}` : textContent;
}

// In the address a heading, with "-" before it for the largest first.
function sortable(table) {
  const key = `sort-${table.closest("section").id}`;
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const written = [...body.rows];
  function sort() {
    const wanted = view.get(key) ?? "";
    const descending = wanted.startsWith("-");
    const column = heads.findIndex((head) => titleOf(head) === wanted.slice(descending ? 1 : 0));
    heads.forEach((head, at) => {
      if (at === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    body.append(...(column < 0 ? written : [...written].sort(compareCells(column, descending ? -1 : 1))));
  }
  for (const head of heads) {
    head.querySelector("button").addEventListener("click", () => {
      show({ [key]: `${head.getAttribute("aria-sort") === "ascending" ? "-" : ""}${titleOf(head)}` });
    });
  }
  watch([key], sort);
  sort();
}

function tableRows(table) {
  const text = (cell) => cell.dataset.value ?? cell.textContent;
  return [[...table.tHead.rows[0].cells].map(titleOf),
    ...[...table.tBodies[0].rows].map((row) => [...row.cells].map(text))];
}

// Of the tables of parts one figure is shown at a time, for each policy beside the others.
for (const select of document.querySelectorAll("[data-figures]")) {
  const key = `figure-${select.dataset.figures}`;
  const cells = [...byId(select.dataset.figures).querySelectorAll("[data-figure]")];
  const choose = () => {
    const chosen = view.get(key);
    if ([...select.options].some(({ value }) => value === chosen)) select.value = chosen;
    for (const cell of cells) cell.hidden = cell.dataset.figure !== select.value;
  };
  select.addEventListener("change", () => show({ [key]: select.value }));
  watch([key], choose);
  choose();
}

for (const table of figureTables) {
  const section = table.closest("section");
  sortable(table);
  addDownload(section, "CSV", `${section.querySelector("h2").textContent} as CSV`, () => {
    download(`${section.id}.csv`, csv(tableRows(table)), "text/csv");
  });
}
byId("baseline")?.addEventListener("change", (event) => {
  show({ baseline: event.target.value === "" ? null : data.policies[Number(event.target.value)] });
});
watch(["hide"], hidePolicies);
watch(["baseline"], relateToBaseline);
hidePolicies();
relateToBaseline();
