// Shows /v1/status, again and again. Whatever comes from there is put into the page as text, never as HTML.
"use strict";

const EVERY_MS = 1000;
const RETRY_MS = 3000;
const TIMEOUT_MS = 5000;
// Decisions that are shown; the control plane keeps as many.
const DECISIONS_MAX = 200;
// With fewer replicas nobody looks for one.
const FILTER_FROM = 12;
const SVG = "http://www.w3.org/2000/svg";

const by = (id) => document.getElementById(id);
const list = (value) => (Array.isArray(value) ? value : []);

// ---- Figures as text -------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en");
const number = (value) => (typeof value === "number" ? whole.format(value) : "–");

/** 1,234 up to 9,999, then 12.3 K, 4.56 M, ... */
function short(value) {
  if (typeof value !== "number") return "–";
  if (value < 10000) return whole.format(value);
  let unit = "";
  for (const next of ["K", "M", "G", "T", "P"]) {
    if (value < 999.5) break;
    value /= 1000;
    unit = next;
  }
  return `${value.toPrecision(3)}\u00a0${unit}`;
}

/** In full, but for those that nobody reads in full. */
const tokens = (value) => (value < 1e6 ? number(value) : short(value));

// Figures stay in one line with their units: the spaces in them are no-break spaces.
const percent = (share) => (typeof share === "number" ? `${(share * 100).toFixed(1)}\u00a0%` : "–");

function time(ms) {
  if (typeof ms !== "number") return "–";
  const s = ms / 1000;
  if (s < 1) return "now";
  if (s < 120) return `${Math.floor(s)}\u00a0s`;
  if (s < 7200) return `${Math.floor(s / 60)}\u00a0min`;
  if (s < 172800) return `${Math.floor(s / 3600)}\u00a0h`;
  return `${Math.floor(s / 86400)}\u00a0d`;
}

function bytes(value) {
  if (value < 1 << 20) return `${Math.ceil(value / 1024)} KiB`;
  return value < 1 << 30 ? `${Math.round(value / (1 << 20))} MiB` : `${(value / (1 << 30)).toFixed(1)} GiB`;
}

// ---- Elements --------------------------------------------------------------------------------------

function make(tag, className, ...inside) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inside);
  return element;
}

/** Where the style lays a table out as something else, it stays one for whoever listens to it. */
function role(element, name) {
  element.setAttribute("role", name);
  return element;
}

