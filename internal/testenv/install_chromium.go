package testenv

import (
	"context"
	"fmt"
	"os/exec"
)

// chromiumPackage is Debian's Chromium without windows: the same engine, without the toolkits of a desktop.
const chromiumPackage = "chromium-headless-shell"

// chromiumPrograms are what a Chromium may be called, on Debian and elsewhere.
var chromiumPrograms = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// installChromium finds Chromium on the machine or installs it with apt-get.
func installChromium(ctx context.Context) (path string, err error) {
	if path, err = findChromium(); err == nil {
		return path, nil
	}
	installed := func() bool { _, err := findChromium(); return err == nil }
	if err := aptInstall(ctx, installed, chromiumPackage); err != nil {
		return "", fmt.Errorf("install Chromium (by hand: apt-get install %s): %w", chromiumPackage, err)
	}
	if path, err = findChromium(); err != nil {
		return "", fmt.Errorf("find Chromium, which is installed: %w", err)
	}
	return path, nil
}

func findChromium() (path string, err error) {
	for _, name := range chromiumPrograms {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", err
}
