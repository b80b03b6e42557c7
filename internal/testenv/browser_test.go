package testenv

import (
	"bytes"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a browser")
	}
	b := NewBrowser(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<title>a page</title><button onclick="document.title = 'pressed'; console.error('pain')">b</button>`))
	}))
	t.Cleanup(server.Close)
	b.Call(t, "Page.navigate", map[string]string{"url": server.URL}, nil)
	b.Until(t, `document.title === "a page"`)
	b.Press(t, "Tab")
	b.Press(t, "Enter")
	b.Until(t, `document.title === "pressed"`)
	b.Prefer(t, "prefers-color-scheme", "dark")
	b.Resize(t, 360, 640)
	var is struct {
		Dark  bool
		Width int
	}
	b.Eval(t, `({dark: matchMedia("(prefers-color-scheme: dark)").matches, width: outerWidth})`, &is)
	if !is.Dark || is.Width != 360 {
		t.Errorf("the page sees %+v", is)
	}
	Eventually(t, "the console's line is reported", func() bool {
		for _, e := range b.Events("Runtime.consoleAPICalled") {
			return strings.Contains(string(e.Params), "pain")
		}
		return false
	})
	// Somebody has scrolled, and the picture is of the whole page all the same.
	b.Resize(t, 800, 600)
	b.Eval(t, `document.body.style.cssText = "margin: 0; height: 2000px", scrollTo(0, 700)`, nil)
	b.Until(t, "scrollY === 700")
	shot, err := png.DecodeConfig(bytes.NewReader(b.Screenshot(t)))
	if err != nil || shot.Width != 800 || shot.Height != 2000 {
		t.Errorf("the screenshot is %+v, %v", shot, err)
	}
}
