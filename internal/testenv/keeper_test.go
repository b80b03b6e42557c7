package testenv

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// keeperConn is a keeper inside the test, as its owner sees it.
type keeperConn struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
}

func keep(t *testing.T, cfg KeeperConfig) *keeperConn {
	t.Helper()
	requests, in := io.Pipe()
	out, replies := io.Pipe()
	k := &keeperConn{t: t, in: in, out: bufio.NewReader(out), ended: make(chan error, 1)}
	go func() {
		k.ended <- Keep(cfg, requests, replies)
		_ = replies.Close()
	}()
	t.Cleanup(func() { _ = in.Close() })
	return k
}

func (k *keeperConn) ask(request string) string {
	k.t.Helper()
	fmt.Fprintln(k.in, request)
	reply, err := k.out.ReadString('\n')
	if err != nil {
		k.t.Fatalf("%s: %v", request, err)
	}
	return strings.TrimSuffix(reply, "\n")
}

func (k *keeperConn) start() (pid int) {
	k.t.Helper()
	reply := k.ask("start")
	pid, err := strconv.Atoi(strings.TrimPrefix(reply, "started "))
	if err != nil {
		k.t.Fatalf("start answered %q", reply)
	}
	return pid
}

func TestKeeperProtocol(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	sleeper := KeeperConfig{Command: []string{"sleep", "1000"}, Log: log}
	tests := []struct {
		name   string
		cfg    KeeperConfig
		dialog []string // request, start of the reply, request, …
		logged string
	}{
		{name: "signals", cfg: sleeper, dialog: []string{
			"start", "started ", "wait 0s", "running", "start", "error it is running already",
			"signal 15", "ok", "wait 10s", "exited signal: terminated", "signal 15", "error it is not running",
			"start", "started ", "signal 9", "ok", "wait 10s", "exited signal: killed",
		}},
		{name: "exit status and log", cfg: KeeperConfig{Command: []string{"sh", "-c", "echo told; exit 7"}, Log: log}, dialog: []string{
			"start", "started ", "wait 10s", "exited exit status 7",
		}, logged: "told\n"},
		{name: "bad requests", cfg: sleeper, dialog: []string{
			"wait 0s", "error it was never started", "signal 9", "error it is not running", "signal x", "error ",
			"dance", `error unknown request "dance"`, "start", "started ", "wait soon", "error ", "", "error ",
		}},
		{name: "no such program", cfg: KeeperConfig{Command: []string{"/nonexistent"}, Log: log}, dialog: []string{
			"start", "error fork/exec /nonexistent: no such file",
		}},
		{name: "no such log folder", cfg: KeeperConfig{Command: []string{"true"}, Log: filepath.Join(dir, "no", "log")}, dialog: []string{
			"start", "error open ",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := keep(t, tt.cfg)
			for i := 0; i < len(tt.dialog); i += 2 {
				if reply := k.ask(tt.dialog[i]); !strings.HasPrefix(reply, tt.dialog[i+1]) {
					t.Errorf("%q answered %q, want %q", tt.dialog[i], reply, tt.dialog[i+1])
				}
			}
			if text, _ := os.ReadFile(tt.cfg.Log); !strings.HasSuffix(string(text), tt.logged) {
				t.Errorf("the log holds %q, want %q", text, tt.logged)
			}
			_ = k.in.Close()
			if err := <-k.ended; err != nil {
				t.Errorf("the keeper ended with %v", err)
			}
		})
	}
}

func TestKeeperCleansUpWhenItsOwnerEnds(t *testing.T) {
	tests := []struct {
		name    string
		command string
		request string // sent but not awaited before the owner ends
	}{
		{name: "idle", command: "echo $$; exec sleep 1000"},
		{name: "while it waits", command: "echo $$; exec sleep 1000", request: "wait 1h"},
		{name: "server ignores SIGTERM", command: "trap '' TERM; echo $$; while :; do sleep 1; done"},
		{name: "server has a child", command: "sleep 1000 & echo $!; wait"},
		{name: "server left a child behind", command: "sleep 1000 & echo $!"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			data := t.TempDir()
			if err := os.WriteFile(filepath.Join(data, "file"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			k := keep(t, KeeperConfig{Command: []string{"sh", "-c", tt.command}, Log: log, Remove: data})
			k.start()
			pid := 0
			Eventually(t, "the process tells its id", func() bool {
				text, _ := os.ReadFile(log)
				_, err := fmt.Sscanln(string(text), &pid)
				return err == nil
			})
			if tt.request != "" {
				fmt.Fprintln(k.in, tt.request)
			}
			_ = k.in.Close()
			if err := <-k.ended; err != nil {
				t.Errorf("the keeper ended with %v", err)
			}
			Eventually(t, "the process is gone", func() bool { return gone(pid) })
			if _, err := os.Stat(data); !os.IsNotExist(err) {
				t.Errorf("the data folder remains: %v", err)
			}
		})
	}
}

// gone reports whether no process has the id, or only one that awaits its reaping by somebody else's parent.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
