package e2e

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/chprojector/projector/internal/testenv"
)

// lab is what schedules share: a broker, a ClickHouse, and for each member a proxy before each of them. The broker has a
// listener for each member that is advertised at its proxy, so a member reaches everything through its own network and
// nothing beside it.
type lab struct {
	broker *testenv.Kafka
	server *testenv.ClickHouse
	roads  map[string]*road // by member
	hosts  map[string]*host // by server
	gate   atomic.Pointer[gate]
	normal footprint // of a member after a calm schedule
}

// road is how one member reaches the servers.
type road struct {
	kafka, clickHouse *proxy
	commits           commitWatch
	inserts           insertWatch
}

func (r *road) to(server string) *proxy {
	if server == kafka {
		return r.kafka
	}
	return r.clickHouse
}

// heal ends all that is wrong with the road.
func (r *road) heal() {
	r.kafka.clear()
	r.clickHouse.clear()
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
	l := &lab{roads: map[string]*road{}, hosts: map[string]*host{}}
	l.server = testenv.NewClickHouse(t, testenv.ClickHouseConfig{})
	client, controller := freePort(t), freePort(t)
	listeners, advertised, protocols := "", "", "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT"
	for i, name := range memberNames {
		r := new(road)
		r.commits.check = func(commit *kmsg.OffsetCommitRequest) error { return l.check(name, commit) }
		upstream := "127.0.0.1:" + strconv.Itoa(freePort(t))
		r.kafka = newWatchedProxy(t, upstream, r.commits.watch)
		r.clickHouse = newWatchedProxy(t, l.server.Addr(), r.inserts.watch)
		listeners += fmt.Sprintf(",MEMBER%d://%s", i, upstream)
		advertised += fmt.Sprintf(",MEMBER%d://%s", i, r.kafka.Addr())
		protocols += fmt.Sprintf(",MEMBER%d:PLAINTEXT", i)
		l.roads[name] = r
	}
	direct := fmt.Sprintf("CLIENT://127.0.0.1:%d", client)
	l.broker = testenv.NewKafka(t, testenv.KafkaConfig{Port: client, Properties: map[string]string{
		"listeners":                      fmt.Sprintf("%s,CONTROLLER://127.0.0.1:%d%s", direct, controller, listeners),
		"advertised.listeners":           direct + advertised,
		"listener.security.protocol.map": protocols,
		"controller.quorum.voters":       fmt.Sprintf("1@127.0.0.1:%d", controller),
		"group.min.session.timeout.ms":   "1000",
		// A killed broker may register again when its last session has ended.
		"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300",
	}})
	l.hosts[kafka] = &host{name: kafka, process: l.broker}
	l.hosts[clickHouse] = &host{name: clickHouse, process: l.server}
	return l
}

func freePort(t *testing.T) int {
	t.Helper()
	port, release, err := testenv.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// check is asked before each commit that a member sends.
func (l *lab) check(member string, commit *kmsg.OffsetCommitRequest) error {
	g := l.gate.Load()
	if g == nil || commit.Group != g.w.group {
		return errCut // of a schedule that is over
	}
	return g.check(member, commit)
}

// host is a server that dies, on purpose or by itself. The embedded ClickHouse may abort when a client is cut off in the
// middle of its greeting; a real one does not, but for the projector that is one more kill, and so it is treated here.
type host struct {
	name    string
	process interface {
		Kill() error
		Restart(ctx context.Context) error
		Running() error
		Signal(s syscall.Signal) error
	}

	mu     sync.Mutex // held while the server is down on purpose
	deaths []string   // that nobody caused
}

// crash kills the server and starts it again after a while.
func (h *host) crash(ctx context.Context, down time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.process.Kill(); err != nil && h.process.Running() == nil {
		return err
	}
	<-time.After(down)
	return h.process.Restart(ctx)
}

// stall stops the server for a while: it keeps its connections and answers nothing.
func (h *host) stall(long time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process.Running() != nil {
		return nil // it died by itself a moment ago, which is as good
	}
	if err := h.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	<-time.After(long)
	if err := h.process.Signal(syscall.SIGCONT); err != nil && h.process.Running() == nil {
		return err
	}
	return nil
}

// guard starts the server again whenever it has died by itself, until ctx is done.
func (h *host) guard(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := h.revive(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (h *host) revive(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	dead := h.process.Running()
	if dead == nil {
		return nil
	}
	h.deaths = append(h.deaths, dead.Error())
	return h.process.Restart(ctx)
}

// died returns how often the server has died by itself, and forgets it.
func (h *host) died() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	deaths := h.deaths
	h.deaths = nil
	return deaths
}

// footprint is what a process holds on to.
type footprint struct{ goroutines, connections float64 }

func (f footprint) String() string {
	return fmt.Sprintf("%.0f goroutines, %.0f connections", f.goroutines, f.connections)
}
