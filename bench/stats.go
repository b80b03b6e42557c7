package main

import (
	"fmt"
	"slices"
)

// none is how a report shows that there is no figure.
const none = "–"

// sample is a set of measurements of one quantity.
type sample []float64

func (s sample) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// quantile returns the smallest measurement that at least the share q of all do not exceed.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// text shows the median, and the range when there is more than one measurement.
func (s sample) text(format string, scale float64) string {
	if len(s) == 0 {
		return none
	}
	text := fmt.Sprintf(format, s.median()*scale)
	if len(s) > 1 {
		text += fmt.Sprintf(" ("+format+" … "+format+")", slices.Min(s)*scale, slices.Max(s)*scale)
	}
	return text
}
