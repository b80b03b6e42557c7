package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// machinePID stands for all processes of the machine together.
const machinePID = 0

// cpuTime returns the processor time that a process, or the whole machine, has used so far, from /proc; the kernel counts
// in hundredths of a second.
func cpuTime(pid int) (time.Duration, error) {
	path, fields := fmt.Sprintf("/proc/%d/stat", pid), []int{11, 12} // utime and stime of proc(5), after the name
	if pid == machinePID {
		path, fields = "/proc/stat", []int{0, 1, 2, 5, 6, 7} // user, nice, system, irq, softirq, steal
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	// A process's name stands in parentheses and may hold anything.
	words := strings.Fields(strings.TrimPrefix(line[strings.LastIndexByte(line, ')')+1:], "cpu"))
	var ticks int64
	for _, i := range fields {
		if i >= len(words) {
			return 0, fmt.Errorf("%s has only %d fields", path, len(words))
		}
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// peakMemory returns the highest resident memory of a process so far, in bytes (VmHWM). The kernel's ru_maxrss would
// not do: a child started by vfork inherits its parent's.
func peakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kib), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("no VmHWM: the process has ended")
}
