// One or two timelines under one cursor and one zoom. Each is drawn once for a stretch of time and kept; what follows
// the pointer is drawn over it.
const FEW_BARS = 4000;

function setUpTimelines() {
  const section = byId("timeline");
  if (!section) return;
  const other = data.runs.findIndex((run) => run.policy !== data.runs[0].policy);
  const panes = ["first", "second"].map((place) => ({
    place,
    otherwise: place === "first" ? 0 : other,
    figure: byId(`pane-${place}`),
    canvas: byId(`pane-${place}`).querySelector("canvas"),
    kept: document.createElement("canvas"),
    run: null,
    width: 0,
    from: 0,
    to: 1,
  }));
  const shown = () => panes.filter((pane) => pane.run !== null);
  let [pointedJob, pointedTrace, cursor, whole, waiting] = [-1, -1, null, 1, 0];
  let usual = { from: 0, to: 1 };
  const pool = byId("timeline-pool");

  // The accelerator types whose GPUs are shown, where there are too many for all.
  function fold() {
    const room = shown().length > 1 ? 400 : 760;
    const opened = view.getAll("open");
    for (const pane of shown()) pane.layout = layOut(pane.run, room, opened);
    const names = [...new Set(shown().filter((pane) => pane.layout.foldable).flatMap((pane) => pane.run.accelerators))];
    pool.parentElement.hidden = !names.length;
    pool.replaceChildren(new Option("none", ""), ...names.map((name) => new Option(name)));
    pool.value = names.find((name) => opened.includes(name)) ?? "";
  }

  function refold() {
    fold();
    describe();
    draw();
  }

  function toggle(name) {
    const opened = view.getAll("open");
    show({ open: opened.includes(name) ? opened.filter((each) => each !== name) : [...opened, name] });
  }

  function choose() {
    for (const pane of panes) {
      const index = runAt(pane.place, pane.otherwise);
      pane.run = index < 0 ? null : detailOf(index);
      pane.figure.hidden = pane.run === null;
    }
    if (!shown().length) panes[0].run = detailOf(0);
    fold();
    whole = Math.max(...shown().map((pane) => pane.run.busyUntil), 1);
    const few = shown().map(({ run, layout }) => (layout.foldable ? whole : timeOfBars(run, FEW_BARS)))
      .filter((time) => time > 0);
    usual = { from: 0, to: few.length ? Math.min(...few) : whole };
    setStretch();
  }

  // The one in the address; else that of the chosen job; else as much as can be told apart.
  function setStretch() {
    const found = shown().map((pane) => pane.run).filter((run) => jobAt(run) >= 0);
    const alive = found.filter((run) => run.trace === found[0].trace);
    const otherwise = alive.length ? lifeOf(jobAt(alive[0]), alive) : usual;
    const from = clamp(viewNumber("from", otherwise.from), 0, whole);
    const to = clamp(viewNumber("to", otherwise.to), from + Math.min(60, whole - from), whole);
    for (const pane of panes) [pane.from, pane.to] = to > from ? [from, to] : [0, whole];
    describe();
    draw();
  }

  function zoomTo(from, to, step = false) {
    const span = clamp(to - from, Math.min(600, whole), whole);
    const first = clamp(from, 0, whole - span);
    show({ from: Math.round(first), to: Math.round(first + span) }, { step });
  }

  function describe() {
    const { from, to } = panes[0];
    const parts = [];
    if (shown().every(({ run }) => !run.busyUntil)) parts.push("Nothing ran.");
    else parts.push(`Shown: ${when(from, 1)} to ${when(to, 1)} of ${hours(whole, 1)}.`);
    if (shown().some(({ layout }) => layout.foldable) && !view.has("open")) {
      parts.push("Each band is an accelerator type: click one, or choose it above, to see its GPUs node by node.");
    }
    for (const { run, canvas } of shown()) {
      const own = [];
      if (run.busyUntil && !run.lanes.length) own.push("The run did not place jobs on GPUs: busy GPUs only.");
      if (known(run.until)) {
        const count = run.barCount.toLocaleString("en");
        own.push(`Of ${count} bars, those after ${when(run.until, 1)} are left out to keep the file small;` +
          " the bands cover the whole run.");
      }
      if (own.length) parts.push(...(shown().length > 1 ? [`${run.name}: ${own.join(" ")}`] : own));
      canvas.setAttribute("aria-label", `GPU timeline of ${run.name}. ${[parts[0], ...own].join(" ")}`);
    }
    byId("timeline-note").textContent = parts.join(" ");
    panes.forEach(({ run, place }) => {
      byId(`pane-${place}-name`).replaceChildren(...(run === null ? [] : [swatch(run.policy), make("span", run.name)]));
    });
  }

  function describeJob() {
    const note = byId("timeline-job");
    const found = shown().map((pane) => [pane.run, jobAt(pane.run)]).filter(([, job]) => job >= 0);
    note.hidden = !found.length;
    if (!found.length) return;
    const [run, job] = found[0];
    const trace = traceOf(run);
    const size = `${trace.gpus[job]} ${trace.gpus[job] === 1 ? "GPU" : "GPUs"}`;
    const head = make("strong", `Job ${trace.id[job]}`);
    const text = `: ${trace.types[trace.type[job]]}, ${size}, arrived at ${when(trace.arrival[job])}. `;
    const fates = found.map(([each, at]) => `${each.name}: ${outcome(each, at)}.`).join(" ");
    note.replaceChildren(head, text, fates, " ", button("let go", "Let the job go", () => show({ job: null })));
  }

  // What is highlighted: the job under the pointer, and the chosen one.
  function jobsOf(pane) {
    const chosen = jobAt(pane.run);
    const jobs = new Set(chosen >= 0 ? [chosen] : []);
    if (pointedJob >= 0 && pane.run.trace === pointedTrace) jobs.add(pointedJob);
    return { jobs, chosen };
  }

  function penOf(canvas, pane) {
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(pane.width * ratio);
    canvas.height = Math.round(pane.layout.total * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    return pen;
  }

  function draw() {
    const paints = paintsOf(document.documentElement);
    for (const pane of shown()) {
      pane.width = pane.canvas.clientWidth;
      if (pane.width <= LABEL_WIDTH) continue;
      pane.canvas.style.height = `${pane.layout.total}px`;
      drawPane(penOf(pane.kept, pane), pane, paints);
    }
    drawOver();
  }

  function drawOver() {
    waiting = 0;
    const paints = paintsOf(document.documentElement);
    for (const pane of shown()) {
      if (pane.width <= LABEL_WIDTH) continue;
      const pen = penOf(pane.canvas, pane);
      pen.drawImage(pane.kept, 0, 0, pane.width, pane.layout.total);
      const { jobs, chosen } = jobsOf(pane);
      if (jobs.size) drawJobs(pen, pane, jobs, chosen, paints);
      if (cursor !== null && cursor >= pane.from && cursor <= pane.to) {
        pen.fillStyle = paints.ink;
        pen.fillRect(pixelAt(pane, cursor), AXIS_HEIGHT - 6, 1, pane.layout.total - AXIS_HEIGHT);
      }
    }
  }

  function soon() {
    waiting ||= requestAnimationFrame(drawOver);
  }

  function under(pane, event) {
    const box = pane.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const { run, layout } = pane;
    const group = layout.groups.find((each) => y >= each.band && y < each.rows + each.height);
    const onBand = Boolean(group) && y < group.rows;
    if (!group || x < LABEL_WIDTH) return onBand ? { group, onBand, time: null, bars: [] } : null;
    const time = timeAt(pane, x);
    if (onBand || !group.open) return { group, onBand, time, bars: [] };
    const row = Math.min(Math.floor((y - group.rows) / layout.tall), group.count - 1);
    const gpu = group.first + row;
    const height = 1 - (y - group.rows - row * layout.tall) / layout.tall;
    // Bars a fraction of a pixel wide should still be found: look within half a pixel. Of those that share the GPU the
    // one under the pointer is the first.
    const slack = (pane.to - pane.from) / (pane.width - LABEL_WIDTH) / 2;
    const lane = run.lanes[gpu];
    const misses = ({ low, height: own }) => (height < low || height > low + own ? 1 : 0);
    const pieces = piecesWithin(lane.pieces, time - slack, time + slack).sort((a, b) => misses(a) - misses(b));
    const bars = [...new Set(pieces.map(({ bar }) => bar))].slice(0, 4)
      .map((bar) => ({ from: lane.from[bar], to: lane.to[bar], rounds: lane.rounds[bar], job: lane.job[bar] }));
    return { group, time, gpu, bars };
  }

  function point(pane, event) {
    const found = under(pane, event);
    pointedJob = found?.bars.length ? found.bars[0].job : -1;
    pointedTrace = pane.run.trace;
    pane.canvas.style.cursor = found?.onBand && pane.layout.foldable ? "pointer" : "";
    setCursor(found ? found.time : null);
    if (!known(found?.time)) return hideTip();
    return showTip(event, ...told(pane, found));
  }

  // What is under the pointer, and what the other timeline has at that time.
  function told(pane, { group, time, gpu, bars }) {
    const others = shown().filter((each) => each !== pane);
    if (gpu === undefined) {
      const rows = shown().map(({ run }) => {
        const busy = run.busy[run.accelerators.indexOf(group.name)] ?? [];
        const row = make("div");
        const gpus = busy[Math.floor((time / run.busyUntil) * busy.length)] ?? 0;
        row.append(swatch(run.policy), make("span", run.name), make("b", number(gpus)));
        return row;
      });
      return [make("strong", `${group.name} at ${when(time, 1)}: busy of ${group.count} GPUs`), ...rows];
    }
    const trace = traceOf(pane.run);
    const lines = bars.flatMap(({ from, to, rounds, job }) => [
      make("strong", `job ${trace.id[job]}`),
      make("div", trace.types[trace.type[job]]),
      make("div", `${trace.gpus[job]} ${trace.gpus[job] === 1 ? "GPU" : "GPUs"}; ${when(from)} to ${when(to)}, ` +
        `${rounds} ${rounds === 1 ? "round" : "rounds"}`),
    ]);
    const idle = bars.length ? "" : ": idle";
    const node = group.nodeSize > 1 ? `, node ${Math.floor((gpu - group.first) / group.nodeSize)}` : "";
    lines.push(make("div", `${group.name}${node}, GPU ${gpu}${idle}, at ${when(time)}`));
    for (const { run } of bars.length ? others.filter((each) => each.run.trace === pane.run.trace) : []) {
      const row = make("div");
      row.append(swatch(run.policy), make("span", `${run.name}: ${whereabouts(run, bars[0].job, time)}`));
      lines.push(row);
    }
    return lines;
  }

  function move(what) {
    const { from, to } = panes[0];
    const [span, middle] = [to - from, (from + to) / 2];
    if (what === "left") zoomTo(from - span / 2, to - span / 2);
    if (what === "right") zoomTo(from + span / 2, to + span / 2);
    if (what === "in") zoomTo(middle - span / 4, middle + span / 4);
    if (what === "out") zoomTo(middle - span, middle + span);
    if (what === "all") zoomTo(0, whole);
  }

  function zoomAround(time, factor) {
    const { from, to } = panes[0];
    zoomTo(time - (time - from) * factor, time + (to - time) * factor);
  }

  const keys = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", 0: "all" };

  function listen(pane) {
    const { canvas } = pane;
    const fingers = new Map();
    let grip = null;
    const spread = () => {
      const [a, b] = [...fingers.values()];
      return { apart: Math.max(Math.abs(a - b), 10), middle: (a + b) / 2 - canvas.getBoundingClientRect().left };
    };
    canvas.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, event.clientX);
      canvas.setPointerCapture(event.pointerId);
      grip = { x: event.clientX, from: pane.from, to: pane.to, moved: false };
      if (fingers.size === 2) grip = { ...grip, ...spread(), moved: true };
      if (event.pointerType !== "mouse") point(pane, event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!grip) return point(pane, event);
      fingers.set(event.pointerId, event.clientX);
      if (fingers.size === 2) {
        const { apart, middle } = spread();
        zoomAround(timeAt(pane, middle), grip.apart / apart);
        grip.apart = apart;
        return hideTip();
      }
      grip.moved ||= Math.abs(event.clientX - grip.x) > 4;
      if (!grip.moved) return undefined;
      const shift = ((grip.x - event.clientX) / (pane.width - LABEL_WIDTH)) * (grip.to - grip.from);
      return zoomTo(grip.from + shift, grip.to + shift);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, (event) => {
        if (end === "pointerup" && grip && !grip.moved) {
          const found = under(pane, event);
          const bars = found?.bars ?? [];
          if (found?.onBand && pane.layout.foldable) toggle(found.group.name);
          else show({ job: bars.length ? traceOf(pane.run).id[bars[0].job] : null });
        }
        fingers.delete(event.pointerId);
        grip = null;
      });
    }
    canvas.addEventListener("pointerleave", () => {
      hideTip();
      pointedJob = -1;
      setCursor(null);
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoomAround(timeAt(pane, event.clientX - canvas.getBoundingClientRect().left), event.deltaY > 0 ? 1.25 : 0.8);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      move(keys[event.key]);
    });
    new ResizeObserver(() => { if (pane.run && canvas.clientWidth !== pane.width) draw(); }).observe(canvas);
  }

  for (const pane of panes) {
    chooseRun(byId(`timeline-${pane.place}`), pane.place, pane.otherwise);
    listen(pane);
  }
  for (const each of section.querySelectorAll("[data-move]")) each.addEventListener("click", () => move(each.dataset.move));
  cursorDrawers.push((seconds) => {
    cursor = seconds;
    soon();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  matchMedia("print").addEventListener("change", draw);
  pool.addEventListener("change", () => show({ open: pool.value }));
  watch(["first", "second"], choose);
  watch(["open"], refold);
  watch(["from", "to"], setStretch);
  watch(["job", "first", "second"], () => {
    describeJob();
    drawOver();
  });
  addDownload(section, "SVG", "GPU timelines as SVG", () => {
    download("gpu-timelines.svg", svgOfPanes(shown(), jobsOf), "image/svg+xml");
  });
  choose();
  describeJob();
}

if (data.runs.length) setUpTimelines();
