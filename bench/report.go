package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is what results.json holds.
type report struct {
	Date       time.Time `json:"date"`
	Machine    string    `json:"machine"`
	Go         string    `json:"go"`
	ClickHouse string    `json:"clickhouse"`
	Sections   []section `json:"sections"`
}

func (b *bench) newReport(ctx context.Context) (report, error) {
	version, err := query(ctx, b.address, "SELECT version()")
	if err != nil {
		return report{}, err
	}
	return report{Date: time.Now().UTC(), Machine: machine(), Go: runtime.Version(), ClickHouse: version}, nil
}

// machine describes processors and memory.
func machine() string {
	model, memory := runtime.GOARCH, ""
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
				model = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), ":"))
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int
		if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err == nil {
			memory = fmt.Sprintf(", %d GiB", (kib+1<<19)>>20)
		}
	}
	return fmt.Sprintf("%d CPUs (%s)%s, %s", runtime.NumCPU(), model, memory, runtime.GOOS)
}

// write puts results.md and results.json into a folder.
func (r report) write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var markdown strings.Builder
	r.markdown(&markdown)
	for name, content := range map[string]string{"results.json": string(text) + "\n", "results.md": markdown.String()} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

func (r report) markdown(w io.Writer) {
	fmt.Fprintf(w, "%s · %s · %s · ClickHouse %s\n", r.Date.Format("2006-01-02"), r.Machine, r.Go, r.ClickHouse)
	for _, s := range r.Sections {
		fmt.Fprintf(w, "\n### %s\n\n", s.Title)
		switch {
		case len(s.Delays) > 0:
			s.delays(w)
		case len(s.Copies) > 0:
			s.copies(w)
		case len(s.Relays) > 0:
			s.relays(w)
		case len(s.Weighings) > 0:
			s.weighings(w)
		default:
			s.races(w)
		}
	}
}

func (s section) races(w io.Writer) {
	head := []string{
		"", "events/s", "steady events/s", "of the limit", "steady, of the limit", "CPU s/million", "ClickHouse CPU s/million",
		"peak MiB", "allocations/event", "others' CPU %",
	}
	var rows [][]string
	for _, name := range names(s.Results) {
		var rate, steady, ofLimit, steadyOfLimit, cpu, server, peak, allocs, others sample
		for _, x := range s.Results {
			if x.Contestant != name {
				continue
			}
			rate, server, others = append(rate, x.Rate), append(server, x.ServerCPU), append(others, x.Others)
			if x.Steady > 0 {
				steady = append(steady, x.Steady)
			}
			if x.PeakBytes > 0 {
				cpu, peak = append(cpu, x.CPU), append(peak, float64(x.PeakBytes))
			}
			if x.Allocs > 0 {
				allocs = append(allocs, x.Allocs)
			}
			if base, ok := s.baseline(x.Round); ok {
				ofLimit = append(ofLimit, x.Rate/base.Rate)
				if x.Steady > 0 && base.Steady > 0 {
					steadyOfLimit = append(steadyOfLimit, x.Steady/base.Steady)
				}
			}
		}
		rows = append(rows, []string{
			name, rate.text("%.0f", 1), steady.text("%.0f", 1), ofLimit.text("%.2f", 1), steadyOfLimit.text("%.2f", 1),
			cpu.text("%.2f", 1), server.text("%.2f", 1), peak.text("%.0f", 1.0/(1<<20)), allocs.text("%.2f", 1),
			others.text("%.0f", 100),
		})
	}
	writeTable(w, head, rows)
}

// baseline returns the limit's result of a round: ratios are formed within a round.
func (s section) baseline(round int) (result, bool) {
	if !s.Baseline {
		return result{}, false
	}
	i := slices.IndexFunc(s.Results, func(x result) bool { return x.Contestant == "limit" && x.Round == round })
	if i < 0 {
		return result{}, false
	}
	return s.Results[i], true
}

func names(results []result) (names []string) {
	for _, x := range results {
		if !slices.Contains(names, x.Contestant) {
			names = append(names, x.Contestant)
		}
	}
	return names
}