function drawn(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** A reason's name, which may be broken behind its underscores. */
function reasonName(reason) {
  const parts = (reason || "(a newer gateway's)").split("_");
  return parts.flatMap((part, at) => (at ? ["_", make("wbr"), part] : [part]));
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** When something began, as clocks here show it: a text that stays the same while time passes. */
function since(seconds) {
  const at = new Date(Date.now() - seconds * 1000);
  return seconds < 72000 ? clock.format(at) : `${day.format(at)}, ${clock.format(at)}`;
}

/** Words that stay together in one line. */
const tag = (className, words) => make("span", `tag ${className}`.trim(), words);

/** Sets a text only if it is another one: who reads or selects it is not disturbed. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A small curve; where a value is null there is nothing. */
function spark(values) {
  const svg = drawn("svg", { class: "spark", viewBox: "0 0 100 26", preserveAspectRatio: "none", "aria-hidden": "true" });
  const most = Math.max(...values, Number.MIN_VALUE);
  const x = (index) => ((index * 100) / Math.max(values.length - 1, 1)).toFixed(1);
  let run = [];
  const end = (index) => {
    // A single value is a short line before its place.
    if (run.length === 1) run.unshift(`${(Number(x(index - 1)) - 3).toFixed(1)},${run[0].split(",")[1]}`);
    if (run.length) {
      svg.append(drawn("path", { d: `M${run[0].split(",")[0]},26 L${run.join(" L")} L${run.at(-1).split(",")[0]},26 Z` }));
      svg.append(drawn("polyline", { points: run.join(" ") }));
    }
    run = [];
  };
  values.forEach((value, index) => {
    if (value === null) end(index);
    else run.push(`${x(index)},${(25 - (24 * value) / most).toFixed(1)}`);
  });
  end(values.length);
  return svg;
}

function bar(share) {
  if (typeof share !== "number") return "";
  const svg = drawn("svg", { class: "share", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  const width = Math.max(0, Math.min(1, share)) * 100;
  svg.append(drawn("rect", { class: "track", width: 100, height: 10, rx: 2 }));
  svg.append(drawn("rect", { class: "part", width, height: 10, rx: 2 }));
  return svg;
}

/**
 * A table whose rows are kept while their keys are there. A column: [title, class, show(row)], where
 * `show` gives a text, or parts: texts and elements.
 */
class Table {
  constructor(caption, columns, empty) {
    this.columns = columns;
    this.rows = new Map();
    this.body = make("tbody");
    const head = make("tr", "", ...columns.map(([title, className]) => {
      const cell = make("th", className, title);
      cell.scope = "col";
      return role(cell, "columnheader");
    }));
    this.table = role(make("table", "", role(make("thead", "", role(head, "row")), "rowgroup"), role(this.body, "rowgroup")), "table");
    this.table.setAttribute("aria-label", caption);
    this.empty = make("p", "empty", empty);
    this.element = make("div", "", this.table, this.empty);
  }

  show(rows, key) {
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
    const keys = new Set(rows.map(key));
    for (const [known, row] of this.rows) {
      if (!keys.has(known)) {
        row.remove();
        this.rows.delete(known);
      }
    }
    let place = this.body.firstChild;
    for (const data of rows) {
      const id = key(data);
      let row = this.rows.get(id);
      if (!row) {
        row = role(make("tr", "", ...this.columns.map(([, className], at) => {
          const cell = make(at === 0 ? "th" : "td", className);
          if (at === 0) cell.scope = "row";
          return role(cell, at === 0 ? "rowheader" : "cell");
        })), "row");
        this.rows.set(id, row);
      }
      this.columns.forEach(([, , show], at) => fill(row.cells[at], show(data)));
      if (row === place) place = place.nextSibling;
      else this.body.insertBefore(row, place);
    }
  }
}

function fill(cell, shown) {
  const parts = Array.isArray(shown) ? shown : [shown];
  if (parts.every((part) => typeof part === "string")) return say(cell, parts.join(""));
  const fresh = make("td", "", ...parts);
  if (cell.textContent !== fresh.textContent || cell.querySelector("svg")) cell.replaceChildren(...fresh.childNodes);
}

// ---- Parts of the page -----------------------------------------------------------------------------

const shown = { alarms: "", pools: new Map(), decisions: [], after: 0, instance: "", paused: false };

function showAlarms(alarms) {
  // Who listens to it is not told again because time passes.
  const told = JSON.stringify(alarms, (name, value) => (name === "since_s" ? undefined : value));
  if (told === shown.alarms) return;
  shown.alarms = told;
  const items = alarms.map((alarm) => {
    const where = alarm.pool ? ` · ${alarm.pool}` : "";
    const title = make("strong", "", `${alarm.severity === "critical" ? "▲ Critical" : "● Warning"}${where}`);
    const began = typeof alarm.since_s === "number" ? ` (since ${since(alarm.since_s)})` : "";
    return make("li", alarm.severity === "critical" ? "critical" : "warning", title, ` ${alarm.text}${began}`, make("span", "fix", alarm.fix.replaceAll("`", "")));
  });
  by("alarms").replaceChildren(...(items.length ? items : [make("li", "none", "No alarms")]));
}

function tile(title, value, more, values) {
  const parts = [make("div", "value", value), make("div", "more", more)];
  if (values) parts.push(spark(values));
  return make("div", "tile", make("dt", "", title), make("dd", "", ...parts));
}

function showFleet(status) {
  const { fleet, gateways } = status;
  const minutes = Math.round(status.window_s / 60);
  say(by("window"), `last ${minutes} minutes, unless it says otherwise`);
  const versions = Object.entries(gateways.versions).map(([version, count]) => `${count} × ${version || "unknown"}`);
  const silent = gateways.silent && gateways.silent < gateways.count ? `; ${number(gateways.silent)} last heard ${time(gateways.silent_ms)} ago` : "";
  const polled = gateways.count ? `${versions.join(", ")}, polled ${time(gateways.last_poll_ms)}${gateways.last_poll_ms < 1000 ? "" : " ago"}${silent}` : "none polls";
  by("tiles").replaceChildren(
    tile("Hit rate, as responses tell", percent(fleet.recent.hit_rate), `${percent(fleet.engines.hit_rate)} by the engines' counters`, fleet.history.map((step) => step.hit_rate)),
    tile("Prefill tokens saved", short(fleet.recent.saved_tokens), `of ${short(fleet.recent.prompt_tokens)}; ${short(fleet.ever.saved_tokens)} since the start`, fleet.history.map((step) => step.saved_tokens)),
    tile("Requests looked up", short(fleet.recent.requests), `${short(fleet.ever.requests)} since the start`, fleet.history.map((step) => step.requests)),
    tile("Replicas that may serve", `${number(fleet.pickable)} / ${number(fleet.replicas)}`, `${number(fleet.running)} running, ${number(fleet.waiting)} waiting`),
    tile("Cached tokens", short(fleet.cached_tokens), `${number(fleet.cached_blocks)} engine blocks`),
    tile("Gateways", number(gateways.count), polled),
  );
}

const replicaColumns = [
  ["Replica", "", (r) => r.replica],
  ["State", "", (r) => {
    const parts = [make("span", `state ${r.state}`, r.state)];
    if (r.why) parts.push(make("span", "why", r.why));
    return parts;
  }],
  ["Running", "number", (r) => number(r.running)],
  ["Waiting", "number wide", (r) => number(r.waiting)],
  ["KV used", "number wide", (r) => [percent(r.kv_usage), bar(r.kv_usage)]],
  ["Cached tokens", "number", (r) => short(r.cached_tokens)],
  ["Hit rate", "number", (r) => [percent(r.recent.hit_rate), bar(r.recent.hit_rate)]],
  ["By its counters", "number wide optional", (r) => percent(r.engine.hit_rate)],
  ["Picks", "number wide", (r) => number(r.recent.requests)],
  ["Last events", "number wide optional", (r) => (r.event_age_ms === null ? "none yet" : time(r.event_age_ms))],
  ["Version", "wide optional", (r) => r.version || "–"],
];

/** A table that scrolls by itself, also by keyboard. */
function scroller(table, title) {
  table.element.className = "scroll stack";
  table.element.tabIndex = 0;
  table.element.setAttribute("role", "region");
  table.element.setAttribute("aria-label", title);
  return table.element;
}

function showPools(pools) {
  const count = pools.reduce((sum, pool) => sum + pool.replicas.length, 0);
  by("filter-label").hidden = count < FILTER_FROM;
  const wanted = count < FILTER_FROM ? "" : by("filter").value.trim().toLowerCase();
  const names = new Set(pools.map((pool) => pool.pool));
  for (const [name, known] of shown.pools) {
    if (!names.has(name)) {
      known.panel.remove();
      shown.pools.delete(name);
    }
  }
  for (const pool of pools) {
    let known = shown.pools.get(pool.pool);
    if (!known) {
      const table = new Table(`Replicas of pool ${pool.pool}`, replicaColumns, "No replicas");
      const more = make("small");
      known = { table, more, panel: make("div", "panel", make("h3", "", `${pool.pool} `, more), scroller(table, `Replicas of pool ${pool.pool}`)) };
      shown.pools.set(pool.pool, known);
      by("pools").append(known.panel);
    }
    const adapters = pool.adapters ? `, ${number(pool.adapters)} adapters` : "";
    const index = `index ${bytes(pool.index.memory_bytes)} of ${bytes(pool.index.budget_bytes)}`;
    say(known.more, `${pool.models.join(", ")}${adapters} · hit rate ${percent(pool.recent.hit_rate)} · ${index}`);
    const matches = (r) => [r.replica, pool.pool, r.state].some((text) => text.toLowerCase().includes(wanted));
    const rows = wanted ? pool.replicas.filter(matches) : pool.replicas;
    say(known.table.empty, wanted ? "None matches" : "No replicas");
    known.table.show(rows, (r) => r.replica);
  }
}

const reasons = new Table("Requests by reason", [
  ["Reason", "mono", (r) => reasonName(r.reason)],
  ["Recent", "number", (r) => [number(r.recent), bar(r.share)]],
  ["Since the start", "number", (r) => number(r.ever)],
], "No gateway has told of a request yet");

const prefixes = new Table("Hottest prefixes", [
  ["Prefix (hash)", "mono", (p) => p.hash],
  ["Tokens", "number", (p) => number(p.tokens)],
  ["Requests", "number", (p) => number(p.requests)],
  ["Replicas", "number", (p) => number(p.replicas)],
], "No prefix was asked for twice lately");

const decisions = new Table("The last decisions, newest first", [
  ["Ago", "number faint", (d) => time(Date.now() - d.at)],
  ["Reason", "mono word", (d) => reasonName(d.reason)],
  ["Replica, mode", "word", (d) => {
    const parts = [d.replica || (d.status ? "–" : "none"), " ", tag(d.enforced ? "enforced" : "shadow", d.enforced ? "enforced" : "in shadow")];
    if (d.enforced && d.agreed === false) parts.push(" ", tag("failed", "served elsewhere"));
    if (d.status && d.status !== 200) parts.push(" ", tag("failed", String(d.status)));
    return parts;
  }],
  ["Prompt tokens", "number", (d) => (d.prompt_tokens ? tokens(d.prompt_tokens) : "–")],
  ["Cached", "number", (d) => tokens(d.cached_tokens)],
  ["Predicted", "number wide", (d) => tokens(d.predicted_tokens)],
], "No gateway has told of a request yet");

function takeDecisions(status) {
  if (status.instance !== shown.instance) {
    shown.instance = status.instance;
    shown.decisions = [];
  }
  const now = Date.now();
  for (const told of list(status.decisions)) {
    shown.decisions.unshift({ ...told, at: now - told.age_ms });
    shown.after = told.number;
  }
  shown.decisions.length = Math.min(shown.decisions.length, DECISIONS_MAX);
  if (!shown.paused) decisions.show(shown.decisions, (d) => d.number);
}

function show(status) {
  say(by("about"), `${status.version} · up ${time(status.uptime_s * 1000)}`);
  showAlarms(list(status.alarms));
  showFleet(status);
  showPools(list(status.pools));
  const most = Math.max(1, ...status.reasons.map((r) => r.recent));
  reasons.show(status.reasons.map((r) => ({ ...r, share: r.recent / most })), (r) => r.reason);
  prefixes.show(list(status.prefixes), (p) => p.hash);
  takeDecisions(status);
}

// ---- Again and again -------------------------------------------------------------------------------

let latest = null;
let told = 0;
let timer = 0;

async function ask() {
  const answer = await fetch(`v1/status?decisions_after=${shown.after}`, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
  if (!answer.ok) throw new Error(`it answers ${answer.status}`);
  return answer.json();
}

async function step() {
  let wait = EVERY_MS;
  try {
    let status = await ask();
    if (latest && status.instance !== latest.instance && shown.after > 0) {
      // Another life of the control plane: its decisions are numbered anew.
      shown.after = 0;
      status = await ask();
    }
    latest = status;
    told = Date.now();
    show(status);
    by("connection").className = "";
    say(by("connection"), "live");
    document.body.classList.remove("stale");
  } catch {
    wait = RETRY_MS;
    by("connection").className = "gone";
    say(by("connection"), told ? `The control plane does not answer. Shown is what was ${time(Date.now() - told)} ago.` : "The control plane does not answer.");
    document.body.classList.add("stale");
  }
  timer = document.hidden ? 0 : setTimeout(step, wait);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && timer === 0) step();
});
by("filter").addEventListener("input", () => latest && showPools(list(latest.pools)));
by("pause").addEventListener("click", () => {
  shown.paused = !shown.paused;
  by("pause").setAttribute("aria-pressed", String(shown.paused));
  say(by("pause"), shown.paused ? "Go on" : "Pause");
});
by("reasons").append(make("div", "panel", reasons.element));
by("prefixes").append(make("div", "panel", prefixes.element));
by("decisions").append(decisions.element);
step();
