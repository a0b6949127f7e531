
"use strict";
(() => {
const EVERY_MS = 2000, HIDDEN_MS = 30000, SLOWEST_MS = 15000, ANSWER_MS = 4000;
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let last = null, goneSince = null, failures = 0, timer = 0, asking = false, held = false;

// ---- words and figures

const count = (n) => n.toLocaleString("en-US");
const one = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const clock = (epoch) => {
  const when = new Date(epoch * 1000), today = new Date().toDateString() === when.toDateString();
  const time = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return today ? time : `${when.toLocaleDateString([], { day: "numeric", month: "short" })}, ${time}`;
};
function span(seconds) {
  if (seconds < 1) return "under 1 s";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
function brief(seconds) {
  if (seconds === 0) return "0 ms";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${+(seconds * 1000).toPrecision(3)} ms`;
  return seconds < 120 ? `${+seconds.toPrecision(3)} s` : span(seconds);
}
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let step = 0;
  while (n >= 1024 && step < units.length - 1) { n /= 1024; step += 1; }
  return `${n >= 100 || step === 0 ? Math.round(n) : n.toFixed(1)} ${units[step]}`;
}
const percent = (share) => share >= 1 ? "100 %" : `${+Math.min(99.9, share * 100).toFixed(1)} %`;
const SIGNALS = {
  lock_wait: ["Wait for the lock", brief], wal_frames: ["WAL frames", count], wal_pinned: ["WAL pinned by a reader", brief],
  queue_depth: ["Queue depth", count], queue_age: ["Queue age", brief], parity: ["Parity errors a minute", count],
  long_transaction: ["Open transaction", brief], wal_rate: ["WAL a second", bytes], free_disk: ["Free disk", bytes],
};
const labelOf = (signal) => (SIGNALS[signal] || [signal])[0];
const HELD = {
  foreign_writer: "foreign writer", verify_over_budget: "proof over budget", fence_missing: "fence missing", operator: "operator",
};
const PHASES = {
  items: ["Rows", "migrated, one row an id"], dual: ["Dual", "being copied, written to both"],
  json: ["JSON", "one value, rewritten by every append"], blocked: ["Blocked", "wait for somebody to look"],
};
const TONES = { ok: "At rest", work: "Under way", wait: "Waiting", bad: "Needs attention", off: "Off" };
const WAITS = { disabled: "", operator: "resume", error_budget: "resume, after errors", stopped: "resume, stopped", owner: "its owner", pressure: "the store" };

// ---- small DOM helpers: text only, never markup

function make(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}
function say(id, text, small) {
  const where = at(id), told = small ? `${text} ${small}` : text;
  if (where.textContent === told) return;
  where.replaceChildren(text);
  if (small) where.append(" ", make("small", small));
}
function pairs(id, rows) {
  at(id).replaceChildren(...rows.map(([name, value, code]) =>
    make("div", "", code ? make("dt", "", make("code", name)) : make("dt", name), make("dd", value))));
}
const tone = (id, name) => { if (name) at(id).dataset.tone = name; else delete at(id).dataset.tone; };

// ---- the headline

function headline(doc) {
  const m = doc.migration;
  if (doc.state === "starting") return ["wait", "The daemon is starting", doc.reason || "It opens the store."];
  if (doc.state === "draining" || doc.state === "stopped")
    return ["wait", "The daemon is stopping", "Requests under way are answered, new ones are refused."];
  if (doc.absent_since !== null) return ["bad", "The database does not answer", `${doc.reason} since ${clock(doc.absent_since)}. The daemon asks again and goes on by itself; what is below was read before.`];
  if (doc.reason) return ["bad", "Writes fail", `The store refuses them: ${doc.reason}. Writes are tried again until one succeeds.`];
  if (!m) return ["off", "Nothing is known of migration yet", "The first look at the store is under way."];
  const total = Object.values(m.phases).reduce((a, b) => a + b, 0), blocked = m.phases.blocked;
  const waits = m.waits_for, tripped = m.throttle.signals.filter((s) => s.tripped), next = m.under_way[0];
  if (blocked) return ["bad", `${one(blocked, "progression")} ${blocked === 1 ? "is" : "are"} blocked`,
    `${Object.keys(m.blocked).join(", ")}. The others go on. “lionstate progression-migrate blocked list” names ${blocked === 1 ? "it" : "them"}.`];
  if (!total) return ["ok", "The store holds no progressions yet", "Whatever is created shows up here."];
  if (m.activity === "done") return ["ok", `All ${count(total)} progressions are in rows`, "Nothing is left to migrate. Appends cost the same at any length."];
  const left = `${count(m.left)} of ${count(m.left + m.phases.items)} progressions are still to be moved`;
  if (m.pause) return ["wait", m.pause.code === "operator" ? "Migration is paused" : "Migration has paused itself",
    `${left}. Paused since ${clock(m.pause.since)}${m.pause.expires_at ? `, until ${clock(m.pause.expires_at)}` : ", until it is resumed"}.`];
  if (!m.enabled) return ["off", "Migration is off", `${left}. The store serves as it always did; “lionstate progression-migrate enable” begins.`];
  if (waits.includes("owner")) return ["work", "Another process migrates this store", `${left}.`];
  if (tripped.length) return [m.throttle.starved ? "bad" : "wait",
    m.throttle.starved ? "Migration is starved: it waits and makes no progress" : "Migration waits for the store",
    `Past the limit: ${tripped.map((s) => labelOf(s.signal)).join(", ")}. Requests are served meanwhile, and migration goes on by itself when that clears.`];
  if (m.activity === "moving" && next)
    return ["work", `Moving progression ${count(next.number)} of ${count(next.of)}, ${one(next.to_copy, "id")}`, `${left}.`];
  if (Object.keys(m.held).length && m.activity !== "moving") return ["wait", "Migration waits for you", `${left}; see what is held.`];
  return ["work", "Migration is under way", `${left}.`];
}

// ---- sections

function hero(doc) {
  const m = doc.migration, [name, head, detail] = headline(doc);
  tone("hero", name);
  say("tone", TONES[name]);
  say("headline", head);
  say("detail", detail);
  document.title = `${head} · lionstate`;
  const bar = at("fraction"), shown = m && m.left > 0;
  bar.hidden = !shown;
  if (shown) {
    bar.firstElementChild.style.width = `${m.fraction * 100}%`;
    bar.setAttribute("aria-valuenow", String(Math.floor(m.fraction * 100)));
    bar.setAttribute("aria-valuetext", percent(m.fraction));
  }
  at("under").replaceChildren(...(m ? m.under_way : []).map((u) => {
    const fill = make("span"), inner = make("div", "", fill);
    inner.className = "bar";
    fill.style.width = `${u.to_copy ? u.copied / u.to_copy * 100 : 100}%`;
    return make("li", "", make("strong", `progression ${count(u.number)} of ${count(u.of)}, ${one(u.to_copy, "id")}`), inner,
      make("span", `${count(u.copied)} copied`));
  }));
  const rows = [];
  if (m) {
    if (m.left) {
      rows.push(["Done", percent(m.fraction), m.left_bytes === null ? "by progressions" : `${bytes(m.left_bytes)} left`]);
      const stands = m.activity !== "moving";
      rows.push(["Time left", m.eta_seconds === null ? "not known" : `about ${span(m.eta_seconds)}`,
        m.eta_seconds !== null ? `until ${clock(doc.now + m.eta_seconds)}` : stands ? "while it waits" : "too early to say"]);
      if (m.items_per_second !== null) rows.push(["Speed", `${count(Math.round(m.items_per_second))} ids/s`, "lately"]);
    }
    const who = { self: ["yes, this daemon", m.owner_since ? `since ${clock(m.owner_since)}` : ""], other: ["another process", ""], none: ["nobody", ""] };
    rows.push(["Migrates", ...(m.enabled ? who[m.owner] : ["no", m.owner === "other" ? "another process does" : "not enabled"])]);
    const waits = m.left ? m.waits_for.map((w) => w in WAITS ? WAITS[w] : w).filter(Boolean) : [];
    if (waits.length) rows.push(["Waits for", waits.join(", "),
      m.throttle.waited_seconds === null ? "" : `for ${span(m.throttle.waited_seconds)}`]);
  }
  at("figures").replaceChildren(...rows.map(([term, value, small]) => {
    const dd = make("dd", value);
    if (small) dd.append(make("small", small));
    return make("div", "", make("dt", term), dd);
  }));
}

function phases(m) {
  const entries = Object.entries(PHASES), total = entries.reduce((sum, [p]) => sum + m.phases[p], 0);
  at("stack").replaceChildren(...entries.filter(([p]) => m.phases[p] > 0).map(([p]) => {
    const part = make("span");
    part.className = p;
    part.style.flexGrow = m.phases[p];
    return part;
  }));
  at("legend").replaceChildren(...entries.map(([p, [name, what]]) => {
    const n = m.phases[p], mark = make("i"), line = make("li", "", mark, make("span", name), make("b", count(n)));
    mark.className = p;
    if (n) line.append(make("small", `${percent(n / total)} · ${what}`)); else line.className = "none";
    return line;
  }));
}

function signals(m) {
  const t = m.throttle, tripped = t.signals.filter((s) => s.tripped);
  at("signals-note").className = tripped.length ? "note wait" : "note";
  say("signals-note", tripped.length ? `${one(tripped.length, "signal")} past the limit.` : t.signals.length ? "All within their limits." : "Not read yet: migration has not asked.");
  const sorted = [...tripped, ...t.signals.filter((s) => !s.tripped)];
  at("rows").replaceChildren(...sorted.map((s) => {
    const shape = (SIGNALS[s.signal] || ["", count])[1], head = make("th", labelOf(s.signal));
    head.scope = "row";
    const now = make("td", s.value === null ? "unreadable" : shape(s.value)), limit = make("td", s.limit === null ? "–" : s.signal === "free_disk" ? `≥ ${shape(s.limit)}` : shape(s.limit));
    now.className = limit.className = "n";
    const row = make("tr", "", head, now, limit, make("td", s.since === null ? "–" : clock(s.since)));
    if (s.tripped) row.className = "tripped";
    return row;
  }));
}

function cards(doc) {
  const q = doc.queue, m = doc.migration;
  say("queue-now", count(q.operations), q.limit_operations ? `of ${count(q.limit_operations)}` : "operations");
  pairs("queue", [["oldest", q.operations ? brief(q.age_seconds) : "–"], ["size", bytes(q.size_bytes)]]);
  if (!m) return;
  const blocked = Object.values(m.blocked).reduce((a, b) => a + b, 0), heldNow = Object.values(m.held).reduce((a, b) => a + b, 0);
  tone("blocked-card", blocked ? "bad" : "");
  say("blocked-now", blocked ? count(blocked) : "none", blocked ? blocked === 1 ? "progression" : "progressions" : "");
  pairs("blocked", Object.entries(m.blocked).map(([code, n]) => [code, count(n), true]));
  say("held-now", heldNow ? count(heldNow) : "none", heldNow ? heldNow === 1 ? "progression" : "progressions" : "");
  pairs("held", Object.entries(m.held).map(([code, n]) => [HELD[code] || code, count(n)]));
  const f = m.foreign, seen = (f.sessions || 0) + f.progressions > 0;
  tone("foreign-card", seen && !f.accepted ? "wait" : "");
  say("foreign-now", seen ? (f.accepted ? "seen, accepted" : "seen") : "none seen");
  pairs("foreign", [...(f.sessions ? [["sessions", count(f.sessions)]] : []), ...(f.progressions ? [["progressions", count(f.progressions)]] : []),
    ["last seen", f.sighted_at === null ? "not in 24 h" : clock(f.sighted_at)]]);
  const s = m.scrub;
  tone("scrub-card", s.findings ? "bad" : "");
  say("scrub-now", s.running_since === null ? (s.last_pass_at === null ? "not yet" : "all") : percent(s.coverage));
  pairs("scrub", [["findings", count(s.findings)], ["last pass", s.last_pass_at === null ? "none yet" : clock(s.last_pass_at)]]);
}

// ---- plots

const plots = {};
function shape(tag, name, attributes) {
  const made = document.createElementNS(SVG, tag);
  made.setAttribute("class", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
const SLOTS = 360, HEIGHT = 100;
function path(values, top, closed) {
  const first = SLOTS - values.length;
  let text = "", begun = null;
  const close = (x) => { if (closed && begun !== null) text += `L${x} ${HEIGHT}L${begun} ${HEIGHT}Z`; };
  values.forEach((value, index) => {
    const x = first + index, y = value === null ? 0 : (HEIGHT - value / top * HEIGHT).toFixed(2);
    if (value === null) { close(x - 1); begun = null; }
    else if (begun === null) { begun = x; text += `M${x} ${y}h.01`; }
    else text += `L${x} ${y}`;
  });
  close(SLOTS - 1);
  return text;
}
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
}
function plot(id, title, main, most, limit, form, seconds) {
  const every = [...main, ...(most || [])].filter((v) => v !== null), peak = Math.max(0, ...every);
  const near = limit !== null && peak > limit * 0.6, top = ceiling(near ? Math.max(peak, limit * 1.05) : peak);
  const picture = shape("svg", "", { viewBox: `0 0 ${SLOTS - 1} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const y of [0, 50]) picture.append(shape("line", "grid", { x1: 0, x2: SLOTS, y1: y, y2: y }));
  for (const x of [90, 180, 270]) picture.append(shape("line", "grid", { x1: x, x2: x, y1: 0, y2: HEIGHT }));
  picture.append(shape("line", "base", { x1: 0, x2: SLOTS, y1: HEIGHT, y2: HEIGHT }));
  if (most) picture.append(shape("path", "most", { d: path(most, top, false) }));
  picture.append(shape("path", "area", { d: path(main, top, true) }), shape("path", "main", { d: path(main, top, false) }));
  const marks = [["top", form(top)], ["from", "60 min ago"], ["mid", "30"], ["to", "now"]].map(([name, text]) => {
    const made = make("span", text);
    made.className = name;
    return made;
  });
  if (near) {
    const y = HEIGHT - limit / top * HEIGHT, cap = make("span", `limit ${form(limit)}`);
    picture.append(shape("line", "limit", { x1: 0, x2: SLOTS, y1: y, y2: y }));
    cap.className = "cap";
    cap.style.top = `${y}%`;
    marks.push(cap);
  }
  const chart = at(id);
  if (!plots[id]) {
    plots[id] = { cursor: null };
    chart.tabIndex = 0;
    chart.setAttribute("role", "slider");
    chart.setAttribute("aria-valuemin", "0");
    chart.setAttribute("aria-valuemax", String(SLOTS - 1));
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      point(id, Math.round((event.clientX - box.left) / box.width * (SLOTS - 1)));
    });
    const away = () => point(id, null);
    chart.addEventListener("pointerleave", away);
    chart.addEventListener("blur", away);
    chart.addEventListener("keydown", (event) => {
      const from = plots[id].cursor === null ? SLOTS - 1 : plots[id].cursor;
      const to = { ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - 30, PageDown: from + 30, Home: 0, End: SLOTS - 1 }[event.key];
      if (to === undefined && event.key !== "Escape") return;
      event.preventDefault();
      point(id, to === undefined ? null : to);
    });
  }
  const read = make("span");
  read.className = "read";
  const line = shape("line", "cursor", { y1: 0, y2: HEIGHT });
  line.style.display = "none";
  picture.append(line);
  chart.replaceChildren(picture, ...marks, read);
  chart.setAttribute("aria-label", `${title}, the last hour; highest ${form(peak)}. Arrow keys read it.`);
  Object.assign(plots[id], { main, most, form, seconds, line, read });
  point(id, plots[id].cursor);
}
function point(id, place) {
  const p = plots[id], chart = at(id);
  p.cursor = place === null ? null : Math.max(0, Math.min(SLOTS - 1, place));
  p.line.style.display = p.cursor === null ? "none" : "";
  const index = p.main.length - SLOTS + (p.cursor === null ? SLOTS - 1 : p.cursor), ago = (p.main.length - 1 - index) * p.seconds;
  const value = index < 0 ? null : p.main[index];
  const told = value === null || value === undefined ? "nothing seen" : p.form(value) + (p.most ? `, longest ${p.form(p.most[index])}` : "");
  const text = `${ago ? `${ago < 60 ? `${ago} s` : `${+(ago / 60).toFixed(1)} min`} ago` : "now"}: ${told}`;
  p.read.textContent = p.cursor === null ? "" : text;
  if (p.cursor !== null) { p.line.setAttribute("x1", p.cursor); p.line.setAttribute("x2", p.cursor); }
  chart.setAttribute("aria-valuenow", String(p.cursor === null ? SLOTS - 1 : p.cursor));
  chart.setAttribute("aria-valuetext", text);
}
function charts(doc) {
  const h = doc.history, known = doc.migration ? doc.migration.throttle.signals : [];
  const limit = (name) => (known.find((s) => s.signal === name) || { limit: null }).limit;
  const newest = (values) => values.reduce((found, value) => value === null ? found : value, null);
  const wait = newest(h.lock_p95_seconds), frames = newest(h.wal_frames), cap = (n, form) => n === null ? "" : `limit ${form(n)}`;
  say("lock-now", wait === null ? "nobody has asked for it" : brief(wait), cap(limit("lock_wait"), brief));
  plot("lock", "Wait for the write lock", h.lock_p95_seconds, h.lock_max_seconds, limit("lock_wait"), brief, h.slot_seconds);
  at("wal-card").hidden = frames === null && !(doc.database || "SQLite").startsWith("SQLite");
  say("wal-now", frames === null ? "not looked at yet" : count(frames), cap(limit("wal_frames"), count));
  plot("wal", "WAL frames to checkpoint", h.wal_frames, null, limit("wal_frames"), count, h.slot_seconds);
}