func (s section) delays(w io.Writer) {
	head := []string{"", "events/s", "produced/s", "p50 ms", "p99 ms", "max ms", "inserts/s", "probing query ms", "probes"}
	type key struct {
		name   string
		target int
	}
	var keys []key
	groups := map[key][]delay{}
	for _, d := range s.Delays {
		k := key{d.Contestant, d.Target}
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], d)
	}
	var rows [][]string
	for _, k := range keys {
		of := func(f func(delay) float64) (s sample) {
			for _, d := range groups[k] {
				s = append(s, f(d))
			}
			return s
		}
		rows = append(rows, []string{
			k.name, fmt.Sprint(k.target), of(func(d delay) float64 { return d.Produced }).text("%.0f", 1),
			of(func(d delay) float64 { return d.P50 }).text("%.0f", 1), of(func(d delay) float64 { return d.P99 }).text("%.0f", 1),
			of(func(d delay) float64 { return d.Max }).text("%.0f", 1), of(func(d delay) float64 { return d.Inserts }).text("%.1f", 1),
			of(func(d delay) float64 { return d.Poll }).text("%.1f", 1), of(func(d delay) float64 { return float64(d.Probes) }).text("%.0f", 1),
		})
	}
	writeTable(w, head, rows)
}

// relays shows rates beside those of the plain loop in the same round.
func (s section) relays(w io.Writer) {
	head := []string{"", "events/s", "of the plain loop", "CPU s/million", "MariaDB CPU s/million", "insert p50 ms", "insert p99 ms", "others' CPU %"}
	var names []string
	for _, x := range s.Relays {
		if !slices.Contains(names, x.Contestant) {
			names = append(names, x.Contestant)
		}
	}
	var rows [][]string
	for _, name := range names {
		var rate, ofPlain, cpu, server, p50, p99, others sample
		for _, x := range s.Relays {
			if x.Contestant != name {
				continue
			}
			if x.Rate == 0 {
				p50, p99 = append(p50, x.InsertP50), append(p99, x.InsertP99)
				continue
			}
			rate, cpu, server, others = append(rate, x.Rate), append(cpu, x.CPU), append(server, x.ServerCPU), append(others, x.Others)
			for _, plain := range s.Relays {
				if plain.Contestant == "plain loop" && plain.Round == x.Round {
					ofPlain = append(ofPlain, x.Rate/plain.Rate)
				}
			}
		}
		rows = append(rows, []string{
			name, rate.text("%.0f", 1), ofPlain.text("%.2f", 1), cpu.text("%.1f", 1), server.text("%.1f", 1),
			p50.text("%.2f", 1), p99.text("%.2f", 1), others.text("%.0f", 100),
		})
	}
	writeTable(w, head, rows)
}

// writeTable writes a Markdown table without the columns that say nothing.
func writeTable(w io.Writer, head []string, rows [][]string) {
	keep := func(column int) bool {
		return column == 0 || slices.ContainsFunc(rows, func(row []string) bool { return row[column] != none })
	}
	line := func(cells []string) {
		for i, cell := range cells {
			if keep(i) {
				fmt.Fprintf(w, "| %s ", cell)
			}
		}
		fmt.Fprintln(w, "|")
	}
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, row := range rows {
		line(row)
	}
}

// String is a run's line of progress.
func (x result) String() string {
	return fmt.Sprintf("%7.0f events/s, steady %7.0f; CPU s/million: own %.2f, ClickHouse %.2f, broker %.2f; peak %d MiB; others %.0f %%",
		x.Rate, x.Steady, x.CPU, x.ServerCPU, x.BrokerCPU, x.PeakBytes>>20, 100*x.Others)
}

// String is a run's line of progress.
func (d delay) String() string {
	return fmt.Sprintf("%-14s %6d events/s: p50 %.0f ms, p99 %.0f, max %.0f; %.1f inserts/s; probing query %.1f ms",
		d.Contestant, d.Target, d.P50, d.P99, d.Max, d.Inserts, d.Poll)
}
