package testenv

import "testing"

// A server whose two ports are one does not start.
func TestPortsDiffer(t *testing.T) {
	var ports [500]int // of 12,000: without care some are surely equal
	var all []*int
	for i := range ports {
		all = append(all, &ports[i])
	}
	if err := choosePorts("test", all...); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p] {
			t.Fatalf("port %d was given twice", p)
		}
		seen[p] = true
	}
}
