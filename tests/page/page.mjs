// The control plane's page in a headless Chromium: what it shows, how it looks, and what it asks for.
// usage: page.mjs URL CHROMIUM PLAYWRIGHT-CORE SCREENSHOTS      `control-plane/tests/page.rs` starts it.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [base, executablePath, playwright, pictures] = process.argv.slice(2);
const { chromium } = createRequire(import.meta.url)(playwright);
mkdirSync(pictures, { recursive: true });

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const problems = [];

/** A page at the control plane. Whatever it complains about or asks elsewhere is a problem. */
async function open(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.expected = [];
  page.on("console", (message) => {
    const text = message.text();
    if (message.type() !== "error" || page.expected.some((known) => text.includes(known))) return;
    problems.push(`console: ${text}`);
  });
  page.on("pageerror", (error) => problems.push(`error: ${error}`));
  page.on("dialog", (dialog) => problems.push(`dialog: ${dialog.message()}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(`${base}/`)) problems.push(`another host: ${request.url()}`);
  });
  await page.goto(`${base}/`);
  await page.waitForFunction(() => document.getElementById("connection").textContent === "live");
  return page;
}

const picture = (page, name, options = {}) => page.screenshot({ path: join(pictures, `${name}.png`), ...options });
const text = (page, selector) => page.locator(selector).first().innerText();
const status = async () => (await fetch(`${base}/v1/status`)).json();
const percent = (share) => (share === null ? "–" : `${(share * 100).toFixed(1)}\u00a0%`);
const whole = new Intl.NumberFormat("en");

async function showsWhatTheStatusSays() {
  const page = await open({ viewport: { width: 1360, height: 900 }, colorScheme: "light" });
  await page.waitForFunction((n) => document.querySelectorAll("#decisions tbody tr").length === n, (await status()).decisions.length);
  const answer = await page.waitForResponse((response) => response.url().includes("/v1/status"));
  assert.equal(await answer.headerValue("content-encoding"), "gzip");
  const told = await status();
  const tiles = await page.locator(".tile .value").allInnerTexts();
  assert.equal(tiles[0], percent(told.fleet.recent.hit_rate));
  assert.equal(tiles[2], whole.format(told.fleet.recent.requests));
  assert.equal(tiles[3], `${told.fleet.pickable} / ${told.fleet.replicas}`);
  assert.equal(tiles[5], String(told.gateways.count));
  assert.equal(await page.locator("#pools .panel").count(), told.pools.length);
  for (const [at, pool] of told.pools.entries()) {
    const rows = page.locator(`#pools .panel:nth-of-type(${at + 1}) tbody tr`);
    assert.equal(await rows.count(), pool.replicas.length);
    for (const n of [0, pool.replicas.length - 1]) {
      const replica = pool.replicas[n];
      const cells = (await rows.nth(n).locator("th, td").allInnerTexts()).map((cell) => cell.trim());
      assert.equal(cells[0], replica.replica);
      assert.ok(cells[1].startsWith(replica.state), cells[1]);
      assert.equal(cells[2], whole.format(replica.running));
      assert.equal(cells[3], whole.format(replica.waiting));
      assert.equal(cells[6], percent(replica.recent.hit_rate));
      assert.equal(cells[8], whole.format(replica.recent.requests));
    }
  }
  const alarms = await page.locator("#alarms li").allInnerTexts();
  assert.equal(alarms.length, told.alarms.length);
  told.alarms.forEach((alarm, at) => assert.ok(alarms[at].includes(alarm.text) && alarms[at].includes(alarm.fix.replaceAll("`", ""))));
  const reasons = await page.locator("#reasons tbody tr").allInnerTexts();
  told.reasons.forEach((reason, at) => assert.ok(reasons[at].includes(reason.reason ?? "newer"), reasons[at]));
  assert.equal(await page.locator("#prefixes tbody tr").count(), told.prefixes.length);
  const newest = await page.locator("#decisions tbody tr").first().locator("th, td").allInnerTexts();
  const last = told.decisions.at(-1);
  assert.equal(newest[1], last.reason);
  assert.ok(newest[2].startsWith(last.replica), newest[2]);
  // Each says whether it was enforced.
  const modes = await page.locator("#decisions tbody tr td:nth-of-type(2)").allInnerTexts();
  told.decisions.toReversed().forEach((decision, at) => assert.ok(modes[at].includes(decision.enforced ? "enforced" : "in shadow"), modes[at]));
  assert.ok(modes.some((mode) => mode.includes("in shadow")) && modes.some((mode) => mode.includes("enforced")));
  assert.equal(newest[4], last.cached_tokens === null ? "–" : whole.format(last.cached_tokens));

  // A name that is HTML is text, and nothing of it runs.
  assert.ok((await text(page, "#pools")).includes("<img src=x onerror=alert(1)>"));
  assert.equal(await page.locator("img, iframe, main a[href^=javascript]").count(), 0);
  await picture(page, "light");
  await page.locator("#decisions-title").scrollIntoViewIfNeeded();
  await picture(page, "light-below");
  await page.evaluate(() => scrollTo(0, 0));
  return page;
}

/** What assistive technology goes by. */
async function isMadeOfTheRightElements(page) {
  for (const landmark of ["h1", "main", "header", "footer"]) assert.equal(await page.locator(landmark).count(), 1, landmark);
  assert.equal(await page.locator("html").getAttribute("lang"), "en");
  assert.equal(await page.locator("th:not([scope])").count(), 0);
  assert.equal(await page.locator("table:not([aria-label])").count(), 0);
  assert.equal(await page.locator("#alarms").getAttribute("aria-live"), "polite");
  for (const section of await page.locator("section").all()) {
    const title = await section.getAttribute("aria-labelledby");
    assert.ok(await page.locator(`#${title}`).innerText(), title);
  }
}

async function canBeUsedByKeyboard(page) {
  const order = [];
  for (let step = 0; step < 8; step++) {
    await page.keyboard.press("Tab");
    const focused = await page.evaluate(() => {
      const element = document.activeElement;
      const style = getComputedStyle(element);
      const box = element.getBoundingClientRect();
      return { name: element.id || element.ariaLabel || element.textContent.slice(0, 40), seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && box.width > 0 };
    });
    assert.ok(focused.seen, `focus cannot be seen on ${focused.name}`);
    order.push(focused.name);
  }
  assert.deepEqual(order, ["Skip to replicas", "filter", "Replicas of pool chat", "Replicas of pool code", "pause", "decisions", "status", "metrics"]);
  await page.locator("#pause").focus();
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("#pause").getAttribute("aria-pressed"), "true");
  assert.equal(await text(page, "#pause"), "Go on");
  await page.keyboard.press("Enter");
  await page.locator("#filter").focus();
  await page.keyboard.type("replica-17");
  assert.deepEqual((await page.locator("#pools tbody th").allInnerTexts()).every((name) => name.includes("replica-17")), true);
  await page.keyboard.press("Escape");
  await page.locator("#filter").fill("");
  await page.locator(".skip").focus();
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "replicas");
}

