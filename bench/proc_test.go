package main

import (
	"os"
	"testing"
	"time"
)

func TestCPUTimeGrowsWithWork(t *testing.T) {
	pids := []int{os.Getpid(), machinePID}
	before, err := cpuTimes(pids)
	if err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; {
		after, err := cpuTimes(pids)
		if err != nil {
			t.Fatal(err)
		}
		if own, all := after[0]-before[0], after[1]-before[1]; own >= 50*time.Millisecond {
			if all < own-20*time.Millisecond {
				t.Errorf("the machine has worked %v, this process alone %v", all, own)
			}
			return
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("%v after 30 s of work, %v before", after, before)
		}
	}
}

func TestPeakMemoryKeepsThePeak(t *testing.T) {
	before, err := peakMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const size = 128 << 20
	block := make([]byte, before+size)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	after, err := peakMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after < before+size {
		t.Errorf("peak of %d bytes after %d more than the %d before", after, len(block), before)
	}
}

func TestProcessesThatAreNot(t *testing.T) {
	const nobody = 1 << 30
	if _, err := cpuTime(nobody); err == nil {
		t.Error("a processor time of no process")
	}
	if _, err := peakMemory(nobody); err == nil {
		t.Error("a peak of no process")
	}
}
