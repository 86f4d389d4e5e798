"use strict";
// What /status.json says, drawn again every few seconds. Text is only ever set as
// text.
const every = 5000;

function el(tag, attrs, ...children) {
  const svg = ["svg", "path"].includes(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) e.setAttribute(k, v);
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

function level(name, text) { return el("span", { class: "level " + name }, text || name); }

function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i++; }
  return (n < 10 && i > 0 ? n.toFixed(1) : Math.round(n)) + " " + units[i] + "/s";
}

// clock is a time, with its date unless that is today's.
function clock(t) {
  const d = new Date(t), time = d.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  return (d.toDateString() === new Date().toDateString() ? "" : d.toLocaleDateString([], { dateStyle: "medium" }) + ", ") + time;
}

// findings are the parts that are worse than what is below them.
function findings(parts, out) {
  for (const p of parts || []) {
    const worst = (p.parts || []).some((c) => c.level === p.level);
    if (p.level !== "ok" && !worst && p.text) out.push(p);
    findings(p.parts, out);
  }
  return out;
}

function throughput(points) {
  if (!points || points.length < 2) return null;
  const most = Math.max(1, ...points.map((p) => Math.max(p.read_bytes_per_second, p.written_bytes_per_second)));
  const from = Date.parse(points[0].time), to = Date.parse(points[points.length - 1].time);
  const line = (key) => points.map((p, i) => {
    const x = 1000 * (Date.parse(p.time) - from) / Math.max(1, to - from), y = 98 - 96 * p[key] / most;
    return (i ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1);
  }).join("");
  const last = points[points.length - 1];
  return el("div", {},
    el("h3", {}, "Throughput since " + clock(points[0].time) + ", at most " + bytes(most)),
    el("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": "bytes read and written per second" },
      el("path", { class: "read", d: line("read_bytes_per_second") }), el("path", { class: "written", d: line("written_bytes_per_second") })),
    el("div", { class: "key" }, el("span", { class: "read" }, "read " + bytes(last.read_bytes_per_second)),
      el("span", { class: "written" }, "written " + bytes(last.written_bytes_per_second))));
}

function tree(parts) {
  return el("ul", {}, ...(parts || []).map((p) => el("li", {}, level(p.level), " " + p.name + (p.text ? ": " + p.text : ""), p.parts ? tree(p.parts) : "")));
}

const opened = new Set();

function brick(b) {
  const s = b.status, name = s ? s.level : "unknown";
  const box = el("section", { class: "brick " + (b.error ? "unknown" : name) });
  box.append(el("h2", {}, b.name, level(b.error ? "unknown" : name)));
  if (b.error) box.append(el("p", {}, b.error));
  const all = findings(s ? s.parts : [], []), order = ["fault", "warning", "unknown"];
  const silent = new Set(all.filter((p) => p.code === "host-silent").map((p) => p.subject));
  // Other parts say that they could not ask a silent host: it is named once.
  const found = all.filter((p) => p.code !== "host-unknown" || !silent.has(p.subject)).sort((x, y) => order.indexOf(x.level) - order.indexOf(y.level));
  for (const [host, why] of Object.entries(b.silent || {})) {
    if (!silent.has(host)) box.append(el("p", { class: "level unknown" }, host + " does not answer: " + why));
  }
  if (!s) return box;
  for (const v of s.services || []) {
    box.append(el("p", { class: "services" }, v.service + (v.address ? " (" + v.address + ")" : "") + (v.server ? " on " + v.server : " runs nowhere, or no server knows") +
      (v.since ? " since " + new Date(v.since).toLocaleString([], { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" }) : "")));
  }
  if (found.length) {
    box.append(el("ul", {}, ...found.map((p) => el("li", {}, level(p.level), " " + (p.text.includes(p.name) ? "" : p.name + ": ") + p.text, p.code ? el("code", {}, " " + p.code) : "", p.mend ? el("span", { class: "mend" }, "\u2192 " + p.mend) : ""))));
  }
  box.append(el("div", { class: "parts" }, ...s.parts.map((p) => level(p.level, p.name))));
  const plot = throughput(b.points);
  if (plot) box.append(plot);
  if ((b.changes || []).length) {
    box.append(el("h3", {}, "What came and went"), el("ul", {}, ...b.changes.slice(-12).reverse().map((c) =>
      el("li", {}, el("time", { datetime: c.time }, clock(c.time)), c.ended ? level("ok", "over") : level(c.level), " " + c.text))));
  }
  const tail = el("details", opened.has(b.name) ? { open: "" } : {}, el("summary", {}, "Everything"), tree(s.parts));
  tail.addEventListener("toggle", () => tail.open ? opened.add(b.name) : opened.delete(b.name));
  box.append(tail);
  return box;
}

let last = 0;

async function look() {
  const when = document.getElementById("when");
  try {
    const answer = await fetch("status.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    const bricks = await answer.json();
    document.getElementById("bricks").replaceChildren(...bricks.map(brick));
    const seen = bricks.map((b) => Date.parse(b.looked)).filter((t) => !Number.isNaN(t));
    last = seen.length ? Math.min(...seen) : 0;
    const worst = ["fault", "warning", "unknown"].find((l) => bricks.some((b) => (b.error ? "unknown" : b.status ? b.status.level : "unknown") === l)) || "ok";
    document.title = worst + " \u2013 Mortar";
    when.textContent = last ? "seen at " + clock(last) : "waiting for the first look";
    when.className = last && Date.now() - last > 12 * every ? "stale" : "";
  } catch (e) {
    when.textContent = "mortar watch does not answer" + (last ? "; seen at " + clock(last) : "");
    when.className = "stale";
  }
  setTimeout(look, every);
}
look();
