// What is wrong with the page that is open, a line each. The value of this script is a list.
(() => {
  const wrong = new Set();
  const say = (what, text) => wrong.add(what + ": " + text.trim().replace(/\s+/g, " ").slice(0, 80));
  const shown = (e) => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });

  // Nothing is wider than the screen, but for what scrolls in a box of its own.
  const scrolls = (e) => { for (; e; e = e.parentElement) if (["auto", "scroll"].includes(getComputedStyle(e).overflowX)) return true; return false; };
  if (document.documentElement.scrollWidth > screen.width) say("overflow", "the page is " + document.documentElement.scrollWidth + " pixels wide, the screen " + screen.width);

  // Each text, with the box of its glyphs.
  const texts = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; (n = walk.nextNode());) {
    const e = n.parentElement;
    if (!n.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT", "TITLE"].includes(e.tagName.toUpperCase()) || !shown(e)) continue;
    const range = document.createRange();
    range.selectNodeContents(n);
    const box = range.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    texts.push({ e, box, text: n.data, svg: e.closest("svg") });
    if (box.right > screen.width + 1 && !scrolls(e) || box.left < -1) say("overflow", n.data);
  }
  for (const t of texts) {
    if (!t.svg) continue;
    const s = t.svg.getBoundingClientRect();
    if (t.box.left < s.left - 1 || t.box.right > s.right + 1 || t.box.top < s.top - 1 || t.box.bottom > s.bottom + 1) say("overflow of a drawing", t.text);
  }

  // Contrast of each text with what is below it. Source: WCAG 2.2, 1.4.3
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (e) => {
    const layers = [];
    for (; e; e = e.parentElement) layers.unshift(rgba(getComputedStyle(e).backgroundColor));
    return layers.reduce((below, c) => over(c, below), rgba("Canvas"));
  };
  // Shapes that are drawn before a text and have its middle.
  const below = (t) => {
    let c = ground(t.svg);
    const style = getComputedStyle(t.e);
    if (style.paintOrder.startsWith("stroke") && style.stroke !== "none") return over(rgba(style.stroke), c);
    for (const s of t.svg.querySelectorAll("rect, circle, path, polygon")) {
      if (!(s.compareDocumentPosition(t.e) & Node.DOCUMENT_POSITION_FOLLOWING)) break;
      const look = getComputedStyle(s), m = s.getScreenCTM().inverse();
      if (look.fill === "none" || !shown(s)) continue;
      const p = new DOMPoint((t.box.left + t.box.right) / 2, (t.box.top + t.box.bottom) / 2).matrixTransform(m);
      if (!s.isPointInFill(p)) continue;
      const f = rgba(look.fill);
      f[3] *= look.fillOpacity * look.opacity;
      c = over(f, c);
    }
    return c;
  };
  for (const t of texts) {
    const style = getComputedStyle(t.e), under = t.svg ? below(t) : ground(t.e), size = parseFloat(style.fontSize);
    const a = light(over(rgba(t.svg ? style.fill : style.color), under)), b = light(under);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
    if (ratio < (large ? 3 : 4.5)) say("contrast " + ratio.toFixed(2), t.text);
  }

  // In a drawing nothing crosses a label: no other label, and no line, unless the label has a halo or a ground.
  const touch = (a, b, by) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > by && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > by;
  const drawn = texts.filter((t) => t.svg);
  drawn.forEach((t, i) => {
    // The box of a line of text is higher than its letters.
    const high = t.box.height * 0.2, box = { left: t.box.left, right: t.box.right, top: t.box.top + high, bottom: t.box.bottom - high };
    for (const o of drawn.slice(i + 1)) {
      if (t.svg === o.svg && touch(box, { left: o.box.left, right: o.box.right, top: o.box.top + high, bottom: o.box.bottom - high }, 1)) say("labels touch", t.text + " / " + o.text);
    }
    const halo = getComputedStyle(t.e).paintOrder.startsWith("stroke");
    for (const l of t.svg.querySelectorAll("line")) {
      if (!shown(l) || halo && l.compareDocumentPosition(t.e) & Node.DOCUMENT_POSITION_FOLLOWING) continue;
      const r = l.getBoundingClientRect();
      if (!touch(box, { left: r.left - 1, right: r.right + 1, top: r.top - 1, bottom: r.bottom + 1 }, 1)) continue;
      // A shape between the two hides the line.
      const hidden = [...t.svg.querySelectorAll("circle, rect")].some((s) => l.compareDocumentPosition(s) & Node.DOCUMENT_POSITION_FOLLOWING &&
        s.compareDocumentPosition(t.e) & Node.DOCUMENT_POSITION_FOLLOWING && s.isPointInFill(new DOMPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2).matrixTransform(s.getScreenCTM().inverse())));
      if (!hidden) say("a line crosses", t.text);
    }
  });
  return [...wrong];
})()
