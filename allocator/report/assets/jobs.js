// The table of all jobs of a run. Only the rows in view are in the document, however many jobs there are.
const ROW = 30;
const SPARE_ROWS = 12;

const hoursOf = (seconds) => (known(seconds) ? seconds / 3600 : null);
const fixed = (digits) => (value) => (known(value) ? value.toFixed(digits) : "-");

// Each column: its key in searches and in the address, heading, value of a job, and text of a value.
function jobColumns(run, baseline) {
  const trace = traceOf(run);
  const jct = (each, job) => (known(each.completion[job]) ? each.completion[job] - trace.arrival[job] : null);
  const columns = [{ key: "id", title: "job", value: (job) => trace.id[job] }];
  if (trace.users) columns.push({ key: "user", title: "user", value: (job) => trace.users[trace.user[job]] });
  if (trace.partitions) {
    columns.push({ key: "partition", title: "partition", value: (job) => trace.partitions[trace.partition[job]] });
  }
  columns.push(
    { key: "type", title: "type", value: (job) => trace.types[trace.type[job]] },
    { key: "gpus", title: "GPUs", value: (job) => trace.gpus[job], text: String },
    { key: "status", title: "status", value: (job) => run.statuses[run.status[job]] },
  );
  if (!trace.date) {
    columns.push({ key: "arrival", title: "arrival (h)", value: (job) => hoursOf(trace.arrival[job]), text: fixed(2) });
  }
  if (trace.date) columns.push({ key: "date", title: "arrived (UTC)", value: (job) => trace.date[job] });
  if (run.running) {
    const waited = (job) => (known(jct(run, job)) && known(run.running[job]) ? Math.max(jct(run, job) - run.running[job], 0) : null);
    columns.push(
      { key: "waiting", title: "waiting (h)", value: (job) => hoursOf(waited(job)), text: fixed(2) },
      { key: "running", title: "running (h)", value: (job) => hoursOf(run.running[job]), text: fixed(2) },
    );
  }
  columns.push(
    { key: "jct", title: "JCT (h)", value: (job) => hoursOf(jct(run, job)), text: fixed(2) },
    { key: "rho", title: data.fairness, value: (job) => (known(run.rho[job]) ? run.rho[job] / 1000 : null), text: fixed(2) },
  );
  if (baseline) {
    const ratio = (job) => (known(jct(run, job)) && jct(baseline, job) > 0 ? jct(run, job) / jct(baseline, job) : null);
    columns.push({ key: "ratio", title: `JCT ÷ ${baseline.name}`, value: ratio, text: fixed(2), ratio: true });
  }
  if (run.preemptions) {
    columns.push({ key: "preemptions", title: "preemptions", value: (job) => run.preemptions[job], text: String });
  }
  if (trace.deadline) {
    columns.push({ key: "deadline", title: "deadline (h)", value: (job) => hoursOf(trace.deadline[job]), text: fixed(2) });
    if (run.met) columns.push({ key: "met", title: "in time", value: (job) => [null, "no", "yes"][(run.met[job] ?? -1) + 1] });
  }
  return columns;
}

// Which jobs a search finds: all of its words, each in any text or, with "column:", "<" or ">", in one column.
function searchOf(text, columns) {
  const texts = columns.filter((column) => !column.text);
  const tests = text.trim().toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [, key, sign, wanted] = /^([a-z]+)([:<>])(.*)$/.exec(word) ?? [];
    const column = columns.find((each) => each.key === key);
    if (!column) return (job) => texts.some(({ value }) => String(value(job) ?? "").toLowerCase().includes(word));
    if (sign === "<") return (job) => known(column.value(job)) && column.value(job) < Number(wanted);
    if (sign === ">") return (job) => known(column.value(job)) && column.value(job) > Number(wanted);
    if (column.text) return (job) => known(column.value(job)) && column.text(column.value(job)) === column.text(Number(wanted));
    if (key === "id") return (job) => column.value(job).toLowerCase() === wanted;
    return (job) => String(column.value(job) ?? "").toLowerCase().includes(wanted);
  });
  return (job) => tests.every((test) => test(job));
}

// Positions of jobs in the order of a column; what is missing comes last.
function sorted(jobs, column, descending) {
  const sign = descending ? -1 : 1;
  const values = new Map(jobs.map((job) => [job, column.value(job)]));
  const natural = new Intl.Collator("en", { numeric: true });
  return jobs.sort((a, b) => {
    const [x, y] = [values.get(a), values.get(b)];
    if (!known(x) || !known(y)) return known(y) - known(x) || a - b;
    return sign * (column.text ? x - y : natural.compare(x, y)) || a - b;
  });
}

