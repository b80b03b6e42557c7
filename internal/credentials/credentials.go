// Package credentials reads the secrets and certificates with which a client
// proves who it is. Everything that comes from a file is read again for each
// connection, so a secret that is rotated on disk (a Kubernetes secret, a
// certificate manager) is used by the next connection without a restart.
package credentials

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// Secret is a value given directly or in a file. It never prints its value.
type Secret struct {
	Value string
	File  string // read instead of Value when it is set
}

// Read is the secret as it is now. One trailing line break of a file is not
// part of the secret: editors and `echo` add it, and no server accepts it.
func (s Secret) Read() (string, error) {
	if s.File == "" {
		return s.Value, nil
	}
	if s.Value != "" {
		return "", fmt.Errorf("secret given both directly and in %s: remove one of them", s.File)
	}
	b, err := os.ReadFile(s.File)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	b = bytes.TrimSuffix(b, []byte("\r"))
	if len(b) == 0 {
		return "", fmt.Errorf("read secret: %w", errors.New(s.File+" is empty"))
	}
	return string(b), nil
}

// String hides the value and shows the file.
func (s Secret) String() string {
	switch {
	case s.File != "":
		return "(in " + s.File + ")"
	case s.Value != "":
		return "(hidden)"
	}
	return ""
}

// GoString hides the value from %#v as well.
func (s Secret) GoString() string { return s.String() }
