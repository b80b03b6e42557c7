package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The functions here turn one written value into one Go value, and say what
// they wanted when they cannot. Values of variables and flags are texts, so
// those may also be the digits of a number or a bool's word.

func text(from any) (string, error) {
	s, ok := from.(scalar)
	switch {
	case ok && s.Tag == "!!null":
		return "", errors.New("has no value; write one, or remove the key")
	case !ok:
		return "", fmt.Errorf("want a text, got %s", describe(from))
	case s.Tag != "!!str" && s.Tag != "!!timestamp":
		return "", fmt.Errorf("want a text, got %s; put it in quotes", describe(from))
	case !utf8.ValidString(s.Text): // a variable may hold any bytes
		return "", errors.New("want a text, got bytes that are not UTF-8")
	}
	return s.Text, nil
}

// secret is text whose errors do not show what was written.
func secret(from any) (Secret, error) {
	s, err := text(from)
	if err != nil {
		return "", errors.New("want a text in quotes, in UTF-8 (the value is not shown)")
	}
	return Secret(s), nil
}

func parseWith[T any](from any, parse func(string) (T, error)) (T, error) {
	s, ok := from.(scalar)
	if ok && (s.Tag == "!!int" || s.Tag == "!!float") {
		return parse(s.Text) // has no unit: the parser says so
	}
	var zero T
	written, err := text(from)
	if err != nil {
		return zero, err
	}
	return parse(written)
}

func boolean(from any) (bool, error) {
	s, ok := from.(scalar)
	if ok && (s.Tag == "!!bool" || s.From != "") {
		switch strings.ToLower(s.Text) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	}
	return false, fmt.Errorf("want true or false, got %s", describe(from))
}

func number(from any) (float64, error) {
	s, ok := from.(scalar)
	if ok && (s.Tag == "!!int" || s.Tag == "!!float" || s.From != "") {
		if f, err := strconv.ParseFloat(s.Text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f, nil
		}
	}
	return 0, fmt.Errorf("want a number, got %s", describe(from))
}

// jsonText writes a YAML value as JSON. Numbers keep their digits.
func jsonText(from any) (JSON, error) {
	switch v := from.(type) {
	case []any:
		parts := make([]json.RawMessage, len(v))
		for i, e := range v {
			part, err := jsonText(e)
			if err != nil {
				return nil, err
			}
			parts[i] = json.RawMessage(part)
		}
		return marshal(parts)
	case map[string]any:
		parts := make(map[string]json.RawMessage, len(v))
		for key, e := range v {
			part, err := jsonText(e)
			if err != nil {
				return nil, err
			}
			parts[key] = json.RawMessage(part)
		}
		return marshal(parts)
	case scalar:
		switch v.Tag {
		case "!!null":
			return JSON("null"), nil
		case "!!bool":
			return JSON(strings.ToLower(v.Text)), nil
		case "!!int", "!!float":
			if !json.Valid([]byte(v.Text)) {
				return nil, fmt.Errorf("%s is not a number as JSON writes it; write plain digits such as 10 or 2.5", cut(v.Text))
			}
			return JSON(v.Text), nil
		case "!!str", "!!timestamp":
			return marshal(v.Text)
		}
		return nil, fmt.Errorf("want a JSON value, got a value tagged %s", v.Tag)
	}
	return nil, fmt.Errorf("want a JSON value, got %s", describe(from))
}

func marshal(v any) (JSON, error) { return json.Marshal(v) }

// split reads a list from a variable: texts with commas between them.
func split(s scalar) []any {
	list := []any{}
	for part := range strings.SplitSeq(s.Text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, scalar{Text: part, Tag: "!!str", From: s.From})
		}
	}
	return list
}

// nearest is the word that a typing error most likely meant, or "".
func nearest(word string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if d := edits(word, k); d < distance && d < len(k)/2+1 {
			best, distance = k, d
		}
	}
	return best
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
