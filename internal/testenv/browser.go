package testenv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Browser is a Chromium without windows that shows one page. It is driven over two pipes by the DevTools protocol
// (https://chromedevtools.github.io/devtools-protocol), JSON texts that end with a zero byte.
type Browser struct {
	cmd     *exec.Cmd
	profile string
	session string // of the page
	done    chan struct{}

	mu     sync.Mutex
	out    io.WriteCloser
	last   int
	calls  map[int]chan reply
	events []BrowserEvent
}

// BrowserEvent is what the browser reported by itself, such as Network.requestWillBeSent.
type BrowserEvent struct {
	Method string
	Params json.RawMessage
}

// reply is a message from the browser: the answer to a call, or an event.
type reply struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Message string
		Data    string
	}
}

// NewBrowser starts a browser that ends with the test, installing it first if the machine lacks it. Where it cannot
// be installed for want of rights, the test is skipped, but not in CI (CI is set) and not as root.
func NewBrowser(t testing.TB) *Browser {
	t.Helper()
	program, err := installChromium(t.Context())
	if err != nil {
		if os.Geteuid() != 0 && os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	b, err := startBrowser(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func startBrowser(ctx context.Context, program string) (*Browser, error) {
	profile, err := os.MkdirTemp("", "projector-browser-")
	if err != nil {
		return nil, err
	}
	theirIn, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b := &Browser{profile: profile, out: out, calls: map[int]chan reply{}, done: make(chan struct{})}
	// Its sandbox needs rights that a container's root does not have; it shows our own page only.
	b.cmd = exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--user-data-dir="+profile,
		"--remote-debugging-pipe", "about:blank")
	b.cmd.Env = append(os.Environ(), "HOME="+profile)
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = b.cmd.Start()
	_, _ = theirIn.Close(), theirOut.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", program, err), out.Close(), in.Close(), os.RemoveAll(profile))
	}
	go b.read(in)
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", program, err), b.stop())
	}
	return b, nil
}

// open attaches to a page and asks for its events.
func (b *Browser) open(ctx context.Context) error {
	var target struct{ TargetID string }
	if err := b.call(ctx, "Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var attached struct{ SessionID string }
	if err := b.call(ctx, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return err
	}
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		if err := b.call(ctx, domain+".enable", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// read hands out what the browser says until it ends.
func (b *Browser) read(in io.ReadCloser) {
	defer close(b.done)
	defer in.Close()
	r := bufio.NewReader(in)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m reply
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if answer, ok := b.calls[m.ID]; ok && m.Method == "" {
			delete(b.calls, m.ID)
			answer <- m // has room for it
		} else if m.Method != "" {
			b.events = append(b.events, BrowserEvent{m.Method, m.Params})
		}
		b.mu.Unlock()
	}
}

// call calls a method of the protocol and decodes its result, unless that is nil.
func (b *Browser) call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answer := make(chan reply, 1)
	b.mu.Lock()
	b.last++
	message := map[string]any{"id": b.last, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err == nil {
		b.calls[b.last] = answer
		_, err = b.out.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case r := <-answer:
		switch {
		case r.Error != nil:
			return fmt.Errorf("%s: %s %s", method, r.Error.Message, r.Error.Data)
		case result == nil:
			return nil
		}
		return json.Unmarshal(r.Result, result)
	case <-b.done:
		return fmt.Errorf("%s: the browser has ended", method)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// stop ends the browser and all of its processes.
func (b *Browser) stop() error {
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	_ = b.cmd.Wait() // killed, as asked
	<-b.done
	return errors.Join(b.out.Close(), removeAll(b.profile))
}

// removeAll removes a folder into which the last of some killed processes may still write.
func removeAll(dir string) (err error) {
	for range 20 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		<-time.After(50 * time.Millisecond)
	}
	return err
}

// Call calls a method of the protocol for the page and decodes its result, unless that is nil.
func (b *Browser) Call(t testing.TB, method string, params, result any) {
	t.Helper()
	if err := b.call(t.Context(), method, params, result); err != nil {
		t.Fatal(err)
	}
}

// Eval evaluates an expression of JavaScript in the page, awaits it if it is a promise, and decodes its value, unless
// result is nil.
func (b *Browser) Eval(t testing.TB, expression string, result any) {
	t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.Call(t, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(r.Result.Value, result); err != nil {
		t.Fatalf("%s: %v: %s", expression, err, r.Result.Value)
	}
}

// Until waits until an expression of JavaScript is true of the page.
func (b *Browser) Until(t testing.TB, expression string) {
	t.Helper()
	Eventually(t, expression, func() bool {
		var ok bool
		b.Eval(t, "Boolean("+expression+")", &ok)
		return ok
	})
}

// Resize makes the page as large as a screen of width by height CSS pixels.
func (b *Browser) Resize(t testing.TB, width, height int) {
	t.Helper()
	b.Call(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

// Prefer sets a preference that a page can ask for, such as prefers-color-scheme: dark.
func (b *Browser) Prefer(t testing.TB, feature, value string) {
	t.Helper()
	b.Call(t, "Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]string{"name": feature, "value": value}}}, nil)
}

// Press presses a key by its name in KeyboardEvent.key.
func (b *Browser) Press(t testing.TB, key string) {
	t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13}
	event := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	if key == "Enter" {
		event["text"] = "\r"
	}
	b.Call(t, "Input.dispatchKeyEvent", event, nil)
	b.Call(t, "Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}, nil)
}

// Screenshot returns the whole page as a PNG.
func (b *Browser) Screenshot(t testing.TB) []byte {
	t.Helper()
	var shot struct{ Data []byte }
	var size struct{ Width, Height int }
	b.Eval(t, `({width: innerWidth, height: Math.ceil(document.body.getBoundingClientRect().bottom + scrollY)})`, &size)
	b.Call(t, "Page.captureScreenshot", map[string]any{
		"captureBeyondViewport": true, "clip": map[string]int{"x": 0, "y": 0, "width": size.Width, "height": size.Height, "scale": 1},
	}, &shot)
	return shot.Data
}

// Events returns what the browser has reported by itself so far under the name of one event.
func (b *Browser) Events(method string) []BrowserEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.events), func(e BrowserEvent) bool { return e.Method != method })
}