/** Contrast of two CSS colours, by WCAG 2. */
const CONTRAST = `(() => {
  const channel = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number); return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
  const ground = (element) => { for (let at = element; at; at = at.parentElement) { const c = getComputedStyle(at).backgroundColor; if (!/, 0\\)$/.test(c)) return c; } return "rgb(255, 255, 255)"; };
  const poor = [];
  for (const element of document.querySelectorAll("h1, h2, h3, small, p, dt, dd div, th, td, td span, li, li strong, li span, button, label, a:not(.skip)")) {
    if (!element.textContent.trim() || !element.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(element.tagName + "." + element.className + " " + element.textContent.slice(0, 30) + " " + ratio.toFixed(2));
  }
  return [...new Set(poor)];
})()`;

async function isReadableInTheDark(light) {
  const ground = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await open({ viewport: { width: 1360, height: 900 }, colorScheme: "dark" });
  assert.notEqual(await ground(dark), await ground(light));
  for (const page of [light, dark]) assert.deepEqual(await page.evaluate(CONTRAST), []);
  await picture(dark, "dark");
  await dark.context().close();
}

/** As long as names may be, with nowhere to break them, and figures as wide as they get. */
function withLongNames(told) {
  const long = (name, length) => `${name}-${"abcdefghij".repeat(30)}`.slice(0, length);
  const replica = (r, at) => ({
    ...r, replica: long(`r${at}`, 128), state: ["draining", "warming", "ready", "down"][at % 4], why: at % 4 === 2 ? null : "it refuses connections: no engine listens there",
    running: 12345, cached_tokens: 999e9, recent: { ...r.recent, hit_rate: 1 },
  });
  const pools = told.pools.map((pool, at) => ({ ...pool, pool: long(`p${at}`, 128), models: [long("m", 200)], replicas: pool.replicas.slice(0, 6).map(replica) }));
  const decision = (d, at) => ({ ...d, replica: long("d", 128), reason: "load_over_prefix", prompt_tokens: 1234567, cached_tokens: 1234567, enforced: at % 2 === 0, agreed: at % 4 === 0 });
  const alarms = [{ id: "a", severity: "warning", pool: long("p", 128), text: long("t", 200), since_s: 90000, fix: long("f", 200) }];
  return { ...told, pools, alarms, decisions: told.decisions.map(decision), version: long("v", 60), gateways: { count: 2, silent: 1, silent_ms: 34000, last_poll_ms: 20, versions: { [long("v", 64)]: 2 } } };
}

