// The allocation matrix of one decision, as a heat map that is a table.
const MOST_ROWS = 400;

function jobCells(run, job) {
  if (typeof job === "string") return [job, "", ""]; // a label that is not in the trace
  const trace = traceOf(run);
  return [trace.id[job], trace.types[trace.type[job]], String(trace.gpus[job])];
}

function shareCell(thousandths) {
  const share = thousandths / 1000;
  const cell = make("td", share === 0 ? "0" : share.toFixed(share < 0.1 ? 3 : 2), "share");
  if (share === 0) cell.classList.add("zero");
  else cell.style.background = `rgba(var(--heat), ${(0.1 + 0.9 * clamp(share, 0, 1)).toFixed(3)})`;
  if (share > 0.7) cell.classList.add("strong");
  return cell;
}

function headRow(decision) {
  const row = make("tr");
  for (const name of ["job", "type", "GPUs"]) {
    const head = make("th", name, name === "GPUs" ? "" : "text");
    head.scope = "col";
    row.append(head);
  }
  const priced = decision.prices !== null && ["optimal", "feasible"].includes(decision.status);
  decision.accelerators.forEach((name, position) => {
    const head = make("th", name, "share");
    head.scope = "col";
    head.append(make("small", priced && decision.prices[position] !== null ? `price ${number(decision.prices[position])}` : "no price"));
    row.append(head);
  });
  return { row, priced };
}

function describeDecision(run, decision, priced) {
  const parts = [`Status: ${decision.status}`];
  if (decision.objective !== null) parts.push(`objective ${number(decision.objective)} ${decision.unit}`.trim());
  if (decision.gap !== null) parts.push(`relative gap ${number(decision.gap)}`);
  if (decision.solver) parts.push(`solver ${decision.solver}`);
  if (decision.seconds !== null) parts.push(`${Number((decision.seconds * 1000).toPrecision(3))} ms`);
  if (priced) parts.push(`prices in ${decision.unit || "the objective's unit"} per GPU`);
  const limits = Object.entries(decision.rowPrices).map(([name, price]) => `${name} ${number(price)}`);
  if (limits.length) parts.push(`price of one more unit of a limit: ${limits.join(", ")}`);
  if (decision.unserved.length) parts.push(`cannot be served: ${decision.unserved.join(", ")}`);
  if (decision.jobs.length > MOST_ROWS) parts.push(`first ${MOST_ROWS} of ${decision.jobs.length} jobs`);
  if (run.decisionCount > run.decisions.length) {
    const all = run.decisionCount.toLocaleString("en");
    parts.push(`${run.decisions.length} of ${all} decisions are in this file, evenly spaced`);
  }
  return `${parts.join("; ")}.`;
}

function setUpAllocation() {
  const [select, slider, table] = ["allocation-run", "allocation-decision", "allocation-table"].map(byId);
  if (!table) return;

  let run = null;

  function draw() {
    const decision = run.decisions[Number(slider.value)];
    if (!decision) {
      byId("allocation-where").textContent = "";
      byId("allocation-note").textContent = "This run recorded no decisions.";
      table.replaceChildren();
      return;
    }
    const count = run.decisionCount.toLocaleString("en");
    const where = `${decision.number.toLocaleString("en")} of ${count}: round ${decision.round}, ${when(decision.clock, 1)}`;
    byId("allocation-where").textContent = where;
    slider.setAttribute("aria-valuetext", where);
    const { row, priced } = headRow(decision);
    byId("allocation-note").textContent = describeDecision(run, decision, priced);
    const [head, body] = [make("thead"), make("tbody")];
    head.append(row);
    const types = decision.accelerators.length;
    decision.jobs.slice(0, MOST_ROWS).forEach((job, position) => {
      const line = make("tr");
      const [id, type, gpus] = jobCells(run, job);
      const label = make("th", id, "text");
      label.scope = "row";
      line.append(label, make("td", type, "text"), make("td", gpus));
      for (let at = 0; at < types; at += 1) line.append(shareCell(decision.shares[position * types + at]));
      body.append(line);
    });
    table.replaceChildren(head, body);
  }

  function choose() {
    run = detailOf(Math.max(runAt("decisions", 0), 0));
    const { decisions } = run;
    slider.max = String(Math.max(decisions.length - 1, 0));
    slider.disabled = decisions.length < 2;
    // Without a wish the middle of the run: the first decision often has one job, and the last one too.
    const wanted = decisions.findIndex(({ number: each }) => String(each) === view.get("decision"));
    slider.value = String(wanted < 0 ? Math.floor(decisions.length / 2) : wanted);
    draw();
  }

  slider.addEventListener("input", () => show({ decision: run.decisions[Number(slider.value)].number }, { step: false }));
  addDownload(byId("allocation"), "CSV", "Allocation matrix as CSV", () => {
    const decision = run.decisions[Number(slider.value)];
    if (!decision) return;
    const types = decision.accelerators.length;
    const rows = decision.jobs.map((job, at) => [
      ...jobCells(run, job), ...decision.shares.slice(at * types, (at + 1) * types).map((share) => share / 1000),
    ]);
    download("allocation.csv", csv([["job", "type", "GPUs", ...decision.accelerators], ...rows]), "text/csv");
  });
  chooseRun(byId("allocation-run"), "decisions", 0);
  watch(["decisions", "decision"], choose);
  choose();
}

if (data.runs.length) setUpAllocation();
