package testenv

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ClickHouseConfig says how to run one ClickHouse server. The zero value is a server with an empty temporary data
// folder, free ports and the user "default" without a password.
type ClickHouseConfig struct {
	Dir      string // data folder, kept; empty: a temporary one, removed with the server
	TCPPort  int    // native protocol; 0: a free port
	HTTPPort int    // HTTP protocol; 0: a free port

	// Databases are created once the server answers, if they do not exist.
	Databases []string

	// Server is XML put inside the server's <clickhouse> element: remote_servers, merge_tree settings, macros.
	Server string
	// Profile is XML put inside the profile "default", which every user here has unless Users says otherwise:
	// settings of a session, such as <readonly>1</readonly>.
	Profile string
	// Profiles is XML with further profiles, such as <analyst><readonly>1</readonly></analyst>, that Users can name:
	// <alice>…<profile>analyst</profile></alice>.
	Profiles string
	// Users is XML put inside <users>, such as
	// <alice><password>secret</password><grants><query>GRANT SELECT ON reporting.*</query></grants></alice>. An element
	// <default> replaces the default user, which otherwise has no password and all rights; Databases and Query need
	// it without a password. CREATE USER does not work in this server (error 514).
	Users string
}

// ClickHouse is a running ClickHouse 26.7 server in a process of its own.
type ClickHouse struct {
	process
	cfg ClickHouseConfig
}

// StartClickHouse starts a server, installing it first if the cache lacks it, and returns when both protocols answer.
func StartClickHouse(ctx context.Context, cfg ClickHouseConfig) (*ClickHouse, error) {
	library, err := installClickHouse(ctx)
	if err != nil {
		return nil, err
	}
	helper, err := helperPath(ctx)
	if err != nil {
		return nil, err
	}
	if err := choosePorts("ClickHouse", &cfg.TCPPort, &cfg.HTTPPort); err != nil {
		return nil, err
	}
	c := &ClickHouse{cfg: cfg}
	c.process = process{name: "ClickHouse", ready: c.probe, patience: time.Minute}
	if err := c.setDir(cfg.Dir); err != nil {
		return nil, err
	}
	err = c.launch(ctx, helper, c.writeConfig,
		helper, "serve-clickhouse", library, "--config-file="+c.config(), "--path="+filepath.Join(c.dir, "data"),
		"--log-level=warning", "--multiquery", "--query="+serveForEver)
	if err != nil {
		return nil, err
	}
	for _, database := range cfg.Databases {
		if _, err := c.Query(ctx, "CREATE DATABASE IF NOT EXISTS `"+database+"`"); err != nil {
			_ = c.Stop()
			return nil, fmt.Errorf("create the database %s: %w", database, err)
		}
	}
	return c, nil
}

// serveForEver makes clickhouse-local, which ends with its last query, a server. One row a block keeps sleepEachRow
// below its limit of 3 s a block.
const serveForEver = "SYSTEM START LISTEN TCP; SYSTEM START LISTEN HTTP; " +
	"SELECT sleepEachRow(3) FROM numbers(1000000000) SETTINGS max_block_size = 1 FORMAT Null"

// Addr returns the host:port of the native protocol, as clickhouse-go takes it.
func (c *ClickHouse) Addr() string { return address(c.cfg.TCPPort) }

// HTTPAddr returns the host:port of the HTTP protocol.
func (c *ClickHouse) HTTPAddr() string { return address(c.cfg.HTTPPort) }

// Query runs one statement over HTTP as the default user and returns its result as the server formats it:
// tab-separated unless the statement has a FORMAT. It is for preparing and asserting; it needs no driver.
func (c *ClickHouse) Query(ctx context.Context, statement string) (string, error) {
	return c.query(ctx, "", url.UserPassword("default", ""), statement)
}

// QueryAs is Query as another user.
func (c *ClickHouse) QueryAs(ctx context.Context, user *url.Userinfo, statement string) (string, error) {
	return c.query(ctx, "", user, statement)
}

func (c *ClickHouse) query(ctx context.Context, database string, user *url.Userinfo, statement string) (string, error) {
	password, _ := user.Password()
	header := http.Header{"X-ClickHouse-User": {user.Username()}, "X-ClickHouse-Key": {password}}
	if database != "" {
		header.Set("X-ClickHouse-Database", database)
	}
	return c.http(ctx, http.MethodPost, "/", strings.NewReader(statement), header)
}

// probe asks over HTTP, which starts to listen after the native protocol does; neither needs a password.
func (c *ClickHouse) probe(ctx context.Context) error {
	_, err := c.http(ctx, http.MethodGet, "/ping", nil, nil)
	return err
}

func (c *ClickHouse) http(ctx context.Context, method, path string, body io.Reader, header http.Header) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.HTTPAddr()+path, body)
	if err != nil {
		return "", err
	}
	request.Header = header
	response, err := httpClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("ClickHouse answered %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return string(text), nil
}

// httpClient keeps no connection open, hence no goroutine either.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (c *ClickHouse) config() string { return filepath.Join(c.dir, "config.xml") }

// writeConfig writes config.xml and users.xml.
func (c *ClickHouse) writeConfig() error {
	users := c.cfg.Users
	if !strings.Contains(users, "<default>") {
		users = "<default><password></password></default>\n" + users
	}
	users = "<clickhouse>\n<profiles><default>" + c.cfg.Profile + "</default>" + c.cfg.Profiles + "</profiles>\n" +
		"<quotas><default></default></quotas>\n<users>\n" + users + "\n</users>\n</clickhouse>\n"
	if err := os.WriteFile(filepath.Join(c.dir, "users.xml"), []byte(users), 0o644); err != nil {
		return err
	}
	server := strings.NewReplacer("DIR", c.dir, "TCP", strconv.Itoa(c.cfg.TCPPort), "HTTP", strconv.Itoa(c.cfg.HTTPPort)).
		Replace(clickHouseXML)
	return os.WriteFile(c.config(), []byte(server+c.cfg.Server+"\n</clickhouse>\n"), 0o644)
}

// clickHouseXML lacks its end tag, so that more can follow. The caches are small and the pools are those of a laptop:
// several servers share one machine with the tests. The query log is flushed twice a second.
const clickHouseXML = `<clickhouse>
<logger><level>warning</level><console>1</console></logger>
<listen_host>127.0.0.1</listen_host>
<tcp_port>TCP</tcp_port>
<http_port>HTTP</http_port>
<users_config>DIR/users.xml</users_config>
<mark_cache_size>67108864</mark_cache_size>
<uncompressed_cache_size>0</uncompressed_cache_size>
<max_concurrent_queries>200</max_concurrent_queries>
<query_log>
<database>system</database><table>query_log</table>
<flush_interval_milliseconds>500</flush_interval_milliseconds>
</query_log>
`
