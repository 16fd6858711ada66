// Who ran where. Drawn on a canvas: tens of thousands of bars, drawn anew at each zoom.
const LABEL_WIDTH = 92;
const AXIS_HEIGHT = 26;
const BAND_HEIGHT = 30;
const GROUP_GAP = 10;
const FEW_BARS = 4000;

// Hues a golden angle apart, so that neighbours in the trace differ; lightness varies too, for the colour-blind.
const jobColours = [];
function jobColour(job) {
  jobColours[job] ??= `hsl(${(job * 137.508) % 360} ${[52, 62, 42][job % 3]}% ${[46, 62, 70][(job >> 1) % 3]}%)`;
  return jobColours[job];
}

// Bars come as [round since the last bar's first, rounds, job, ...]; times follow from the rounds and completions.
function decodeBars(policy) {
  policy.rows ??= policy.bars.map((flat) => {
    const bars = [];
    for (let at = 0, first = 0; at < flat.length; at += 3) {
      first += flat[at];
      const [rounds, job] = [flat[at + 1], flat[at + 2]];
      const ends = policy.roundEnd[Math.min(first + rounds - 1, policy.roundEnd.length - 1)];
      const done = policy.completion[job];
      const from = policy.roundStart[first];
      const to = done !== null && done > from ? Math.min(ends, done) : ends;
      bars.push({ from, to: policy.until === null ? to : Math.min(to, policy.until), rounds, job });
    }
    return bars;
  });
  return policy.rows;
}

// Vertical layout: for each accelerator type a band, then its GPUs.
function layOut(policy) {
  const gpus = policy.capacity.reduce((sum, count) => sum + count, 0);
  const placed = policy.bars.length > 0;
  const height = placed ? clamp(Math.floor(760 / Math.max(gpus, 1)), 3, 16) : 0;
  let [top, first] = [AXIS_HEIGHT, 0];
  const groups = policy.accelerators.map((name, position) => {
    const count = policy.capacity[position];
    const group = { name, position, count, first, band: top, rows: top + BAND_HEIGHT + 2 };
    top = group.rows + count * height + GROUP_GAP;
    first += count;
    return group;
  });
  return { groups, height, total: top };
}

