// Tables as CSV and figures as SVG, with all of their style in the file.
function download(name, text, type) {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Rows of values; what holds commas, quotes or line breaks is quoted (RFC 4180).
function csv(rows) {
  const cell = (value) => {
    const text = known(value) ? String(value) : "";
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

// The name of SVG's elements, from those that are there.
const SVG = document.querySelector("svg")?.namespaceURI;

const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "display"];

// A place in which the style sheet has the colours of white paper.
function onWhitePaper(node, use) {
  const paper = make("div", "", "light");
  paper.style.cssText = "position:absolute;left:-10000px;top:0";
  paper.append(node);
  document.body.append(paper);
  const result = use(paper);
  paper.remove();
  return result;
}

function svgNode(tag, attributes, text = "") {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}

// Lines and names of the policies whose curves are shown, in columns from `top` on; returns their height.
function addLegend(chart, width, top) {
  const curves = [...chart.querySelectorAll(".curve:not(.off)")].map((curve) => Number(curve.dataset.policy));
  const shown = data.policies.map((name, policy) => ({ name, policy })).filter(({ policy }) => curves.includes(policy));
  const columns = Math.max(Math.floor(width / 310), 1);
  shown.forEach(({ name, policy }, position) => {
    const [x, y] = [58 + (position % columns) * 300, top + 16 + 18 * Math.floor(position / columns)];
    chart.append(svgNode("path", { d: `M${x} ${y - 4}h26`, class: `curve c${policy}` }));
    chart.append(svgNode("text", { x: x + 34, y, class: "name" }, name));
  });
  return shown.length ? 26 + 18 * Math.floor((shown.length - 1) / columns) : 0;
}

// The chart as it is shown, on white and with a legend; hidden curves and the cursor are left out.
function svgOf(chart) {
  const copy = chart.cloneNode(true);
  return onWhitePaper(copy, () => {
    const { width, height } = copy.viewBox.baseVal;
    const more = addLegend(copy, width, height);
    for (const node of [...copy.querySelectorAll("*")]) {
      const style = getComputedStyle(node);
      if (style.display === "none" || node.matches(".cursor, .stretch")) {
        node.remove();
        continue;
      }
      for (const name of DRAWN) {
        const value = style.getPropertyValue(name);
        if (value && name !== "display") node.setAttribute(name, value);
      }
      node.removeAttribute("class");
      node.removeAttribute("style");
    }
    return svgFile(width, height + more, [...copy.children].map(xmlOf).join(""));
  });
}

// A part of a file whose root says whose names these are.
function xmlOf(node) {
  return new XMLSerializer().serializeToString(node).replace(` xmlns="${SVG}"`, "");
}

function svgFile(width, height, content) {
  return `<svg xmlns="${SVG}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">` +
    `<rect width="${width}" height="${height}" fill="#ffffff"/>${content}</svg>\n`;
}

// Buttons stand beside the heading of the section.
function addDownload(section, text, label, action) {
  const heading = section.querySelector("h2");
  let tools = section.querySelector(".tools");
  if (!tools) {
    tools = make("span", "", "tools");
    heading.after(tools);
  }
  tools.append(button(text, label, action));
}

for (const section of document.querySelectorAll("section")) {
  const title = section.querySelector("h2").textContent;
  for (const chart of section.querySelectorAll("svg.chart")) {
    const name = chart.closest("figure")?.querySelector("figcaption")?.textContent ?? title;
    const file = `${name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}.svg`;
    const text = section.querySelectorAll("svg.chart").length > 1 ? `${name}: SVG` : "SVG";
    addDownload(section, text, `${name} as SVG`, () => download(file, svgOf(chart), "image/svg+xml"));
  }
}
