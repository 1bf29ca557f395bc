// Keeps the page live: merges the regions that the stream sends, keeps ages right, and shows
// windows of long lists. It uses nothing but what browsers have.
"use strict";

const parse = (html, tag) => {
  const document = new DOMParser().parseFromString(tag === "tbody" ? `<table><tbody>${html}</tbody></table>` : html, "text/html");
  return tag === "tbody" ? document.querySelector("tbody") : document.body.firstElementChild;
};

// ---- Merge: change nodes in place, so that focus, selection and scroll positions stay.

// The attribute and not the property: in a form with a field named "id" the property is that field.
const keyOf = (node) => (node.nodeType === 1 ? node.getAttribute("id") ?? "" : "");

function merge(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) {
    from.replaceWith(document.importNode(to, true));
    return;
  }
  if (from.nodeType !== 1) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  if (from.nodeName !== "INPUT" && from.nodeName !== "TIME") mergeChildren(from, to);
}

function mergeChildren(from, to) {
  const stay = new Set([...to.children].map(keyOf)), keyed = new Map();
  for (const child of [...from.children]) {
    if (stay.has(keyOf(child))) keyed.set(keyOf(child), child);
    else if (keyOf(child)) child.remove(); // before the others would be moved, which takes their focus
  }
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const key = keyOf(wanted);
    const known = key ? keyed.get(key) : undefined;
    if (known) {
      if (known !== at) from.insertBefore(known, at);
      else at = at.nextSibling;
      merge(known, wanted);
    } else if (key || !at || keyOf(at) || at.nodeName !== wanted.nodeName) {
      from.insertBefore(document.importNode(wanted, true), at);
    } else {
      const here = at;
      at = at.nextSibling;
      merge(here, wanted);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// mergeInPlace merges the rows by their places.
function mergeInPlace(from, to) {
  const rows = [...to.children];
  while (from.children.length > rows.length) from.lastElementChild.remove();
  rows.forEach((row, i) => (from.children[i] ? merge(from.children[i], row) : from.append(document.importNode(row, true))));
}

// ---- Ages: each <time> says how long ago it was, in its largest unit.

function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)}h`;
  return `${Math.floor(s / 86400)}d`;
}

function tell() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time")) {
    const text = `${span((now - Date.parse(time.dateTime)) / 1000)} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
}
setInterval(tell, 1000);

// ---- Logs: the end stays in view unless the reader scrolled away.

const atEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < 24;
const toEnd = (box) => { box.scrollTop = box.scrollHeight; };
document.querySelectorAll("[data-end]").forEach(toEnd);

// ---- The stream of the page's regions. A hidden tab has none: browsers open few per server.

let source = null;

function show(regions) {
  for (const [name, html] of Object.entries(regions)) {
    const region = document.getElementById(name);
    if (!region) { location.reload(); return; }
    const logs = [...region.querySelectorAll("[data-end]")].filter(atEnd);
    merge(region, parse(html));
    logs.forEach(toEnd);
  }
  tell();
}

// A stream that ends on purpose (browsers open few per server) begins again in a moment.
let ends = false, lost = 0;

function setLost(isLost) {
  clearTimeout(lost);
  lost = isLost ? setTimeout(() => { document.getElementById("gone").hidden = false; }, 3000) : 0;
  if (!isLost) document.getElementById("gone").hidden = true;
}

function connect() {
  if (source || document.hidden) return;
  source = new EventSource(`/stream?page=${encodeURIComponent(document.body.dataset.page)}`);
  source.onopen = () => setLost(false);
  source.onerror = () => {
    if (!ends) setLost(true);
    ends = false;
  };
  source.onmessage = (event) => {
    const message = JSON.parse(event.data);
    ends = message.ends;
    show(message.regions);
    rows?.refresh();
  };
}

function disconnect() {
  source?.close();
  source = null;
  setLost(false);
}
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("form[method=post] button")) button.disabled = false;
  connect();
});

// ---- Windows of a long list: the table has the height of all rows and the rows in view.

class Rows {
  constructor(table) {
    this.table = table;
    this.body = table.querySelector("#rows");
    this.from = Number(table.dataset.from);
    this.total = Number(table.dataset.total);
    this.asks = this.again = false; // one request at a time, and whether another one has to follow
    this.place();
    addEventListener("scroll", () => this.look(), { passive: true });
    addEventListener("resize", () => { this.place(); this.look(); });
  }

  height() { return this.body.rows[0]?.getBoundingClientRect().height || 36; }

  place() {
    const height = this.height();
    const shown = this.total ? this.body.rows.length : 0;
    this.space("above", this.from * height);
    this.space("below", Math.max(0, this.total - this.from - shown) * height);
  }

