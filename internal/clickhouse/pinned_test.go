package clickhouse

import "testing"

// TestPinned: what every session sends cannot be configured, and the refusal says why.
func TestPinned(t *testing.T) {
	for _, sent := range []map[string]string{fixed, whole, {dedupToken: ""}} {
		for name := range sent {
			if why, ok := Pinned(name); !ok || why == "" {
				t.Errorf("%s can be configured, and the value would not be sent", name)
			}
		}
	}
	for name := range usual {
		if why, ok := Pinned(name); ok || why != "" {
			t.Errorf("%s cannot be configured: %s", name, why)
		}
	}
}
