package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// reserved are the ports that were given away, each by a socket on the UDP port of the same number, which no server here
// uses. On a busy machine a server takes its port seconds after it was chosen, and a killed one leaves it until it is
// started again: meanwhile other processes, such as the tests of other packages, choose from the same range.
var reserved = struct {
	sync.Mutex
	ports map[int]net.PacketConn
}{ports: map[int]net.PacketConn{}}

// FreePort returns a TCP port of 127.0.0.1 on which nothing listens now. No other call gets it, in whatever process,
// before release is called or this process ends. It draws from the range below the ones that Linux (32768 up) and darwin
// (49152 up) give to outgoing connections and to listeners on port 0: such a port could be taken by any dial between this
// check and the server's start.
func FreePort() (port int, release func(), err error) {
	l, port, err := listen()
	if err != nil {
		return 0, nil, err
	}
	return port, func() { giveBack(port) }, l.Close()
}

// listen reserves a port as FreePort describes it, and listens on it.
func listen() (l net.Listener, port int, err error) {
	const first, count = 20_000, 12_000
	for range 100 {
		port = first + rand.IntN(count)
		if l, err = take(port); err == nil {
			return l, port, nil
		}
	}
	return nil, 0, fmt.Errorf("no free TCP port found between %d and %d: %w", first, first+count, err)
}

// take reserves a port and listens on it.
func take(port int) (net.Listener, error) {
	reservation, err := net.ListenPacket("udp", address(port))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		_ = reservation.Close()
		return nil, err
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.ports[port] = reservation
	return l, nil
}

// giveBack ends the reservation of a port.
func giveBack(port int) {
	reserved.Lock()
	defer reserved.Unlock()
	if reservation, ok := reserved.ports[port]; ok {
		_ = reservation.Close()
		delete(reserved.ports, port)
	}
}

// choosePorts gives every zero port a free one, reserved until this process ends, and reports which given one is taken, before a server fails on it
// with a message of its own. It holds each until it has them all, so that no two are the same.
func choosePorts(server string, ports ...*int) error {
	for _, port := range ports {
		if *port == 0 {
			l, free, err := listen()
			if err != nil {
				return fmt.Errorf("start %s: %w", server, err)
			}
			defer l.Close()
			*port = free
			continue
		}
		l, err := net.Listen("tcp", address(*port))
		if err != nil {
			return fmt.Errorf("start %s: port %d cannot be used (choose another, or free ports): %w", server, *port, err)
		}
		defer l.Close()
	}
	return nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