function setUpJobs() {
  const section = byId("jobs");
  if (!section) return;
  const [box, table, search] = ["jobs-view", "jobs-table", "jobs-search"].map(byId);
  const [head, body] = [table.tHead, table.tBodies[0]];
  let [index, run, columns, found, firstShown] = [0, null, [], [], -1];

  function choose() {
    index = runAt("jobs", 0);
    run = detailOf(Math.max(index, 0));
    const policy = policyAt("baseline");
    const rival = policy < 0 ? -1 : data.runs.findIndex((each) => each.policy === policy && each.trace === run.trace);
    columns = jobColumns(run, rival < 0 || data.runs[rival] === run ? null : detailOf(rival));
    const row = make("tr");
    for (const column of columns) {
      const cell = make("th", "", column.text ? "" : "text");
      cell.scope = "col";
      cell.append(button(column.title, `sort by ${column.title}`, () => {
        show({ sort: `${cell.getAttribute("aria-sort") === "ascending" ? "-" : ""}${column.key}` });
      }));
      row.append(cell);
    }
    head.replaceChildren(row);
    table.setAttribute("aria-colcount", String(columns.length));
    find();
  }

  function find() {
    const text = view.get("search") ?? "";
    if (search.value !== text) search.value = text;
    const all = traceOf(run).id.length;
    found = [...Array(all).keys()].filter(searchOf(text, columns));
    const wanted = view.get("sort") ?? "";
    const descending = wanted.startsWith("-");
    const at = columns.findIndex((column) => column.key === wanted.slice(descending ? 1 : 0));
    [...head.rows[0].cells].forEach((cell, position) => {
      if (position === at) cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    if (at >= 0) sorted(found, columns[at], descending);
    byId("jobs-count").textContent = `${found.length.toLocaleString("en")} of ${all.toLocaleString("en")} jobs`;
    table.setAttribute("aria-rowcount", String(found.length + 1));
    box.scrollTop = 0;
    fill(true);
  }

  function spacer(rows) {
    const row = make("tr", "", "spacer");
    row.setAttribute("aria-hidden", "true");
    row.append(make("td"));
    row.firstChild.colSpan = columns.length;
    row.style.height = `${rows * ROW}px`;
    return row;
  }

  function rowOf(job, position, chosen) {
    const row = make("tr");
    row.setAttribute("aria-rowindex", String(position + 2));
    row.dataset.job = job;
    if (job === chosen) row.setAttribute("aria-selected", "true");
    columns.forEach(({ value, text, ratio }, column) => {
      const what = value(job);
      const shown = text ? text(what) : what ?? "-";
      const cell = make(column ? "td" : "th", column ? shown : "", text ? "" : "text");
      if (!column) {
        cell.scope = "row";
        cell.append(button(shown, `show job ${shown} in the timelines`, () => {}));
      } else if (ratio && known(what)) {
        const sign = shown === "1.00" ? "" : what < 1 ? " ▲" : " ▼";
        cell.textContent = `×${shown}${sign}`;
        cell.classList.add(sign && (what < 1 ? "better" : "worse") || "same");
      } else if (!text) cell.title = shown;
      row.append(cell);
    });
    return row;
  }

  function fill(anew = false) {
    const room = Math.ceil((box.clientHeight || 600) / ROW);
    const first = clamp(Math.floor(box.scrollTop / ROW) - SPARE_ROWS, 0, Math.max(found.length - 1, 0));
    if (!anew && Math.abs(first - firstShown) < SPARE_ROWS / 2) return;
    firstShown = first;
    const last = Math.min(first + room + 2 * SPARE_ROWS, found.length);
    const chosen = jobAt(run);
    const rows = found.slice(first, last).map((job, at) => rowOf(job, first + at, chosen));
    body.replaceChildren(spacer(first), ...rows, spacer(found.length - last));
  }

  // Its life in the timelines; in that of this run, if none shows it.
  function jump(job) {
    const runs = ["first", "second"].map((place) => view.get(place));
    const there = runs.includes(run.name) || (index === 0 && runs[0] === null);
    const read = data.runs.filter((each) => each.trace === run.trace && each.read);
    show({ job: traceOf(run).id[job], ...lifeOf(job, read), ...(there ? {} : { first: run.name }) });
    byId("timeline").scrollIntoView({ block: "start" });
  }

  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-job]");
    if (row) jump(Number(row.dataset.job));
  });
  box.addEventListener("scroll", () => fill());
  search.addEventListener("input", () => show({ search: search.value }, { step: false }));
  addDownload(section, "CSV", "Jobs as CSV", () => {
    const rows = found.map((job) => columns.map(({ value }) => value(job)));
    download(`jobs-${run.name.replaceAll(/[^\w.-]+/g, "-")}.csv`, csv([columns.map(({ title }) => title), ...rows]), "text/csv");
  });
  chooseRun(byId("jobs-run"), "jobs", 0);
  watch(["jobs", "baseline"], choose);
  watch(["search", "sort"], find);
  watch(["job"], () => fill(true));
  choose();
}

if (data.runs.length) setUpJobs();