  space(id, height) {
    const body = document.getElementById(id);
    if (!height) { body.replaceChildren(); return; }
    const cell = body.rows[0]?.cells[0] ?? body.insertRow().insertCell();
    cell.colSpan = this.table.tHead.rows[0].cells.length;
    cell.style.height = `${height}px`;
  }

  wanted() {
    const height = this.height();
    const top = document.getElementById("above").getBoundingClientRect().top;
    const first = Math.floor(-top / height), seen = Math.ceil(innerHeight / height);
    const from = Math.max(0, Math.min(first - seen, this.total - 1));
    return { from, count: Math.min(200, 3 * seen), first, last: first + seen };
  }

  look() {
    const { first, last } = this.wanted();
    const end = this.from + this.body.rows.length;
    if ((first < this.from && this.from > 0) || (last > end && end < this.total)) this.refresh();
  }

  async refresh() {
    this.again = this.asks;
    if (this.asks) return;
    this.asks = true;
    const { from, count } = this.wanted();
    try {
      const answer = await fetch(`${this.table.dataset.rows}&from=${from}&count=${count}`, { signal: AbortSignal.timeout(30000) });
      const html = await answer.text();
      if (answer.ok) this.fill(html, Number(answer.headers.get("Rows-From")), Number(answer.headers.get("Rows-Total")));
    } catch {
      // The stream shows that the server is gone.
    }
    this.asks = false;
    if (this.again) this.refresh();
    else this.look();
  }

  // The same window is filled in place: no row moves under the pointer, and the focus follows its job.
  fill(html, from, total) {
    const next = parse(html, "tbody"), focused = this.body.contains(document.activeElement) && document.activeElement.closest("tr").id;
    if (from === this.from) mergeInPlace(this.body, next);
    else mergeChildren(this.body, next);
    if (focused && document.activeElement.closest("tr")?.id !== focused) {
      document.getElementById(focused)?.querySelector("a").focus({ preventScroll: true });
    }
    this.from = from;
    this.total = total;
    this.table.setAttribute("aria-rowcount", total);
    this.place();
    tell();
    if (picks) showPicked();
  }
}

// ---- Selected rows, also those that are not in the window of rows.

const picks = document.getElementById("picks"), picked = new Set();

function showPicked() {
  for (const box of picks.querySelectorAll("[name=pick]")) box.checked = picked.has(box.value);
  picks.toggleAttribute("data-picked", picked.size > 0);
  picks.querySelector("output").textContent = `${picked.size} selected`;
}
picks?.addEventListener("change", ({ target }) => {
  if (target.checked) picked.add(target.value);
  else picked.delete(target.value);
  showPicked();
});
picks?.addEventListener("reset", (event) => { event.preventDefault(); picked.clear(); showPicked(); });
picks?.addEventListener("submit", (event) => {
  event.preventDefault();
  const body = new URLSearchParams({ session: picks.elements.session.value, do: event.submitter.value });
  for (const id of picked) body.append("pick", id);
  ask(picks.action, { method: "POST", body }, event.submitter);
});

let rows = null;
const list = document.getElementById("jobs");
if (list) rows = new Rows(list);

// ---- Filters apply at once; their address leaves out what is empty.

document.addEventListener("change", (event) => {
  if (event.target.form?.matches("#filters")) event.target.form.requestSubmit();
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("#filters")) return;
  event.preventDefault();
  const chosen = new URLSearchParams();
  for (const [name, value] of new FormData(event.target)) if (value) chosen.append(name, value);
  location.assign(chosen.size ? `/jobs?${chosen}` : "/jobs");
});

// ---- A change asks in a dialog; without the script it asks on a page of its own.

async function ask(address, request, opener) {
  const answer = await fetch(address, request).catch(() => null);
  const asked = answer && new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".ask");
  if (!asked) { location.assign(request ? location.href : address); return; }
  const dialog = document.createElement("dialog");
  asked.querySelector("h1").id = "question";
  dialog.setAttribute("aria-labelledby", "question");
  dialog.append(document.importNode(asked, true));
  dialog.addEventListener("close", () => { dialog.remove(); (opener.isConnected ? opener : document.getElementById("main")).focus(); });
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("click", (event) => {
  const close = event.target.closest("dialog [data-close]");
  if (close) { event.preventDefault(); close.closest("dialog").close(); return; }
  const link = event.target.closest("a[data-ask]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  ask(link.href, undefined, link);
});

// A form that changes something is sent once.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post" || event.defaultPrevented) return;
  for (const button of event.target.querySelectorAll("button")) button.disabled = true;
});

// ---- A slash goes to the search field.

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || document.querySelector("dialog[open]") || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.nodeName)) return;
  event.preventDefault();
  document.querySelector(".find input").focus();
});

// The stream begins after the first paint, which it would delay.
tell();
requestAnimationFrame(() => setTimeout(connect));
