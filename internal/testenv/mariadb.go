package testenv

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MariaDBConfig says how to run one MariaDB server. The zero value is a server with an empty temporary data folder and
// a free port.
type MariaDBConfig struct {
	Dir  string // data folder, kept; empty: a temporary one, removed with the server
	Port int    // 0: a free port

	// Databases are created once the server answers, if they do not exist.
	Databases []string
	// Args are further options of mariadbd, such as --default-time-zone=+08:00; a later one wins.
	Args []string
}

// MariaDB is a running MariaDB server in a process of its own. It speaks MySQL's protocol.
type MariaDB struct {
	process
	cfg MariaDBConfig
}

// StartMariaDB starts a server, installing it first if the machine lacks it, and returns when it answers. Its user
// root, from this machine only, has no password.
func StartMariaDB(ctx context.Context, cfg MariaDBConfig) (*MariaDB, error) {
	installed, err := installMariaDB(ctx)
	if err != nil {
		return nil, err
	}
	helper, err := helperPath(ctx)
	if err != nil {
		return nil, err
	}
	if err := choosePorts("MariaDB", &cfg.Port); err != nil {
		return nil, err
	}
	m := &MariaDB{cfg: cfg}
	m.process = process{name: "MariaDB", ready: m.probe, patience: time.Minute, grace: 30 * time.Second}
	if err := m.setDir(cfg.Dir); err != nil {
		return nil, err
	}
	data := filepath.Join(m.dir, "data")
	prepare := func() error {
		if isFile(filepath.Join(data, "ibdata1")) {
			return nil
		}
		return os.CopyFS(data, os.DirFS(installed.data))
	}
	command := append([]string{installed.server}, mariaDBOptions(data)...)
	command = append(command,
		"--socket="+filepath.Join(m.dir, "socket"), "--port="+strconv.Itoa(cfg.Port), "--bind-address=127.0.0.1",
		"--pid-file="+filepath.Join(m.dir, "pid"), "--character-set-server=utf8mb4",
		// A laptop's size. The log is written at every commit, so kill -9 loses nothing, but not synced to the disk.
		"--innodb-log-file-size=32M", "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2")
	if err := m.launch(ctx, helper, prepare, append(command, cfg.Args...)...); err != nil {
		return nil, err
	}
	for _, database := range cfg.Databases {
		if err := m.Exec(ctx, "CREATE DATABASE IF NOT EXISTS `"+database+"`"); err != nil {
			_ = m.Stop()
			return nil, fmt.Errorf("create the database %s: %w", database, err)
		}
	}
	return m, nil
}

// Addr returns the host:port of the server.
func (m *MariaDB) Addr() string { return address(m.cfg.Port) }

// DSN returns what go-sql-driver/mysql takes to open the named database, or none if it is empty, as root. It sets no
// time zone and no other option: what a session needs is the caller's to say.
func (m *MariaDB) DSN(database string) string {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = "root", "tcp", m.Addr(), database
	return cfg.FormatDSN()
}

// Exec runs statements as root on a connection of their own, outside any database.
func (m *MariaDB) Exec(ctx context.Context, statements ...string) error {
	return m.exec(ctx, "", statements...)
}

func (m *MariaDB) exec(ctx context.Context, database string, statements ...string) error {
	cfg, err := mysql.ParseDSN(m.DSN(database))
	if err != nil {
		return err
	}
	cfg.Logger = &mysql.NopLogger{} // it would report every probe of a server that still starts
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// probe opens a connection: the server listens when it has recovered its data.
func (m *MariaDB) probe(ctx context.Context) error { return m.exec(ctx, "", "DO 0") }
