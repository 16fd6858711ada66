// Who ran where, drawn with a pen: that of a canvas, or one that writes SVG.
const LABEL_WIDTH = 92;
const AXIS_HEIGHT = 26;
const BAND_HEIGHT = 30;
const GROUP_GAP = 10;
// Pixels of a GPU below which an accelerator type is shown as a whole until it is opened.
const THINNEST_ROW = 2;

// Hues a golden angle apart, so that neighbours in the trace differ; lightness varies too, for the colour-blind.
const jobColours = [];
function jobColour(job) {
  jobColours[job] ??= `hsl(${(job * 137.508) % 360} ${[52, 62, 42][job % 3]}% ${[46, 62, 70][(job >> 1) % 3]}%)`;
  return jobColours[job];
}

// Whether a run has so many GPUs that not all of them can be shown in so many pixels.
function folds(run, room) {
  return run.lanes.length > 0 && room < THINNEST_ROW * run.lanes.length;
}

// Vertical layout of about so many pixels: for each accelerator type a band, then its GPUs; of a large cluster only
// those of the types that are opened.
function layOut(run, room, opened) {
  const foldable = folds(run, room);
  const isOpen = (name) => run.lanes.length > 0 && (!foldable || opened.includes(name));
  const rows = run.capacity.reduce((sum, count, at) => sum + (isOpen(run.accelerators[at]) ? count : 0), 0);
  const tall = clamp(Math.floor(room / Math.max(rows, 1)), 1, 16);
  let [top, first] = [AXIS_HEIGHT, 0];
  const groups = run.accelerators.map((name, position) => {
    const count = run.capacity[position];
    const open = isOpen(name);
    const group = { name, position, count, first, open, band: top, rows: top + BAND_HEIGHT + 2, nodeSize: run.nodeSizes[position] };
    group.height = open ? count * tall : 0;
    top = group.rows + group.height + GROUP_GAP;
    first += count;
    return group;
  });
  return { groups, tall, foldable, total: top };
}

// Where times stand in a pane: `run`, `layout`, `width`, and the stretch `from` to `to` that is shown.
const timeAt = (pane, x) => pane.from + ((x - LABEL_WIDTH) / (pane.width - LABEL_WIDTH)) * (pane.to - pane.from);
const pixelAt = (pane, time) => LABEL_WIDTH + ((time - pane.from) / (pane.to - pane.from)) * (pane.width - LABEL_WIDTH);

function paintsOf(element) {
  const names = ["ink", "soft", "line", "veil", "busy", "paper", "accent"];
  return Object.fromEntries(names.map((name) => [name, styleOf(`--${name}`, element)]));
}

// Hours at which dates stand on an axis.
const DATE_STEPS = [1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760];

function dateTicks(from, to, room) {
  const raw = (to - from) / 3600 / Math.max(2, Math.floor(room / 110));
  const step = 3600 * (DATE_STEPS.find((each) => each >= raw) ?? Math.ceil(raw / 8760) * 8760);
  const first = Math.ceil((data.origin + from) / step) * step - data.origin;
  const ticks = [];
  for (let tick = first; tick <= to; tick += step) ticks.push([tick, when(tick).slice(5, step < 86400 ? 16 : 10)]);
  return ticks;
}

function hourTicks(from, to, room) {
  const raw = (to - from) / 3600 / Math.max(2, Math.floor(room / 90));
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(from / 3600 / step); tick * step * 3600 <= to; tick += 1) ticks.push(tick * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return ticks.map((tick) => [tick * 3600, `${tick.toFixed(digits)} h`]);
}

function drawTimeAxis(pen, pane, paints) {
  const timeTicks = known(data.origin) ? dateTicks : hourTicks;
  pen.textAlign = "center";
  for (const [tick, text] of timeTicks(pane.from, pane.to, pane.width - LABEL_WIDTH)) {
    const x = pixelAt(pane, tick);
    pen.fillStyle = paints.line;
    pen.fillRect(x, AXIS_HEIGHT - 6, 1, pane.layout.total - AXIS_HEIGHT);
    pen.fillStyle = paints.soft;
    if (x < pane.width - 20) pen.fillText(text, Math.max(x, LABEL_WIDTH + 12), 14);
  }
}

