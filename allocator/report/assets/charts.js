// The drawn charts: switch between scales, say what is under the pointer, and share a cursor over time.
for (const group of document.querySelectorAll(".switch")) {
  const chart = byId(`chart-${group.dataset.chart}`);
  const views = chart ? [...chart.querySelectorAll(".view")] : [];
  if (views.length < 2) {
    group.hidden = true;
    group.style.display = "none";
    continue;
  }
  const key = `${group.dataset.chart}-scale`;
  const buttons = [...group.querySelectorAll("button")];
  const scale = () => {
    const chosen = view.get(key) === "linear" ? "linear" : "log";
    for (const each of buttons) each.setAttribute("aria-pressed", String(each.dataset.scale === chosen));
    for (const each of views) each.style.display = each.dataset.scale === chosen ? "" : "none";
  };
  for (const each of buttons) {
    each.addEventListener("click", () => show({ [key]: each.dataset.scale === "log" ? null : "linear" }));
  }
  watch([key], scale);
  scale();
}

function cdfAt({ jobs }, { count, values }, x) {
  return jobs && values.length ? (countUpTo(values, x) / values.length) * (count / jobs) : 0;
}

function stepAt({ time, value }, seconds) {
  const step = countUpTo(time, seconds) - 1;
  return step >= 0 && step < value.length ? value[step] : null;
}

// What a policy has there: the mean of its runs, without those that have ended.
function meanOf(policy, value) {
  const values = runsOf[policy].map(value).filter(known);
  return values.length ? values.reduce((sum, each) => sum + each, 0) / values.length : null;
}

const charts = {
  jct: { heading: (x) => `within ${hours(x * 3600)}`, value: (run, x) => cdfAt(run, run.jctValues, x * 3600) },
  rho: { heading: (x) => `${data.fairness} at most ${x.toFixed(2)}`, value: (run, x) => cdfAt(run, run.rhoValues, x) },
  queue: { value: (run, x) => stepAt(run.queue, x * 3600), text: number },
  utilization: { value: (run, x) => stepAt(run.utilization, x * 3600) },
  fragmentation: { value: (run, x) => stepAt(run.fragmentation, x * 3600) },
  efficiency: { value: (run, x) => stepAt(run.efficiency, x * 3600) },
};

// One cursor over time, in all charts and timelines at once: seconds, or null for none.
const cursorDrawers = [];
function setCursor(seconds) {
  for (const draw of cursorDrawers) draw(seconds);
}

function pixelMap(chart) {
  const [left, right] = [Number(chart.dataset.left), Number(chart.dataset.right)];
  const shown = [...chart.querySelectorAll(".view")].find((each) => each.style.display !== "none");
  const [low, high] = [Number(shown.dataset.low), Number(shown.dataset.high)];
  const log = shown.dataset.scale === "log";
  return {
    left,
    right,
    value: (pixel) => {
      const share = (pixel - left) / (right - left);
      return log ? low * (high / low) ** share : low + share * (high - low);
    },
    pixel: (value) => left + ((value - low) / (high - low)) * (right - left),
  };
}

function under(chart, event) {
  const box = chart.getBoundingClientRect();
  const map = pixelMap(chart);
  const pixel = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
  return pixel < map.left || pixel > map.right ? null : { pixel, x: map.value(pixel) };
}

function placeCursor(chart, pixel) {
  const cursor = chart.querySelector(".cursor");
  const { left, right } = pixelMap(chart);
  const inside = pixel !== null && pixel >= left && pixel <= right;
  cursor.style.display = inside ? "" : "none";
  if (inside) cursor.setAttribute("transform", `translate(${pixel.toFixed(1)} 0)`);
}

function valueRows({ value, text = (found) => percent(found ?? 0) }, x) {
  return data.policies.flatMap((name, policy) => {
    if (hidden.has(policy)) return [];
    const row = make("div");
    row.append(swatch(policy), make("span", name), make("b", text(meanOf(policy, (run) => value(run, x)))));
    return [row];
  });
}

// Over time: dragging chooses the stretch that the timelines show.
function setUpStretch(chart) {
  const rect = chart.querySelector(".stretch");
  const mark = () => {
    const { left, right, pixel } = pixelMap(chart);
    const [from, to] = [viewNumber("from", NaN), viewNumber("to", NaN)].map((s) => clamp(pixel(s / 3600), left, right));
    const wide = to > from;
    rect.setAttribute("x", wide ? from.toFixed(1) : left);
    rect.setAttribute("width", wide ? Math.max(to - from, 1).toFixed(1) : 0);
  };
  let start = null;
  chart.addEventListener("pointerdown", (event) => {
    start = event.pointerType === "mouse" ? under(chart, event)?.x ?? null : null;
  });
  chart.addEventListener("pointermove", (event) => {
    const now = start === null ? null : under(chart, event);
    if (now && Math.abs(now.x - start) > 0) {
      show({ from: Math.round(Math.min(start, now.x) * 3600), to: Math.round(Math.max(start, now.x) * 3600) }, { step: false });
    }
  });
  addEventListener("pointerup", () => { start = null; });
  watch(["from", "to"], mark);
  mark();
  cursorDrawers.push((seconds) => placeCursor(chart, seconds === null ? null : pixelMap(chart).pixel(seconds / 3600)));
}

for (const [name, kind] of Object.entries(charts)) {
  const chart = byId(`chart-${name}`);
  if (!chart) continue;
  const overTime = chart.dataset.over === "time";
  const heading = kind.heading ?? ((x) => (known(data.origin) ? when(x * 3600) : `after ${hours(x * 3600)}`));
  // A title element would pop up as the browser's own tooltip, over ours; its text stays as the accessible name.
  const title = chart.querySelector("title");
  chart.removeAttribute("aria-labelledby");
  chart.setAttribute("aria-label", title.textContent);
  chart.setAttribute("aria-describedby", `${name}-desc`);
  title.remove();
  chart.addEventListener("pointermove", (event) => {
    const found = under(chart, event);
    if (overTime) setCursor(found ? found.x * 3600 : null);
    else placeCursor(chart, found ? found.pixel : null);
    if (!found) return hideTip();
    return showTip(event, make("strong", heading(found.x)), ...valueRows(kind, found.x));
  });
  chart.addEventListener("pointerleave", () => {
    if (overTime) setCursor(null);
    else placeCursor(chart, null);
    hideTip();
  });
  if (overTime) setUpStretch(chart);
}
