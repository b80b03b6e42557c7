package mapping

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// events returns distinct events of about the given size: the fitness result,
// filled up with fields that no column reads.
func events(n, size int) (texts [][]byte, bytes int64) {
	for i := range n {
		var b strings.Builder
		fmt.Fprintf(&b, `{"schemaVersion":1,"dataId":%d,"detectId":%d,"userId":%d,"projectId":%d,"version":%d,"result":%d.%02d,"unit":"%s","isDeleted":%t`,
			9007199254740993+i, 400+i%50, 120000+i*7%5000, i%20, 1759223412123+i, i%90, i%100, []string{"m", "s", "kg", "points"}[i%4], i%20 == 0)
		for k := 0; b.Len() < size-60; k++ {
			fmt.Fprintf(&b, `,"note%d":{"text":"a remark of some length, %d","by":%d,"tags":["x","y"]}`, k, i, k)
		}
		fmt.Fprintf(&b, `,"eventId":"%08x-7b0e"}`, i)
		texts = append(texts, []byte(b.String()))
		bytes += int64(b.Len())
	}
	return texts, bytes / int64(n)
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{170, 1000, 10_000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			plan := mustCompile(b, fitness(b))
			rows := plan.NewRows()
			texts, bytes := events(1000, size)
			at := Lineage{Topic: "fitness-results", Origin: "stream"}
			for range 100_000 {
				if err := plan.Append(rows, texts[0], at); err != nil {
					b.Fatal(err)
				}
			}
			rows.Reset()
			b.ReportAllocs()
			b.SetBytes(bytes)
			i := 0
			defer cpuTime(b, 1)()
			for b.Loop() {
				at.Offset++
				if err := plan.Append(rows, texts[i], at); err != nil {
					b.Fatal(err)
				}
				if i++; i == len(texts) {
					i = 0
				}
				if rows.Len() == 100_000 {
					rows.Reset()
				}
			}
		})
	}
}

func BenchmarkConflicts(b *testing.B) {
	plan := mustCompile(b, fitness(b))
	rows := plan.NewRows()
	texts, _ := events(80_000, 170)
	for i := range 100_000 {
		if err := plan.Append(rows, texts[i%len(texts)], Lineage{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	defer cpuTime(b, rows.Len())()
	for b.Loop() {
		for i, j := range rows.Conflicts {
			b.Fatal(i, j)
		}
	}
}

// Two ways to walk the tokens of one event without mapping them.
func BenchmarkScan(b *testing.B) {
	text := []byte(fitnessEvent)
	b.Run("scanner", func(b *testing.B) {
		var s scanner
		b.ReportAllocs()
		defer cpuTime(b, 1)()
		for b.Loop() {
			if s.begin(text); !s.skip() || !s.end() {
				b.Fatal(s.reason)
			}
		}
	})
	b.Run("jsontext", func(b *testing.B) {
		var source bytes.Buffer
		decoder := jsontext.NewDecoder(&source)
		b.ReportAllocs()
		defer cpuTime(b, 1)()
		for b.Loop() {
			source.Reset()
			source.Write(text)
			decoder.Reset(&source)
			for {
				if _, err := decoder.ReadToken(); err == io.EOF {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