function drawBand(pen, pane, group, paints) {
  const { run, width } = pane;
  pen.textAlign = "left";
  pen.fillStyle = paints.ink;
  const sign = pane.layout.foldable ? (group.open ? "▾ " : "▸ ") : "";
  pen.fillText(sign + group.name.slice(0, 14), 0, group.band + 12);
  pen.fillStyle = paints.soft;
  pen.fillText(`${group.count} GPUs`, 0, group.band + 27);
  pen.fillStyle = paints.veil;
  pen.fillRect(LABEL_WIDTH, group.band, width - LABEL_WIDTH, BAND_HEIGHT);
  const busy = run.busy[group.position] ?? [];
  const bin = run.busyUntil / busy.length;
  pen.fillStyle = paints.busy;
  busy.forEach((gpus, index) => {
    const x0 = Math.max(pixelAt(pane, index * bin), LABEL_WIDTH);
    const x1 = Math.min(pixelAt(pane, (index + 1) * bin), width);
    const tall = group.count ? (BAND_HEIGHT * gpus) / group.count : 0;
    if (x1 > x0) pen.fillRect(x0, group.band + BAND_HEIGHT - tall, x1 - x0 + 0.5, tall);
  });
}

// The bars of all jobs, or of some alone. Of several within half a pixel, at one height, the first is drawn. Of a type that is not
// opened, those of some jobs stand at the foot of its band.
function drawBars(pen, pane, group, jobs = null) {
  const { run, layout, width, from, to } = pane;
  const row = layout.tall > 4 ? layout.tall - 1 : layout.tall > 2 ? layout.tall - 0.5 : layout.tall;
  const tall = group.open ? row : BAND_HEIGHT / 4;
  for (let gpu = 0; gpu < group.count; gpu += 1) {
    const y = group.open ? group.rows + gpu * layout.tall : group.band + BAND_HEIGHT - tall;
    const lane = run.lanes[group.first + gpu];
    const drawnTo = new Map();
    for (const piece of piecesWithin(lane.pieces, from, to)) {
      const job = lane.job[piece.bar];
      if (jobs && !jobs.has(job)) continue;
      const x0 = Math.max(pixelAt(pane, piece.from), LABEL_WIDTH);
      const x1 = Math.min(pixelAt(pane, piece.to), width);
      if (x1 - (drawnTo.get(piece.low) ?? -1) < 0.5) continue;
      drawnTo.set(piece.low, x1);
      pen.fillStyle = jobColour(job);
      const top = y + (1 - piece.low - piece.height) * tall;
      pen.fillRect(x0, top, Math.max(x1 - x0 - (x1 - x0 > 4 ? 0.7 : 0), jobs ? 1.5 : 0.6), piece.height * tall);
    }
  }
}

// Nodes by their numbers, with a line between two, where there is room.
function drawNodes(pen, pane, group, paints) {
  const tall = group.nodeSize * pane.layout.tall;
  if (group.nodeSize < 2 || tall < 6) return;
  pen.textAlign = "left";
  for (let node = 0; node * group.nodeSize < group.count; node += 1) {
    const y = group.rows + node * tall;
    pen.fillStyle = paints.line;
    if (node) pen.fillRect(LABEL_WIDTH - 6, y - 0.5, pane.width - LABEL_WIDTH + 6, 0.5);
    pen.fillStyle = paints.soft;
    if (tall >= 14) pen.fillText(`node ${node}`, 12, y + tall / 2 + 4);
  }
}