// ---- asking

function freshness() {
  const live = document.querySelector(".live");
  live.dataset.state = goneSince !== null ? "gone" : held ? "held" : "live";
  say("fresh", held ? `held, as of ${last ? clock(last.now) : "–"}` : goneSince !== null ? "no answer" : last ? `live, ${clock(last.now)}` : "no answer yet");
}
function show(doc) {
  last = doc;
  say("facts", [doc.version, doc.database, `up ${span(doc.uptime_seconds)}`].filter(Boolean).join(" · "));
  hero(doc);
  for (const id of ["phases", "signals", "blocked-card", "foreign-card", "scrub-card"]) at(id).hidden = !doc.migration;
  at("held-now").parentElement.hidden = !doc.migration;
  if (doc.migration) { phases(doc.migration); signals(doc.migration); }
  charts(doc);
  cards(doc);
}
function gone(why) {
  if (goneSince === null) goneSince = Date.now() / 1000;
  failures += 1;
  say("gone", `${why} ${last ? `These are the figures of ${clock(last.now)}` : "There are no figures yet"}; the page goes on trying by itself.`);
  at("gone").hidden = false;
  document.body.classList.add("stale");
}
async function ask() {
  clearTimeout(timer);
  if (asking || held) return;
  asking = true;
  try {
    const answer = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    if (answer.status === 401 || answer.status === 403) gone("The daemon asks for a token.");
    else if (!answer.ok) gone(`The daemon answers ${answer.status}.`);
    else {
      const doc = await answer.json();
      goneSince = null;
      failures = 0;
      at("gone").hidden = true;
      document.body.classList.remove("stale");
      if (!held) show(doc);
    }
  } catch (error) {
    if (error instanceof TypeError || error instanceof DOMException) gone("The daemon does not answer.");
    else throw error;
  } finally {
    asking = false;
    freshness();
    const slower = Math.min(SLOWEST_MS, EVERY_MS * 1.5 ** failures);
    if (!held) timer = setTimeout(ask, document.hidden ? HIDDEN_MS : slower);
  }
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
at("hold").addEventListener("click", () => {
  held = !held;
  at("hold").setAttribute("aria-pressed", String(held));
  clearTimeout(timer);
  freshness();
  ask();
});
ask();
})();