function timeTicks(from, to, room) {
  const raw = (to - from) / 3600 / Math.max(2, Math.floor(room / 90));
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(from / 3600 / step); tick * step * 3600 <= to; tick += 1) ticks.push(tick * step);
  return { ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

function setUpTimeline() {
  const canvas = byId("timeline-canvas");
  const select = byId("timeline-policy");
  if (!canvas) return;
  const view = { from: 0, to: 1, job: -1 };
  let [policy, layout, width] = [null, null, 0];

  const timeAt = (x) => view.from + ((x - LABEL_WIDTH) / (width - LABEL_WIDTH)) * (view.to - view.from);
  const pixelAt = (time) => LABEL_WIDTH + ((time - view.from) / (view.to - view.from)) * (width - LABEL_WIDTH);

  function choose() {
    policy = data.policies[Number(select.value)];
    layout = layOut(policy);
    view.job = -1;
    const starts = policy.bars.length ? decodeBars(policy).flat().map((bar) => bar.from).sort((a, b) => a - b) : [];
    const end = starts.length > 6000 ? starts[FEW_BARS] : policy.busyUntil;
    setWindow(0, Math.max(end, 1));
  }

  function setWindow(from, to) {
    const whole = Math.max(policy.busyUntil, 1);
    const span = clamp(to - from, Math.min(600, whole), whole);
    view.from = clamp(from, 0, whole - span);
    view.to = view.from + span;
    describe();
    draw();
  }

  function describe() {
    const parts = [];
    if (!policy.busyUntil) parts.push("Nothing ran.");
    else parts.push(`Shown: ${hours(view.from, 1)} to ${hours(view.to, 1)} of ${hours(policy.busyUntil, 1)}.`);
    if (policy.busyUntil && !policy.bars.length) parts.push("The run did not place jobs on GPUs: busy GPUs only.");
    if (policy.until !== null) {
      const count = policy.barCount.toLocaleString("en");
      parts.push(`Of ${count} bars, those after ${hours(policy.until, 1)} are left out to keep the file small;` +
        " the bands cover the whole run.");
    }
    byId("timeline-note").textContent = parts.join(" ");
    canvas.setAttribute("aria-label", `GPU timeline of ${policy.name}. ${parts.join(" ")}`);
  }

  function draw() {
    const ratio = devicePixelRatio || 1;
    width = canvas.clientWidth;
    canvas.style.height = `${layout.total}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(layout.total * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    drawTimeAxis(pen);
    for (const group of layout.groups) {
      drawBand(pen, group);
      if (policy.bars.length) drawBars(pen, group);
    }
    drawLeftOut(pen);
  }

  function drawTimeAxis(pen) {
    const { ticks, digits } = timeTicks(view.from, view.to, width - LABEL_WIDTH);
    pen.textAlign = "center";
    for (const tick of ticks) {
      const x = pixelAt(tick * 3600);
      pen.fillStyle = colourOf("--line");
      pen.fillRect(x, AXIS_HEIGHT - 6, 1, layout.total - AXIS_HEIGHT);
      pen.fillStyle = colourOf("--soft");
      if (x < width - 20) pen.fillText(`${tick.toFixed(digits)} h`, Math.max(x, LABEL_WIDTH + 12), 14);
    }
  }

  function drawBand(pen, group) {
    pen.textAlign = "left";
    pen.fillStyle = colourOf("--ink");
    pen.fillText(group.name.slice(0, 14), 0, group.band + 12);
    pen.fillStyle = colourOf("--soft");
    pen.fillText(`${group.count} GPUs`, 0, group.band + 27);
    pen.fillStyle = colourOf("--veil");
    pen.fillRect(LABEL_WIDTH, group.band, width - LABEL_WIDTH, BAND_HEIGHT);
    const busy = policy.busy[group.position] || [];
    const bin = policy.busyUntil / busy.length;
    pen.fillStyle = colourOf("--busy");
    busy.forEach((gpus, index) => {
      const [x0, x1] = [Math.max(pixelAt(index * bin), LABEL_WIDTH), Math.min(pixelAt((index + 1) * bin), width)];
      const tall = group.count ? (BAND_HEIGHT * gpus) / group.count : 0;
      if (x1 > x0) pen.fillRect(x0, group.band + BAND_HEIGHT - tall, x1 - x0 + 0.5, tall);
    });
  }

  function drawBars(pen, group) {
    const tall = Math.max(layout.height - (layout.height > 4 ? 1 : 0.5), 1);
    const idle = colourOf("--veil");
    for (let gpu = 0; gpu < group.count; gpu += 1) {
      const y = group.rows + gpu * layout.height;
      pen.fillStyle = idle;
      pen.fillRect(LABEL_WIDTH, y, width - LABEL_WIDTH, tall);
      for (const bar of policy.rows[group.first + gpu]) {
        if (bar.from >= view.to) break;
        if (bar.to <= view.from) continue;
        const x0 = Math.max(pixelAt(bar.from), LABEL_WIDTH);
        const x1 = Math.min(pixelAt(bar.to), width);
        pen.globalAlpha = view.job < 0 || view.job === bar.job ? 1 : 0.16;
        pen.fillStyle = jobColour(bar.job);
        pen.fillRect(x0, y, Math.max(x1 - x0 - (x1 - x0 > 4 ? 0.7 : 0), 0.6), tall);
      }
      pen.globalAlpha = 1;
    }
  }

  function drawLeftOut(pen) {
    if (policy.until === null || policy.until >= view.to) return;
    const x = Math.max(pixelAt(policy.until), LABEL_WIDTH);
    pen.textAlign = "left";
    pen.fillStyle = colourOf("--soft");
    for (const group of layout.groups) pen.fillText("left out, see the note", x + 8, group.rows + 16);
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const group = layout.groups.find((each) => y >= each.band && y < each.rows + each.count * layout.height);
    if (!group || x < LABEL_WIDTH) return null;
    const time = timeAt(x);
    if (y < group.rows) return { group, time, bars: [] };
    const gpu = Math.floor((y - group.rows) / layout.height);
    // Bars a fraction of a pixel wide should still be found: look within half a pixel.
    const slack = (view.to - view.from) / (width - LABEL_WIDTH) / 2;
    const bars = policy.rows[group.first + gpu].filter((bar) => bar.from <= time + slack && bar.to > time - slack);
    return { group, time, gpu: group.first + gpu, bars };
  }

  function point(event) {
    const found = under(event);
    const job = found && found.bars.length ? found.bars[0].job : -1;
    if (job !== view.job) {
      view.job = job;
      draw();
    }
    if (!found) return hideTip();
    if (found.gpu === undefined) {
      const busy = policy.busy[found.group.position] || [];
      const gpus = busy[Math.floor((found.time / policy.busyUntil) * busy.length)];
      return showTip(event, make("strong", `${found.group.name}, ${hours(found.time, 1)}`),
        make("div", `${number(gpus)} of ${found.group.count} GPUs busy`));
    }
    const trace = data.traces[policy.trace];
    const lines = found.bars.slice(0, 4).flatMap((bar) => [
      make("strong", `job ${trace.id[bar.job]}`),
      make("div", trace.types[trace.type[bar.job]]),
      make("div", `${trace.gpus[bar.job]} ${trace.gpus[bar.job] === 1 ? "GPU" : "GPUs"}; ${hours(bar.from)} to ` +
        `${hours(bar.to)}, ${bar.rounds} ${bar.rounds === 1 ? "round" : "rounds"}`),
    ]);
    const place = make("div", `${found.group.name}, GPU ${found.gpu}${lines.length ? "" : `: idle at ${hours(found.time)}`}`);
    return showTip(event, ...lines, place);
  }

  function move(what) {
    const span = view.to - view.from;
    const middle = view.from + span / 2;
    if (what === "left") setWindow(view.from - span / 2, view.to - span / 2);
    if (what === "right") setWindow(view.from + span / 2, view.to + span / 2);
    if (what === "in") setWindow(middle - span / 4, middle + span / 4);
    if (what === "out") setWindow(middle - span, middle + span);
    if (what === "all") setWindow(0, policy.busyUntil);
  }

  let grip = null;
  canvas.addEventListener("pointerdown", (event) => {
    grip = { x: event.clientX, from: view.from, to: view.to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grip) return point(event);
    const shift = ((grip.x - event.clientX) / (width - LABEL_WIDTH)) * (grip.to - grip.from);
    return setWindow(grip.from + shift, grip.to + shift);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { grip = null; });
  canvas.addEventListener("pointerleave", () => {
    hideTip();
    if (view.job >= 0) {
      view.job = -1;
      draw();
    }
  });
  const keys = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", 0: "all" };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(keys[event.key]);
  });
  for (const button of document.querySelectorAll("[data-move]")) {
    button.addEventListener("click", () => move(button.dataset.move));
  }
  select.addEventListener("change", choose);
  new ResizeObserver(() => { if (canvas.clientWidth !== width) draw(); }).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  matchMedia("print").addEventListener("change", draw);
  choose();
}

setUpTimeline();
