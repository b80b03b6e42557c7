// Shows what api/status and api/history say. What a server did not say is shown as unknown, with the reason; nothing is
// ever shown as 0 because it is missing. Texts from elsewhere become text nodes, never markup.

const every = {status: 5000, history: 15000}; // milliseconds
const opened = new Set(); // keys of the details that are open
let latest, past, lost; // the last answers; since when there is none

// el makes an element; attributes that are null are left out.
function el(name, attributes, ...children) {
  const svg = ["svg", "path", "line", "title"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) if (value != null) node.setAttribute(key, value);
  node.append(...children.flat(Infinity).filter((c) => c != null));
  return node;
}

// patch makes old look like fresh and leaves alone what is equal, so that focus, selection and scrolling stay.
function patch(old, fresh) {
  const key = (n) => n.getAttribute?.("data-key") ?? n.id;
  if (old.nodeName !== fresh.nodeName || key(old) !== key(fresh)) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const {name, value} of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const {name} of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  const before = [...old.childNodes], after = [...fresh.childNodes];
  after.forEach((node, i) => (before[i] ? patch(before[i], node) : old.append(node)));
  before.slice(after.length).forEach((node) => node.remove());
}

const number = (n) => new Intl.NumberFormat("en", {maximumFractionDigits: n < 10 ? 2 : 0}).format(n);
const clock = (t) => new Date(t).toISOString().slice(11, 19) + " UTC";

function duration(s) {
  const parts = (big, a, small, b) => `${Math.floor(s / big)} ${a}` + (Math.floor((s % big) / small) ? ` ${Math.floor((s % big) / small)} ${b}` : "");
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return parts(60, "min", 1, "s");
  return s < 86400 ? parts(3600, "h", 60, "min") : parts(86400, "d", 3600, "h");
}

// words is a name that breaks between its words, and within one only where that alone is wider than the line.
const words = (name) => el("span", {class: "name"}, name.split(/(?<=[_./@-])(?=[^_./@-])/).flatMap((word, i) => (i ? [el("wbr"), word] : word)));
const unknown = (reason) => el("span", {class: "unknown"}, "unknown" + (reason ? ": " + reason : ""));
const note = (...text) => el("p", {class: "note"}, ...text);
const ago = (seconds, at) => el("time", {datetime: at}, `${duration(Math.max(0, seconds))} ago`);
const since = (at) => (at ? (Date.parse(latest.now) - Date.parse(at)) / 1000 : 0); // by the process's clock
const asOf = (...times) => times.filter(Boolean).map((t) => `as of ${clock(t)}`).slice(0, 1).join("");

function details(key, summary, ...content) {
  return el("details", {"data-key": key, open: opened.has(key) ? "" : null}, el("summary", {}, summary), ...content);
}

// rows is a table that reads as blocks on a narrow screen; roles say what the blocks still are.
function rows(caption, columns, lines) {
  return el("table", {role: "table"}, el("caption", {}, caption),
    el("thead", {role: "rowgroup"}, el("tr", {role: "row"}, columns.map((c) => el("th", {role: "columnheader", scope: "col"}, c)))),
    el("tbody", {role: "rowgroup"}, lines.map(({key, cells}) => el("tr", {role: "row", "data-row": key}, cells.map((c, i) =>
      i === 0 ? el("th", {role: "rowheader", scope: "row"}, c)
        : el("td", {role: "cell", "data-column": columns[i]}, el("div", {}, c)))))));
}

// line finds a line of the history.
const line = (projection, value, topic, partition) => past?.lines.find((l) =>
  l.projection === projection && l.value === value && (l.topic ?? "") === (topic ?? "") && (l.partition ?? -1) === (partition ?? -1));
const fresh = (projection, q) => last(line(projection, "freshness_seconds", q.topic, q.partition));
const last = (l) => l?.points.at(-1);

