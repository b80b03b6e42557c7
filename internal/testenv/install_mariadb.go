package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mariaDBPackages are Debian's. The core packages are enough and, unlike mariadb-server, start no service on port
// 3306; the second one has my_print_defaults, which mariadb-install-db calls.
var mariaDBPackages = []string{"mariadb-server-core", "mariadb-client-core"}

// mariaDB is what a server needs.
type mariaDB struct {
	server string // path of the program
	data   string // folder with fresh system tables, to be copied
}

// installMariaDB finds MariaDB on the machine or installs it with apt-get, and creates its system tables once: that
// takes seconds, a copy of them milliseconds.
func installMariaDB(ctx context.Context) (installed mariaDB, err error) {
	programs, err := findMariaDB()
	if err != nil {
		there := func() bool { _, err := findMariaDB(); return err == nil }
		if err := aptInstall(ctx, there, mariaDBPackages...); err != nil {
			return installed, fmt.Errorf("install MariaDB (by hand: apt-get install %s, or on darwin: brew install mariadb): %w",
				strings.Join(mariaDBPackages, " "), err)
		}
		if programs, err = findMariaDB(); err != nil {
			return installed, fmt.Errorf("find MariaDB, which is installed: %w", err)
		}
	}
	server := programs["mariadbd"]
	version, err := exec.CommandContext(ctx, server, "--version").Output()
	if err != nil {
		return installed, fmt.Errorf("run %s --version: %w", server, err)
	}
	// "…/mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)"
	_, rest, _ := strings.Cut(string(version), "Ver ")
	number, _, _ := strings.Cut(rest, " ")
	dir, err := install(ctx, "mariadb-"+number, func(dir string) error {
		data := filepath.Join(dir, "data")
		return run(ctx, dir, programs["mariadb-install-db"], append(mariaDBOptions(data), "--skip-test-db",
			"--auth-root-authentication-method=normal", "--innodb-log-file-size=4M")...)
	})
	if err != nil {
		return installed, fmt.Errorf("create MariaDB's system tables: %w", err)
	}
	return mariaDB{server: server, data: filepath.Join(dir, "data")}, nil
}

// mariaDBOptions are common to the server and to the creation of its system tables; --no-defaults has to be the first.
func mariaDBOptions(data string) []string {
	options := []string{"--no-defaults", "--datadir=" + data, "--skip-name-resolve"}
	if os.Geteuid() == 0 {
		options = append(options, "--user=root") // refused without being said
	}
	return options
}

// findMariaDB returns the paths of the programs by their names.
func findMariaDB() (programs map[string]string, err error) {
	programs = map[string]string{}
	for _, name := range []string{"mariadbd", "mariadb-install-db", "my_print_defaults"} {
		path, err := exec.LookPath(name)
		if err != nil {
			path = filepath.Join("/usr/sbin", name) // which the path of a user other than root often lacks
			if !isFile(path) {
				return nil, err
			}
		}
		programs[name] = path
	}
	return programs, nil
}

// aptInstall installs packages where that needs no question asked. Only one process at a time may, hence the lock;
// the one that waited asks installed whether there is anything left to do.
func aptInstall(ctx context.Context, installed func() bool, packages ...string) error {
	root, err := repository()
	if err != nil {
		return err
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
	if installed() {
		return nil
	}
	return run(ctx, root, filepath.Join(root, "tools", "apt"), packages...)
}
