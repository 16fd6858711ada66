// The drawn charts: switch between scales, and say what is under the pointer.
for (const group of document.querySelectorAll(".switch")) {
  const chart = byId(`chart-${group.dataset.chart}`);
  if (!chart || chart.querySelectorAll(".view").length < 2) {
    group.hidden = true;
    group.style.display = "none";
    continue;
  }
  const buttons = [...group.querySelectorAll("button")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      for (const view of chart.querySelectorAll(".view")) {
        view.style.display = view.dataset.scale === button.dataset.scale ? "" : "none";
      }
    });
  }
}

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

function cdfAt(policy, name, x) {
  const { count, values } = policy[name];
  return policy.jobs && values.length ? (countUpTo(values, x) / values.length) * (count / policy.jobs) : 0;
}

function stepAt({ time, value }, seconds) {
  const step = countUpTo(time, seconds) - 1;
  return step >= 0 && step < value.length ? value[step] : null;
}

const percent = (fraction) => `${(100 * fraction).toFixed(1)}%`;
const charts = {
  jct: { heading: (x) => `within ${hours(x * 3600)}`, value: (policy, x) => percent(cdfAt(policy, "jct", x * 3600)) },
  rho: { heading: (x) => `rho at most ${x.toFixed(2)}`, value: (policy, x) => percent(cdfAt(policy, "rho", x)) },
  queue: { heading: (x) => `after ${hours(x * 3600)}`, value: (policy, x) => number(stepAt(policy.queue, x * 3600)) },
  utilization: {
    heading: (x) => `after ${hours(x * 3600)}`,
    value: (policy, x) => percent(stepAt(policy.utilization, x * 3600) ?? 0),
  },
  efficiency: {
    heading: (x) => `after ${hours(x * 3600)}`,
    value: (policy, x) => percent(stepAt(policy.efficiency, x * 3600) ?? 0),
  },
};

function swatch(policy) {
  const node = make("i");
  node.style.cssText = "flex:none;width:9px;height:9px;border-radius:2px";
  node.style.background = `var(--c${policy % 10})`;
  return node;
}

function valueUnder(chart, event) {
  const box = chart.getBoundingClientRect();
  const [left, right] = [Number(chart.dataset.left), Number(chart.dataset.right)];
  const pixel = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
  if (pixel < left || pixel > right) return null;
  const view = [...chart.querySelectorAll(".view")].find((each) => each.style.display !== "none");
  const [low, high] = [Number(view.dataset.low), Number(view.dataset.high)];
  const share = (pixel - left) / (right - left);
  return { pixel, x: view.dataset.scale === "log" ? low * (high / low) ** share : low + share * (high - low) };
}

for (const [name, { heading, value }] of Object.entries(charts)) {
  const chart = byId(`chart-${name}`);
  if (!chart) continue;
  // A title element would pop up as the browser's own tooltip, over ours; its text stays as the accessible name.
  const title = chart.querySelector("title");
  chart.removeAttribute("aria-labelledby");
  chart.setAttribute("aria-label", title.textContent);
  chart.setAttribute("aria-describedby", `${name}-desc`);
  title.remove();
  const cursor = chart.querySelector(".cursor");
  chart.addEventListener("pointermove", (event) => {
    const under = valueUnder(chart, event);
    cursor.style.display = under ? "" : "none";
    if (!under) return hideTip();
    cursor.setAttribute("transform", `translate(${under.pixel} 0)`);
    const rows = data.policies.map((policy, position) => {
      const row = make("div");
      row.append(swatch(position), make("span", policy.name), make("b", value(policy, under.x)));
      return row;
    });
    showTip(event, make("strong", heading(under.x)), ...rows.filter((_, position) => !hidden.has(position)));
  });
  chart.addEventListener("pointerleave", () => {
    cursor.style.display = "none";
    hideTip();
  });
}
