package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/fitness"
	"github.com/chprojector/projector/internal/testenv"
)

// TestPage looks at the status page in a browser. With E2E_SCREENSHOTS=FOLDER it feeds events for some minutes and
// leaves pictures of the page in that folder.
func TestPage(t *testing.T) {
	t.Parallel()
	screenshots := os.Getenv("E2E_SCREENSHOTS")
	b := testenv.NewBrowser(t)
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: []string{"reporting"}})
	w := newWorld(t, setup{partitions: 3, server: server})
	w.apply()
	w.exec("DROP VIEW fitness_results_by_campaign")
	p := w.start("projector", "lanes=2")
	p.ready()
	page := shownPage{b, t, "http://" + p.admin + "/"}
	b.Resize(t, 1280, 900)
	b.Call(t, "Page.navigate", map[string]string{"url": page.url}, nil)
	b.Until(t, `document.querySelector("article")`)

	w.fill(events(t, 3000, 21))
	if screenshots != "" {
		w.waves(100 * time.Second)
	}
	for i, poison := range fitness.Poisons() {
		w.produce(&kgo.Record{Key: fmt.Append(nil, i), Value: poison.Value})
	}
	w.settle()
	page.agrees("when all is done", w.status(0)[0])

	t.Run("trouble", func(t *testing.T) {
		repair := w.trouble()
		for fact, want := range map[string]string{
			"[data-fact=schema]":                 "online fitness_results_by_campaign: create the view",
			"[data-fact=discrepancies]":          "missing 2, stale 1, version_conflict ", // and some that the stream has brought
			"[data-fact=discrepancies] ~ p":      "projector repair plan",
			"tr[data-row=\"" + repair + "\"] td": "applied" + "replay of 3 records: 3 applied, 0 skipped" + "next: projector repair verify " + repair,
			"#operations ~ table":                "generation 1 to 2, 4 of 9 steps done; step 5: wait for the stream" + "next: projector rebuild verify",
		} {
			w.until(soon, fmt.Sprintf("%s says %q", fact, want), func() (says bool) {
				b.Eval(t, fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.textContent.includes(%q))`, fact, want), &says)
				return says
			})
		}
	})

	t.Run("JSON", func(t *testing.T) {
		// All of the status is the command's, field by field; ages are of the moment.
		of := func(text string) any {
			var all []map[string]any
			if err := json.Unmarshal([]byte(text), &all); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			forget(all, "newest_row_age_seconds")
			return all
		}
		var answer struct {
			NotReady      []string `json:"not_ready"`
			Configuration string
			Projections   []struct {
				Status json.RawMessage
				Schema struct{ Data json.RawMessage }
			}
		}
		_, body := p.probe("/api/status")
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatalf("%v in\n%s", err, body)
		}
		if d := cmp.Diff(of(w.must(0, "status", "-o", "json").stdout), of("["+string(answer.Projections[0].Status)+"]")); d != "" {
			t.Errorf("-status +page\n%s", d)
		}
		if d := cmp.Diff(of(w.must(3, "schema", "check", "-o", "json").stdout), of("["+string(answer.Projections[0].Schema.Data)+"]")); d != "" {
			t.Errorf("-schema check +page\n%s", d)
		}
		if d := cmp.Diff(w.must(0, "--set", "lanes=2", "--set", "http.address="+p.admin, "config", "print").stdout, answer.Configuration); d != "" {
			t.Errorf("-config print +page\n%s", d)
		}
	})

	t.Run("charts", func(t *testing.T) {
		// Two samples, a quarter of a minute apart, after the first batch.
		var labels []string
		defer func() {
			if t.Failed() {
				t.Logf("the charts are %q", labels)
			}
		}()
		testenv.Eventually(t, "the charts have their lines", func() bool {
			labels = nil
			b.Eval(t, `[...document.querySelectorAll("article svg")].map((s) => s.getAttribute("aria-label"))`, &labels)
			has := func(part string) bool {
				return slices.ContainsFunc(labels, func(l string) bool { return strings.HasPrefix(l, part) })
			}
			return has("Lag of "+w.topic+"/2, last 5 min: now 0, highest ") && has("Freshness of "+w.topic+"/0, last 5 min: now ") &&
				has("Rows per second of fitness_results, last 5 min: now ") && has("Median insert of fitness_results, last 5 min: ")
		})
	})

	t.Run("keyboard", func(t *testing.T) {
		// Everything that can be used is reached by Tab, in the order in which it is read.
		b.Eval(t, "document.activeElement.blur()", nil)
		var reached []string
		for range 30 {
			b.Press(t, "Tab")
			var name string
			b.Eval(t, `((e) => e === document.body ? "" : (e.textContent.trim().split("\n")[0].slice(0, 30) || e.tagName))(document.activeElement)`, &name)
			if name == "" {
				break
			}
			var outlined bool
			b.Eval(t, `getComputedStyle(document.activeElement).outlineStyle !== "none"`, &outlined)
			if !outlined {
				t.Errorf("nothing shows that %q has the focus", name)
			}
			reached = append(reached, name)
			if name == "Pause updates" || name == "Configuration" {
				b.Press(t, "Enter")
			}
		}
		text := strings.Join(reached, ", ")
		if !strings.HasPrefix(text, "Skip to the projections, Pause updates, metrics, readyz, livez, status as JSON, ") || !strings.Contains(text, "Configuration") {
			t.Errorf("Tab reaches %s", text)
		}
		var used struct{ Paused, Opened bool }
		b.Eval(t, `({paused: document.getElementById("pause").getAttribute("aria-pressed") === "true", opened: document.querySelector("[data-key=configuration]").open})`, &used)
		if !used.Paused || !used.Opened {
			t.Errorf("Enter: %+v", used)
		}
		b.Eval(t, `document.getElementById("pause").click()`, nil)
	})

	t.Run("names", func(t *testing.T) {
		var nameless []string
		b.Eval(t, `[
			...[...document.querySelectorAll("svg, [role=img]")].filter((e) => !e.getAttribute("aria-label")),
			...[...document.querySelectorAll("a, button, summary")].filter((e) => !e.textContent.trim()),
			...[...document.querySelectorAll("th")].filter((e) => !e.scope),
		].map((e) => e.outerHTML.slice(0, 80))`, &nameless)
		if len(nameless) > 0 {
			t.Errorf("without a name: %q", nameless)
		}
	})

	t.Run("words", func(t *testing.T) {
		// A name in a table breaks between its words, as somebody would who has to read it out.
		for _, width := range []int{1280, 800} {
			b.Resize(t, width, 900)
			var checked struct {
				Words  int
				Broken []string
			}
			b.Eval(t, `(() => {
				const checked = {words: 0, broken: []}, range = document.createRange();
				for (const cell of document.querySelectorAll("tbody th, [data-column=Projection]")) {
					const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
					while (texts.nextNode()) for (const word of texts.currentNode.data.matchAll(/[A-Za-z0-9]+/g)) {
						range.setStart(texts.currentNode, word.index);
						range.setEnd(texts.currentNode, word.index + word[0].length);
						checked.words++;
						if (new Set([...range.getClientRects()].map((r) => r.top)).size > 1) checked.broken.push(word[0]);
					}
				}
				return checked;
			})()`, &checked)
			if checked.Words < 10 || len(checked.Broken) > 0 {
				t.Errorf("at %d px, of %d words these are broken: %q", width, checked.Words, checked.Broken)
			}
		}
		b.Resize(t, 1280, 900)
	})

	for _, scheme := range []string{"light", "dark"} {
		t.Run(scheme, func(t *testing.T) {
			b.Prefer(t, "prefers-color-scheme", scheme)
			b.Eval(t, `document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil)
			page.readable(t)
			b.Eval(t, `document.querySelectorAll("details").forEach((d) => { d.open = false; })`, nil)
			page.picture(screenshots, scheme)
		})
	}

	t.Run("phone", func(t *testing.T) {
		b.Prefer(t, "prefers-color-scheme", "light")
		for _, width := range []int{320, 390} {
			b.Resize(t, width, 844)
			b.Eval(t, `document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil)
			var wide []string
			b.Eval(t, `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5 && !e.closest("svg, .skip, thead"))
				.map((e) => e.outerHTML.slice(0, 80)).concat(document.scrollingElement.scrollWidth > innerWidth ? ["the page"] : [])`, &wide)
			if len(wide) > 0 {
				t.Errorf("wider than %d px: %q", width, wide)
			}
			b.Eval(t, `document.querySelectorAll("details").forEach((d) => { d.open = false; })`, nil)
		}
		page.picture(screenshots, "phone")
		b.Resize(t, 1280, 900)
	})

	// Everything so far came from the process, without a word in the console. The rest breaks things.
	page.undisturbed()

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	w.fill(events(t, 500, 22))
	b.Until(t, `document.querySelector("[data-fact=newest]").textContent.includes("unknown: ask ClickHouse")`)
	page.agrees("without ClickHouse", w.status(1)[0])
	page.picture(screenshots, "clickhouse-down")
	page.undisturbed()

	p.signal(syscall.SIGKILL)
	w.until(soon, "the page says that nobody answers", func() bool {
		return strings.HasPrefix(page.text("#state"), "this process has not answered since ") && strings.HasPrefix(page.text("title"), "no answer")
	})
}

// forget removes a key everywhere.
func forget(value any, key string) {
	switch v := value.(type) {
	case []map[string]any:
		for _, m := range v {
			forget(m, key)
		}
	case []any:
		for _, e := range v {
			forget(e, key)
		}
	case map[string]any:
		delete(v, key)
		for e := range maps.Values(v) {
			forget(e, key)
		}
	}
}

// shownPage is the page as somebody sees it.
type shownPage struct {
	*testenv.Browser
	t   *testing.T
	url string
}

func (p shownPage) text(selector string) (text string) {
	p.t.Helper()
	p.Eval(p.t, fmt.Sprintf("document.querySelector(%q).textContent", selector), &text)
	return text
}

// seen is what the page and the command both say of a projection, as the page has it.
type seen struct {
	Table, Group, Lag, Newest string
	Partitions                map[string][]string // committed, end, lag, stored
	Letters                   map[string]string
	Classes                   []string
	Samples                   map[string]string // class -> the reason in one letter
}

// agrees waits until the page shows what the command says.
func (p shownPage) agrees(when string, s status) {
	p.t.Helper()
	unknown := slices.ContainsFunc(s.Unknown, func(u string) bool { return strings.HasPrefix(u, "stored rows: ") })
	value := func(n *int64, absent string) string {
		if n == nil {
			return absent
		}
		return fmt.Sprint(*n)
	}
	absent := map[bool]string{true: "unknown", false: "–"}[unknown]
	want := seen{Table: s.Table, Group: s.Group, Lag: value(s.Lag, "unknown"), Newest: "none", Partitions: map[string][]string{}, Letters: map[string]string{}, Classes: []string{}, Samples: map[string]string{}}
	switch {
	case unknown:
		want.Newest = "unknown: " + strings.TrimPrefix(s.Unknown[0], "stored rows: ")
	case s.Newest != "":
		want.Newest = s.Newest
	}
	for _, part := range s.Partitions {
		want.Partitions[fmt.Sprintf("%s/%d", part.Topic, part.Partition)] = []string{value(part.Committed, "none"), value(part.End, "unknown"), value(part.Lag, "unknown"), value(part.Stored, absent)}
	}
	for _, l := range s.Letters {
		want.Letters[l.Topic] = fmt.Sprint(l.Letters)
		for class, n := range l.Classes {
			want.Classes = append(want.Classes, fmt.Sprintf("%s %d", class, n))
			want.Samples[class] = l.Samples[class].Error
		}
	}
	slices.Sort(want.Classes)
	var got seen
	end := time.Now().Add(30 * time.Second)
	for {
		got = seen{}
		p.Eval(p.t, `(() => {
			const plain = (text) => /^[\d,]+$/.test(text) ? text.replaceAll(",", "") : text;
			const fact = (name) => document.querySelector("[data-fact=" + name + "]");
			const cell = (row, column) => plain(row.querySelector("[data-column=" + column + "] > div").firstChild.textContent);
			const rows = [...document.querySelectorAll("tr[data-row]")];
			return {
				table: fact("table").textContent, group: fact("group").textContent, lag: plain(fact("lag").textContent),
				newest: fact("newest").querySelector("time")?.dateTime ?? fact("newest").textContent,
				partitions: Object.fromEntries(rows.filter((r) => r.querySelector("[data-column=Committed]")).map((r) =>
					[r.dataset.row, ["Committed", "End", "Lag", "Stored"].map((c) => cell(r, c))])),
				letters: Object.fromEntries(rows.filter((r) => r.querySelector("[data-column=Letters]")).map((r) => [r.dataset.row, cell(r, "Letters")])),
				classes: [...document.querySelectorAll("[data-class]")].map((e) => (e.querySelector("summary") ?? e).textContent).sort(),
				samples: Object.fromEntries([...document.querySelectorAll("[data-class]")].map((e) => [e.dataset.class, e.querySelector("details p").textContent])),
			};
		})()`, &got)
		d := cmp.Diff(want, got)
		if d == "" {
			return
		}
		if time.Now().After(end) {
			p.t.Errorf("%s: -status +page\n%s", when, d)
			return
		}
		<-time.After(200 * time.Millisecond)
	}
}

// readable holds every text, and the charts' lines, to the contrast that WCAG 2 asks for at level AA.
func (p shownPage) readable(t *testing.T) {
	t.Helper()
	var checked struct {
		Texts, Lines int
		Faint        []string
	}
	p.Eval(t, `(() => {
		const parse = (c) => { const n = c.match(/[\d.]+/g).map(Number); return {rgb: n.slice(0, 3), alpha: n[3] ?? 1}; };
		const luminance = (rgb) => { const [r, g, b] = rgb.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.alpha === 1) return c.rgb; } return [255, 255, 255]; };
		const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
		const faint = [], seen = [...document.querySelectorAll("body *")].filter((e) => e.getClientRects().length);
		const check = (e, color, least) => { const r = ratio(parse(color).rgb, ground(e)); if (r < least || parse(color).alpha < 1) faint.push(r.toFixed(2) + " " + e.outerHTML.slice(0, 80)); };
		const texts = seen.filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
		texts.forEach((e) => check(e, getComputedStyle(e).color, 4.5));
		const lines = seen.filter((e) => e.matches("path.line"));
		lines.forEach((e) => check(e, getComputedStyle(e).stroke, 3));
		return {texts: texts.length, lines: lines.length, faint};
	})()`, &checked)
	if len(checked.Faint) > 0 || checked.Texts < 50 || checked.Lines < 5 {
		t.Errorf("of %d texts and %d lines these are too faint: %q", checked.Texts, checked.Lines, checked.Faint)
	}
}

// undisturbed holds that the page has asked its own process alone, and that the console is empty.
func (p shownPage) undisturbed() {
	p.t.Helper()
	requests := p.Events("Network.requestWillBeSent")
	for _, e := range requests {
		if !bytes.Contains(e.Params, []byte(`"url":"`+p.url)) {
			p.t.Errorf("a request to elsewhere: %.300s", e.Params)
		}
	}
	if len(requests) < 6 {
		p.t.Errorf("%d requests are known", len(requests))
	}
	for _, method := range []string{"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed"} {
		for _, e := range p.Events(method) {
			p.t.Errorf("%s: %.1000s", method, e.Params)
		}
	}
}

// picture writes the page as it is now, if there is a folder for it.
func (p shownPage) picture(folder, name string) {
	p.t.Helper()
	if folder == "" {
		return
	}
	p.Eval(p.t, "new Promise((done) => setTimeout(done, 500))", nil) // what was opened closes, and the page shrinks
	if err := os.WriteFile(filepath.Join(folder, "status-"+name+".png"), p.Screenshot(p.t), 0o644); err != nil {
		p.t.Fatal(err)
	}
}