// chart draws a line, with gaps where it is unknown: the last hour, or less while the process is young.
function chart(label, l, format, missing) {
  const known = l?.points.filter((p) => p !== null) ?? [];
  if (known.length === 0) return note(past ? missing : "unknown: no samples yet");
  const end = Date.parse(past.times.at(-1)), age = (i) => (end - Date.parse(past.times[i])) / 1000;
  const width = 140, height = 32, span = Math.min(3600, Math.max(300, age(0))), top = Math.max(...known) || 1;
  const x = (i) => Math.max(0, width * (1 - age(i) / span)).toFixed(1);
  const y = (v) => (height - 2 - (height - 4) * v / top).toFixed(1);
  const runs = []; // of neighbours that are known
  l.points.forEach((p, i) => p !== null && (i > 0 && l.points[i - 1] !== null ? runs.at(-1) : (runs.push([]), runs.at(-1))).push([x(i), y(p)]));
  const path = (run) => "M" + run.map((p) => p.join(" ")).join("L") + (run.length === 1 ? "h.5" : "");
  const highest = format(Math.max(...known)), now = last(l) === null ? "unknown" : format(last(l));
  return [
    el("svg", {role: "img", viewBox: `0 0 ${width} ${height}`, width, height, "aria-label": `${label}, last ${duration(span)}: now ${now}, highest ${highest}`},
      el("line", {class: "axis", x1: 0, x2: width, y1: height - 1, y2: height - 1}),
      runs.map((run) => el("path", {class: "area", d: `${path(run)}V${height - 1}H${run[0][0]}Z`})),
      runs.map((run) => el("path", {class: "line", d: path(run)}))),
    note(`last ${duration(span)}, highest ${highest}`),
  ];
}

function projection(p) {
  const s = p.status, name = s.projection;
  const why = (part) => s.unknown?.find((u) => u.startsWith(part + ": "))?.slice(part.length + 2);
  const offsets = why("offsets"), stored = why("stored rows"), letters = why("dead letters");
  const age = (seconds) => seconds + since(p.asked_at["stored rows"]);
  const fact = (label, key, ...value) => el("div", {}, el("dt", {}, label), el("dd", {"data-fact": key}, ...value));
  const rate = (value) => (last(line(name, value)) == null ? unknown("not measured yet") : el("b", {}, `${number(last(line(name, value)))}/s`));
  const idle = last(line(name, "rows_per_second")) != null;
  const latency = (value) => (last(line(name, value)) == null ? (idle ? "no inserts in the last 15 s" : unknown("not measured yet")) : duration(last(line(name, value))));
  return el("article", {"aria-labelledby": `p-${name}`, "data-projection": name},
    el("h2", {id: `p-${name}`}, words(name)),
    p.not_ready.length === 0 ? el("p", {class: "good"}, "working") : el("ul", {class: "bad", "aria-label": "Why it is not ready"}, p.not_ready.map((r) => el("li", {}, r))),
    el("dl", {},
      fact("Lag (records not yet read)", "lag", s.lag === null ? unknown(offsets) : el("b", {}, number(s.lag))),
      fact("Newest row in the table", "newest", stored ? unknown(stored) : s.newest_row_at === null ? "none" : el("b", {}, ago(age(s.newest_row_age_seconds), s.newest_row_at))),
      fact("Rows stored by this process", "rows", rate("rows_per_second"), chart(`Rows per second of ${name}`, line(name, "rows_per_second"), (v) => number(v) + "/s", "unknown: this process has not measured it yet")),
      fact("Records read by this process", "records", rate("records_per_second"), chart(`Records per second of ${name}`, line(name, "records_per_second"), (v) => number(v) + "/s", "unknown: this process has not measured it yet")),
      fact("Insert, median", "median", latency("insert_median_seconds"), chart(`Median insert of ${name}`, line(name, "insert_median_seconds"), duration, "no inserts by this process in the last hour")),
      fact("Insert, slowest of 100", "slowest", latency("insert_slowest_seconds"), chart(`Slowest of 100 inserts of ${name}`, line(name, "insert_slowest_seconds"), duration, "no inserts by this process in the last hour")),
      fact("Lanes of this process", "lanes", p.lanes === 0 ? unknown("it has not started to read") : number(p.lanes)),
      fact("Table", "table", words(s.table)), fact("Consumer group", "group", words(s.group))),
    el("h3", {}, "Partitions"),
    s.partitions?.length ? rows(asOf(p.asked_at.offsets), ["Partition", "Committed", "End", "Lag", "Stored", "Newest row", "Freshness"], s.partitions.map((q) => {
      const place = `${q.topic}/${q.partition}`;
      return {key: place, cells: [words(place),
        q.committed === null ? (offsets ? unknown() : "none") : number(q.committed),
        q.end === null ? unknown(offsets ? "" : "the topic is no longer consumed") : number(q.end),
        [q.lag === null ? unknown() : el("span", {}, number(q.lag)), q.expired ? el("span", {class: "bad"}, ` ${number(q.expired)} expired unread`) : null,
          chart(`Lag of ${place}`, line(name, "lag_records", q.topic, q.partition), number, "unknown: Kafka did not answer in the last hour")],
        q.stored === null ? (stored ? unknown() : "–") : number(q.stored),
        q.newest_row_at === null ? (stored ? unknown() : "none") : ago(age(q.newest_row_age_seconds), q.newest_row_at),
        [el("span", {}, fresh(name, q) == null ? unknown() : duration(fresh(name, q))),
          chart(`Freshness of ${place}`, line(name, "freshness_seconds", q.topic, q.partition), duration, "unknown: this process does not read it")],
      ]};
    })) : el("p", {}, unknown(offsets)),
    offsets ? el("p", {}, "Offsets and lag ", unknown(offsets)) : null,
    stored ? el("p", {}, "Stored rows ", unknown(stored)) : null,
    s.trouble?.length ? el("ul", {class: "bad", "aria-label": "Lost offsets"}, s.trouble.map((t) => el("li", {}, t))) : null,
    note("Freshness: how old the oldest record is that was read and readers do not see yet; 0 if there is none."),
    el("h3", {}, "Dead letters"),
    letters ? el("p", {}, unknown(letters)) : rows(asOf(p.asked_at["dead letters"]), ["Topic", "Letters", "Newest", "Classes"], (s.dead_letters ?? []).map((d) => ({key: d.topic, cells: [words(d.topic),
      number(d.letters), d.newest_at === null ? "–" : ago(since(d.newest_at), d.newest_at), classes(name, d)]}))),
    el("h3", {}, "Discrepancies"), discrepancies(s, why("discrepancies")), note(asOf(p.asked_at.discrepancies)),
    el("h3", {}, "Schema"), schema(p.schema));
}