function drawPane(pen, pane, paints) {
  const { layout, width } = pane;
  drawTimeAxis(pen, pane, paints);
  for (const group of layout.groups) {
    drawBand(pen, pane, group, paints);
    if (!group.open) continue;
    pen.fillStyle = paints.veil;
    pen.fillRect(LABEL_WIDTH, group.rows, width - LABEL_WIDTH, group.height);
    drawBars(pen, pane, group);
    drawNodes(pen, pane, group, paints);
  }
  const { until } = pane.run;
  if (known(until) && until < pane.to) {
    const x = Math.max(pixelAt(pane, until), LABEL_WIDTH);
    pen.textAlign = "left";
    pen.fillStyle = paints.soft;
    for (const group of layout.groups) {
      if (group.open) pen.fillText("left out, see the note", x + 8, group.rows + 16);
    }
  }
}

// Some jobs alone, over what was drawn; and when the chosen one came and went.
function drawJobs(pen, pane, jobs, chosen, paints) {
  const { run, layout, width } = pane;
  for (const group of layout.groups) {
    if (!run.lanes.length) continue;
    pen.globalAlpha = 0.8;
    pen.fillStyle = paints.paper;
    pen.fillRect(LABEL_WIDTH, group.rows, width - LABEL_WIDTH, group.height);
    pen.globalAlpha = 1;
    drawBars(pen, pane, group, jobs);
  }
  if (chosen < 0) return;
  const marks = [["arrived", traceOf(run).arrival[chosen], "left"], ["done", run.completion[chosen], "right"]];
  for (const [word, time, side] of marks) {
    if (!known(time) || time < pane.from || time > pane.to) continue;
    const x = pixelAt(pane, time);
    pen.fillStyle = paints.accent;
    pen.fillRect(x - 0.75, AXIS_HEIGHT - 6, 1.5, layout.total - AXIS_HEIGHT);
    pen.textAlign = x > width - 60 ? "right" : x < LABEL_WIDTH + 60 ? "left" : side === "left" ? "right" : "left";
    pen.fillText(word, x + (pen.textAlign === "left" ? 4 : -4), AXIS_HEIGHT + 8);
  }
}

// A pen with what of a canvas's the drawing uses; it writes rectangles and texts.
class SvgPen {
  constructor(font) {
    this.parts = [];
    this.font = font;
    this.globalAlpha = 1;
  }

  fillRect(x, y, width, height) {
    const at = [x, y, width, height].map((value) => value.toFixed(1));
    const alpha = this.globalAlpha < 1 ? ` fill-opacity="${this.globalAlpha}"` : "";
    this.parts.push(`<rect x="${at[0]}" y="${at[1]}" width="${at[2]}" height="${at[3]}" fill="${this.fillStyle}"${alpha}/>`);
  }

  fillText(text, x, y) {
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    const node = svgNode("text", {
      x: x.toFixed(1), y, fill: this.fillStyle, "text-anchor": anchor, "font-family": "sans-serif", "font-size": 12,
    }, text);
    this.parts.push(xmlOf(node));
  }
}

// The panes below each other on white paper.
function svgOfPanes(panes, jobsOf) {
  return onWhitePaper(make("i"), (paper) => {
    const paints = paintsOf(paper);
    const margin = 10;
    let top = margin;
    const drawn = panes.map((pane) => {
      const pen = new SvgPen();
      pen.textAlign = "left";
      pen.fillStyle = paints.ink;
      pen.fillText(pane.run.name, 0, 14);
      const { jobs, chosen } = jobsOf(pane);
      const below = new SvgPen();
      drawPane(below, pane, paints);
      if (jobs.size) drawJobs(below, pane, jobs, chosen, paints);
      const content = `<g transform="translate(${margin} ${top})">${pen.parts.join("")}` +
        `<g transform="translate(0 22)">${below.parts.join("")}</g></g>`;
      top += pane.layout.total + 34;
      return content;
    });
    return svgFile(Math.round(panes[0].width + 2 * margin), Math.round(top), drawn.join(""));
  });
}
