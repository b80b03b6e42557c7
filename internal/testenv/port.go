package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort returns a TCP port of 127.0.0.1 on which nothing listens now. It draws from the range below the ones that
// Linux (32768 up) and darwin (49152 up) give to outgoing connections and to listeners on port 0: such a port could
// be taken by any dial between this check and the server's start.
func FreePort() (int, error) {
	l, port, err := listen()
	if err != nil {
		return 0, err
	}
	return port, l.Close()
}

// listen takes a port as FreePort describes it.
func listen() (l net.Listener, port int, err error) {
	const first, count = 20_000, 12_000
	for range 100 {
		port = first + rand.IntN(count)
		if l, err = net.Listen("tcp", address(port)); err == nil {
			return l, port, nil
		}
	}
	return nil, 0, fmt.Errorf("no free TCP port found between %d and %d: %w", first, first+count, err)
}

// choosePorts gives every zero port a free one and reports which given one is taken, before a server fails on it
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
