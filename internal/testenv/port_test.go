package testenv

import "testing"

// A port that was given to one is given to nobody else, also while nothing listens on it: its server has not come so far,
// or was killed and is about to come back.
func TestPortStaysReserved(t *testing.T) {
	port, release, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if l, err := take(port); err == nil {
		l.Close()
		t.Errorf("port %d was given twice", port)
	}
	release()
	l, err := take(port)
	if err != nil {
		t.Fatalf("after its release: %v", err)
	}
	giveBack(port)
	l.Close()
}

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