// classes lists the classes of a topic's letters, the most frequent first, each with its newest letter.
function classes(projection, d) {
  const list = Object.entries(d.classes).sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
  if (list.length === 0) return "–";
  return [
    el("div", {class: "classes"}, list.map(([name, n]) => {
      const sample = d.samples?.[name], title = `${name || "(not the projector's)"} ${number(n)}`;
      if (!sample) return el("p", {"data-class": name}, title);
      return el("div", {"data-class": name}, details(`${projection} ${d.topic} ${name}`, title,
        el("p", {}, sample.error || "no reason given"),
        note([`the newest, parked ${duration(since(sample.parked_at))} ago`, sample.column && `column ${sample.column}`, sample.topic && `${sample.topic}/${sample.partition}@${sample.offset}`].filter(Boolean).join(", "))));
    })),
    d.scanned < d.letters ? note(`of the newest ${number(d.scanned)}`) : null,
  ];
}

// discrepancies lists what comparisons have found and not seen settled since, by kind, and the newest comparisons.
function discrepancies(s, reason) {
  if (reason) return el("p", {"data-fact": "discrepancies"}, unknown(reason));
  const list = Object.entries(s.discrepancies ?? {}).sort();
  return [
    el("p", {"data-fact": "discrepancies", class: list.length ? "bad" : null}, list.map(([kind, n]) => `${kind} ${number(n)}`).join(", ") || "none known"),
    list.length ? el("p", {class: "note"}, "what is done about each: ", el("code", {}, "projector repair plan")) : null,
    (s.last_reconciled ?? []).map((r) => el("p", {}, `compared with ${r.against} `, ago(since(r.at), r.at), `: campaign ${r.campaign}, ${r.level}, ${r.verdict}`)),
    s.last_reconciled?.length ? null : el("p", {}, "never compared with a source"),
  ];
}

function schema(s) {
  const as = note([s.data?.table, asOf(s.asked_at)].filter(Boolean).join(", "));
  if (s.data === null) return [el("p", {"data-fact": "schema"}, unknown(s.unknown)), as];
  const verdict = {online: "warn", refused: "bad", tolerated: "note"};
  return [
    s.data.changes.length === 0 ? el("p", {"data-fact": "schema", class: "good"}, s.data.hidden ? "the table is as configured" : "as configured")
      : el("ul", {"data-fact": "schema"}, s.data.changes.map((c) => el("li", {}, el("span", {class: verdict[c.verdict]}, c.verdict), ` ${c.object}: ${[c.summary, c.reason].filter(Boolean).join(": ")}`, c.remedy ? note(c.remedy) : null))),
    s.data.hidden ? el("p", {}, unknown(s.data.hidden)) : null, as,
  ];
}

// shard is one shard of a relay, which has no projections.
function shard(s) {
  return el("article", {"aria-labelledby": `s-${s.shard}`}, el("h2", {id: `s-${s.shard}`}, `outbox of ${s.shard}`),
    s.not_ready.length === 0 ? el("p", {class: "good"}, "working") : el("ul", {class: "bad", "aria-label": "Why it is not ready"}, s.not_ready.map((r) => el("li", {}, r))),
    el("dl", {}, ["Table", "Topics"].map((label) => el("div", {}, el("dt", {}, label), el("dd", {}, [s[label.toLowerCase()]].flat().join(", "))))));
}

