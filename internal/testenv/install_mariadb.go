package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// mariaDBPackages are Debian's. The core packages are enough and, unlike mariadb-server, start no service on port
// 3306; the second one has my_print_defaults, which mariadb-install-db calls.
var mariaDBPackages = []string{"mariadb-server-core", "mariadb-client-core"}

// mariaDBPrograms are the paths of the programs that a server needs.
type mariaDBPrograms struct{ server, installDB string }

// installMariaDB finds MariaDB on the machine or installs it with apt-get.
func installMariaDB(ctx context.Context) (mariaDBPrograms, error) {
	programs, err := findMariaDB()
	if err == nil {
		return programs, nil
	}
	if err := aptInstall(ctx, mariaDBPackages...); err != nil {
		return programs, fmt.Errorf("install MariaDB (by hand: apt-get install %s %s, or on darwin: brew install mariadb): %w",
			mariaDBPackages[0], mariaDBPackages[1], err)
	}
	return findMariaDB()
}

func findMariaDB() (programs mariaDBPrograms, err error) {
	var missing error
	find := func(name string) string {
		path, err := exec.LookPath(name)
		if err == nil {
			return path
		}
		// The path of a user other than root often lacks it.
		if path = filepath.Join("/usr/sbin", name); isFile(path) {
			return path
		}
		missing = errors.Join(missing, err)
		return ""
	}
	programs = mariaDBPrograms{server: find("mariadbd"), installDB: find("mariadb-install-db")}
	find("my_print_defaults")
	return programs, missing
}

// aptInstall runs apt-get as root. Only one process at a time may, hence the lock.
func aptInstall(ctx context.Context, packages ...string) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return err
	}
	command := []string{"env", "DEBIAN_FRONTEND=noninteractive", apt}
	if os.Geteuid() != 0 {
		sudo, err := exec.LookPath("sudo")
		if err != nil {
			return errors.New("apt-get needs root, and there is no sudo")
		}
		command = append([]string{sudo, "--non-interactive"}, command...) // a test must not ask for a password
	}
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	release, err := lock(ctx, cache, "apt")
	if err != nil {
		return err
	}
	defer release()
	if _, err := findMariaDB(); err == nil {
		return nil // another process installed it meanwhile
	}
	install := append(command[1:len(command):len(command)], "install", "--yes", "--no-install-recommends")
	install = append(install, packages...)
	if err := run(ctx, cache, command[0], install...); err == nil {
		return nil
	}
	// The lists may be missing or out of date, as in a fresh image.
	update := append(command[1:len(command):len(command)], "update")
	return errors.Join(run(ctx, cache, command[0], update...), run(ctx, cache, command[0], install...))
}
