package audit

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const idLayout = "20060102T150405"

// NewID returns an identity that sorts by the time of its making and that two
// processes which start in one second do not share: 20261130T134512-4f2a9c.
func NewID(now time.Time) string { return now.UTC().Format(idLayout) + "-" + chance(3) }

var idPattern = regexp.MustCompile(`^\d{8}T\d{6}-[0-9a-f]{6}$`)

// CheckID returns an error for a text that cannot be an operation's identity.
func CheckID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("%q is no operation: an ID looks like 20261130T134512-4f2a9c", id)
	}
	return nil
}

// chance returns n random bytes as hexadecimal digits.
func chance(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// newHolder names this process, and one operation's stay in it.
func newHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", strings.ReplaceAll(host, "/", "-"), os.Getpid(), chance(3))
}

// gone reports whether holder was a process of this machine that no longer
// exists, so that nobody waits half a minute for what kill -9 has ended. Of
// another machine's process nothing is known but its silence. Two containers
// that share a host name and not their processes can mislead it; then both
// work for a moment, and the first notices with its next Advance.
func gone(holder string) bool {
	parts := strings.Split(holder, "/")
	host, err := os.Hostname()
	if err != nil || len(parts) != 3 || parts[0] != strings.ReplaceAll(host, "/", "-") {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid <= 0 {
		return false
	}
	return syscall.Kill(pid, 0) == syscall.ESRCH
}