// operations lists what writes or wrote to the tables beside the stream and is not settled.
function operations(s) {
  const as = note(asOf(s.asked_at)), list = s.data ?? [];
  if (s.data === null) return [el("p", {"data-fact": "operations"}, unknown(s.unknown)), as];
  if (list.length === 0) return [el("p", {"data-fact": "operations"}, "none in progress, none waits for its verification"), as];
  const kind = {running: "warn", failed: "bad", refuted: "bad"};
  return rows(asOf(s.asked_at), ["Operation", "Projection", "State", "Began", "Last sign", "Asked for by"], list.map((o) => ({key: o.id, cells: [
    [`${o.kind} `, words(o.id)], o.projection ? words(o.projection) : "–",
    [el("span", {class: kind[o.state]}, o.state), o.silent ? el("span", {class: "bad"}, ", and its process gives no sign of life") : null,
      o.progress ? el("p", {}, o.progress) : null, o.error ? note(o.error) : null, o.next ? el("p", {class: "note"}, "next: ", el("code", {}, o.next)) : null],
    ago(since(o.began), o.began), ago(since(o.at), o.at), [words(o.actor), o.reason ? note(o.reason) : null]]})));
}

function draw() {
  if (!latest && !lost) return;
  const state = document.getElementById("state");
  const say = (kind, ...text) => patch(state, el("p", {id: "state", role: "status", class: kind}, ...text));
  if (lost) say("bad", `this process has not answered since ${clock(lost)}` + (latest ? "; what is shown is from before" : ""));
  else if (latest.not_live.length) say("bad", "hangs: " + latest.not_live.join("; "));
  else if (latest.not_ready.length) say("bad", `not ready: ${latest.not_ready.join("; ")}`);
  else say("good", "ready");
  document.title = (lost ? "no answer" : latest.not_live.length ? "hangs" : latest.not_ready.length ? "not ready" : "ready") + " · projector";
  if (!latest) return;
  const b = latest.build;
  patch(document.getElementById("process"), el("p", {id: "process", class: "note"},
    [`version ${b.version}`, b.revision?.slice(0, 12), b.go, `up ${duration(since(latest.started))}`, `as of ${clock(latest.now)}`].filter(Boolean).join(", ")));
  patch(document.getElementById("main"), el("main", {id: "main", tabindex: "-1"},
    latest.projections?.map(projection),
    latest.shards?.map(shard),
    latest.operations ? el("section", {"aria-labelledby": "operations"}, el("h2", {id: "operations"}, "Operations"), operations(latest.operations)) : null,
    el("section", {"aria-label": "Configuration"}, details("configuration", el("h2", {}, "Configuration"), note("What holds after defaults, file, environment and flags. Secrets are not shown."), el("pre", {tabindex: "0", "aria-label": "Configuration as YAML"}, latest.configuration)))));
}

// fetched asks beside the page. The page's own address may hold the token (http://x:TOKEN@host/), with which fetch refuses
// a relative path; the browser sends the token by itself.
async function fetched(path) {
  const response = await fetch(new URL(path, location.origin + location.pathname), {cache: "no-store", signal: AbortSignal.timeout(10000)});
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

const waiting = new Set(); // polls that somebody's return ends early
const wake = () => waiting.forEach((go) => go());

// keep polls while somebody looks; a page in the background asks nothing.
async function keep(path, milliseconds, take) {
  for (;;) {
    if (!document.hidden && !paused()) {
      try {
        take(await fetched(path));
        lost = null;
      } catch (error) {
        lost ??= new Date();
        console.warn(String(error));
      }
      draw();
    }
    await new Promise((done) => {
      const timer = setTimeout(go, milliseconds);
      waiting.add(go);
      function go() {
        clearTimeout(timer);
        waiting.delete(go);
        done();
      }
    });
  }
}

const pause = document.getElementById("pause");
const paused = () => pause.getAttribute("aria-pressed") === "true";
pause.addEventListener("click", () => {
  pause.setAttribute("aria-pressed", String(!paused()));
  wake();
});
document.addEventListener("visibilitychange", wake);
document.addEventListener("toggle", ({target}) => target.open ? opened.add(target.dataset.key) : opened.delete(target.dataset.key), true);

keep("api/history", every.history, (answer) => { past = answer; });
keep("api/status", every.status, (answer) => { latest = answer; });