/** Nothing is wider than its place, and no word of ours is broken. */
async function fits(page, width, what) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= width, `${what}: it is ${wide} wide`);
  for (const panel of await page.locator(".tile, #alarms li, #pools .panel, #pools .scroll, #reasons .panel, #prefixes .panel, #decisions").all()) {
    const [inside, outside] = await panel.evaluate((element) => [element.scrollWidth, element.clientWidth]);
    assert.ok(inside <= outside, `${what}: ${await panel.innerText().then((t) => t.slice(0, 20))}: ${inside} in ${outside}`);
  }
  for (const tag of await page.locator("#decisions .tag").all()) {
    const lines = await tag.evaluate((element) => { const range = document.createRange(); range.selectNodeContents(element); return range.getClientRects().length; });
    assert.equal(lines, 1, `${what}: ${await tag.innerText()} is broken`);
  }
  const broken = await page.evaluate(() => {
    const words = [];
    const range = document.createRange();
    for (const cell of document.querySelectorAll("thead th, .state, .why")) {
      const text = cell.firstChild;
      for (const word of text?.data?.matchAll(/\S+/g) ?? []) {
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        if (range.getClientRects().length > 1) words.push(word[0]);
      }
    }
    return [...new Set(words)];
  });
  assert.deepEqual(broken, [], `${what}: broken words`);
}

async function fitsEveryScreen() {
  for (const [width, colorScheme, names] of [[375, "light"], [375, "dark"], [320, "light"], [375, "light", "long"], [320, "dark", "long"], [1360, "light", "long"], [1000, "light", "long"]]) {
    const isMobile = width < 620;
    const page = await open({ viewport: { width, height: 812 }, deviceScaleFactor: isMobile ? 2 : 1, isMobile, hasTouch: isMobile, colorScheme });
    const name = [isMobile ? "phone" : "wide", width === 375 ? "" : width, colorScheme === "dark" ? "dark" : "", names].filter(Boolean).join("-");
    if (names) {
      const told = withLongNames(await status());
      await page.route("**/v1/status*", (route) => route.fulfill({ json: told }));
      await page.reload();
      await page.waitForFunction(() => document.querySelector("#alarms li.warning .fix")?.textContent.startsWith("f-"));
      assert.match(await text(page, "#alarms"), /\(since \d+ \w+, \d\d:\d\d\)/);
      assert.match((await page.locator(".tile .more").allInnerTexts())[5], /1 last heard 34\ss ago/);
    }
    await fits(page, width, name);
    await picture(page, name);
    await page.locator("#replicas-title").scrollIntoViewIfNeeded();
    await picture(page, `${name}-replicas`);
    await page.locator("#decisions-title").scrollIntoViewIfNeeded();
    await picture(page, `${name}-below`);
    // It asks all the time, also while it is closed.
    await page.unrouteAll({ behavior: "ignoreErrors" });
    await page.context().close();
  }
}

async function saysThatTheControlPlaneIsGone(page) {
  page.expected.push("Failed to load resource");
  await page.route("**/v1/status*", (route) => route.abort());
  await page.waitForFunction(() => document.getElementById("connection").textContent.includes("does not answer"));
  assert.ok((await text(page, "#connection")).includes("ago"));
  await picture(page, "gone");
  await page.unroute("**/v1/status*");
  await page.waitForFunction(() => document.getElementById("connection").textContent === "live");
  assert.equal(await page.evaluate(() => document.body.className), "");
}

/** Another life of the control plane, which knows nothing yet. */
async function beginsAnewWithNothing(page) {
  const told = await status();
  const nothing = {
    ...told, instance: "another", alarms: [], reasons: [], prefixes: [], decisions: [],
    gateways: { count: 0, silent: 0, silent_ms: null, last_poll_ms: null, versions: {} },
    pools: told.pools.map((pool) => ({ ...pool, models: [], replicas: [], recent: { ...pool.recent, hit_rate: null } })),
    fleet: { ...told.fleet, replicas: 0, pickable: 0, recent: { requests: 0, prompt_tokens: 0, saved_tokens: 0, measured: 0, hit_rate: null }, engines: { queries: 0, hits: 0, hit_rate: null }, history: [] },
  };
  await page.route("**/v1/status*", (route) => route.fulfill({ json: nothing }));
  await page.waitForFunction(() => document.querySelectorAll("#decisions tbody tr").length === 0);
  assert.equal(await text(page, "#alarms"), "No alarms");
  assert.equal((await page.locator(".tile .value").allInnerTexts())[0], "–");
  assert.equal(await page.locator("#pools .empty:visible").count(), told.pools.length);
  await picture(page, "empty");
  await page.unrouteAll({ behavior: "ignoreErrors" });
}

try {
  const page = await showsWhatTheStatusSays();
  await isMadeOfTheRightElements(page);
  await canBeUsedByKeyboard(page);
  await isReadableInTheDark(page);
  await fitsEveryScreen();
  await saysThatTheControlPlaneIsGone(page);
  await beginsAnewWithNothing(page);
  assert.deepEqual(problems, []);
} finally {
  await browser.close();
}
